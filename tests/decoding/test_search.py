import functools
import json

import hypothesis
import hypothesis.strategies as st
import keras
import numpy as np
import pytest
from toy_decoding import ToyModel, padded

from keras_transformer.decoding import (
    BannedIds,
    BeamSearch,
    ForcedPrefix,
    GreedySearch,
    MaximumLength,
    MinimumLength,
    NoRepeatNgram,
    PowerLengthPenalty,
    RepetitionPenalty,
    Sampling,
)
from keras_transformer.decoding import search as search_module

SOURCES = np.array([[3, 4, 5], [6, 7, 0], [8, 0, 0]], "int32")
CONTROLS = (
    MinimumLength(3),
    MaximumLength(1.5, 2),
    NoRepeatNgram(2),
    RepetitionPenalty(1.2),
    BannedIds([5]),
    ForcedPrefix([3]),
)
SEARCHES = [
    GreedySearch(),
    BeamSearch(3, num_hypotheses=2),
    BeamSearch(2, 1.0, processors=CONTROLS),
    Sampling(seed=3),
    BeamSearch(3, end_ids=(2, 5, 7)),
    Sampling(seed=3, end_ids=5),
    Sampling(0.7, top_k=5, top_p=0.9, seed=3, num_hypotheses=2),
]


@pytest.mark.quick("False-GreedySearch(processors=(), e")
@pytest.mark.needs_tensorflow
@pytest.mark.parametrize("search", SEARCHES, ids=str)
@pytest.mark.parametrize("jit_compile", [False, True])
def test_traced_for_any_batch_and_length_a_search_returns_the_same(search, jit_compile):
    import tensorflow as tf

    model = ToyModel(vocabulary_size=1031, max_length=7, end_bias=6.0, growth=(2,))
    traced = tf.function(
        lambda sources: search(model, sources, 7),
        input_signature=[tf.TensorSpec((None, None), "int32")],
        jit_compile=jit_compile,
        autograph=False,
    )
    for sources in (SOURCES, SOURCES[:1, :2]):
        eager, compiled = search(model, sources, 7), traced(sources)
        np.testing.assert_array_equal(compiled.ids, eager.ids)
        np.testing.assert_allclose(compiled.scores, eager.scores, atol=1e-4)


@pytest.mark.quick(
    "GreedySearch(processors=(), end_id", "BeamSearch(beam_width=3, length_pe"
)
@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_a_cache_that_is_lengthened_holds_what_a_whole_one_does(search):
    whole = ToyModel(vocabulary_size=31, max_length=7)
    in_parts = ToyModel(vocabulary_size=31, max_length=7, growth=(2, 5))
    expected, found = (search(model, SOURCES, 7) for model in (whole, in_parts))
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)


class Watched(ToyModel):
    """Notes how many positions each step can see."""

    def step(self, token_ids, context, cache, index, visible):
        assert visible.shape[2] == cache["entries"].shape[1]
        self.seen = [*getattr(self, "seen", ()), visible.shape[2]]
        return super().step(token_ids, context, cache, index, visible)


@pytest.mark.parametrize(
    ("growth", "max_length", "seen"),
    [
        ((2, 5), 7, [5] * 5 + [7] * 2),
        ((2, 5), 4, [2, 2, 4, 4]),
        ((2, 5), 2, [2, 2]),
        ((2,), 11, [2] * 2 + [8] * 6 + [11] * 3),
    ],
)
def test_a_step_reads_no_more_than_the_cache_holds(growth, max_length, seen):
    model = Watched(vocabulary_size=7, max_length=11, end_bias=-99.0, growth=growth)
    GreedySearch()(model, SOURCES, max_length)
    if keras.backend.backend() == "jax":  # traces a step once for each length
        seen = sorted(set(seen))
    assert model.seen == seen


@functools.cache
def traced_toy_search(search):
    import tensorflow as tf

    model = ToyModel(vocabulary_size=31, max_length=7, end_bias=1.0)
    return tf.function(
        lambda sources: search(model, sources, 7),
        input_signature=[tf.TensorSpec((None, None), "int32")],
        autograph=False,
    )


@pytest.mark.quick("BeamSearch(beam_width=3, length_pe")
@pytest.mark.needs_tensorflow
@pytest.mark.parametrize("search", SEARCHES, ids=str)
@hypothesis.given(
    st.lists(st.lists(st.integers(3, 12), max_size=5), min_size=1, max_size=7),
    st.integers(0, 3),
)
@hypothesis.settings(max_examples=25)
def test_a_sentence_gets_in_any_batch_what_it_gets_alone(search, sentences, padding):
    find = traced_toy_search(search)
    length = max(map(len, sentences)) + padding
    batch = np.array([padded(one, length) for one in sentences], "int32")
    together = find(batch)
    for row, sentence in enumerate(sentences):
        alone = find(np.array([sentence], "int32"))
        np.testing.assert_array_equal(alone.ids[0], together.ids[row])
        np.testing.assert_allclose(alone.scores[0], together.scores[row], atol=1e-5)


@pytest.mark.quick(
    "GreedySearch(processors=(), end_id", "Sampling(temperature=1.0, top_k=No"
)
@pytest.mark.needs_tensorflow
@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_the_traced_graph_has_stock_operations_only_and_one_loop(search):
    import tensorflow as tf

    model = ToyModel(vocabulary_size=1031, max_length=7)
    traced = tf.function(lambda sources: search(model, sources, 7), autograph=False)
    graph = traced.get_concrete_function(tf.TensorSpec((None, None), "int32")).graph
    nodes = list(graph.as_graph_def().node)
    loops = [node.op for node in nodes if "While" in node.op]
    assert len(loops) == 1
    for function in graph.as_graph_def().library.function:
        nodes += function.node_def
    operations = {node.op for node in nodes}
    assert len(operations) > 20
    assert not [name for name in operations if name.startswith("Xla") or "Py" in name]
    # Nothing is drawn by operations that keep a state.
    assert not [
        name
        for name in operations
        if name.startswith("Random") or "Multinomial" in name or "Var" in name
    ]


@pytest.mark.needs_tensorflow
def test_a_saved_search_draws_as_the_live_one(tmp_path):
    import tensorflow as tf

    model, search = ToyModel(vocabulary_size=11, max_length=7), Sampling(seed=5)
    module = tf.Module()
    module.decode = tf.function(
        lambda sources: search(model, sources, 7)._asdict(),
        input_signature=[tf.TensorSpec((None, None), "int32")],
        autograph=False,
    )
    tf.saved_model.save(module, tmp_path)
    loaded = tf.saved_model.load(tmp_path).decode(SOURCES)
    live = search(model, SOURCES, 7)
    np.testing.assert_array_equal(loaded["ids"], live.ids)
    np.testing.assert_allclose(loaded["scores"], live.scores, atol=1e-5)


@pytest.mark.parametrize("one", [*SEARCHES, *CONTROLS], ids=str)
def test_a_search_and_a_processor_come_back_from_their_config(one):
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(one)))
    assert config["registered_name"].startswith("keras_transformer>")
    back = keras.saving.deserialize_keras_object(config)
    assert type(back) is type(one)
    assert back == one
    assert hash(back) == hash(one)
    assert str(back) == str(one)


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_a_search_with_some_arguments_replaced_keeps_the_others(search):
    other = search.replace(processors=[BannedIds([3])])
    assert other != search
    assert other.processors == (BannedIds([3]),)
    assert other.replace(processors=search.processors) == search


def test_replaced_arguments_are_checked():
    with pytest.raises(ValueError, match="`num_hypotheses` must be at most"):
        BeamSearch(3).replace(num_hypotheses=5)


def test_numbers_of_numpy_are_those_of_python():
    half, three = np.float32(0.5), np.int64(3)
    searches = [
        (BeamSearch(three, half), BeamSearch(3, 0.5)),
        (BeamSearch(3, 1), BeamSearch(3, 1.0)),
        (BeamSearch(3, PowerLengthPenalty(1)), BeamSearch(3, PowerLengthPenalty(1.0))),
        (Sampling(half, three, half, three), Sampling(0.5, 3, 0.5, 3)),
        (MaximumLength(half, three), MaximumLength(0.5, 3)),
        (RepetitionPenalty(np.float32(1.5)), RepetitionPenalty(1.5)),
    ]
    for found, expected in searches:
        assert found == expected
        assert hash(found) == hash(expected)


def test_searches_of_other_settings_are_not_equal():
    searches = [
        *SEARCHES,
        BeamSearch(3, num_hypotheses=1),
        BeamSearch(3, length_penalty=1.0, num_hypotheses=2),
        BeamSearch(2, 1.0, processors=CONTROLS[::-1]),
        GreedySearch(processors=[BannedIds([3])]),
        GreedySearch(processors=[BannedIds([4])]),
        Sampling(seed=4),
    ]
    assert len(set(searches)) == len(searches)
    assert all(
        (a == b) == (i == j)
        for i, a in enumerate(searches)
        for j, b in enumerate(searches)
    )


def test_a_setting_may_be_any_sequence_of_numbers():
    assert BannedIds(np.array([3, 5])) == BannedIds([3, 5]) == BannedIds(range(3, 6, 2))
    assert ForcedPrefix(np.array([[3, 5]])) == ForcedPrefix(((3, 5),))


def test_the_cache_of_few_entries_has_its_full_length_at_once(monkeypatch):
    monkeypatch.setattr(search_module, "MIN_ENTRIES_OF_ALL", 3 * 2 * 7)
    for sources, seen in ((SOURCES, {7}), (np.repeat(SOURCES, 2, axis=0), {2, 7})):
        model = Watched(vocabulary_size=31, max_length=7, growth=(2,))
        BeamSearch(2)(model, sources, 7)
        assert set(model.seen) == seen
