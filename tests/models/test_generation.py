import copy
import functools
import gc
import itertools
import pickle
import weakref

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from keras_transformer.decoding import BeamSearch, GreedySearch, Sampling
from keras_transformer.kernels import target
from keras_transformer.models import Transformer
from keras_transformer.training import TokenCrossentropy

VOCABULARY, MAX_LENGTH = 17, 7
SETTINGS = {"num_layers": 2, "hidden_dim": 8, "num_heads": 2, "intermediate_dim": 11}
BEAM = BeamSearch(3, length_penalty=0.6, num_hypotheses=3)
SOURCE = np.array(
    [
        [5, 7, 11, 13, 3, 0, 0],
        [4, 6, 3, 0, 0, 0, 0],
        [16, 15, 14, 13, 12, 11, 3],
        [9, 3, 0, 0, 0, 0, 0],
    ],
    "int32",
)


def transformer(seed, **kwargs):
    """A small model in which every weight matters, and some sentences end."""
    model = Transformer(**{"source_vocabulary_size": VOCABULARY, **SETTINGS, **kwargs})
    random = np.random.default_rng(seed)
    for weight in model.weights:
        mean = float(weight.path.endswith("gamma"))
        scale = 0.8 if weight.path.endswith("embeddings") else 0.4
        weight.assign(random.normal(mean, scale, weight.shape))
    return model


def log_probability(model, source, ids):
    """What the model without a cache gives a hypothesis, and its length."""
    totals, lengths = log_probabilities(model, source, ids[None])
    return totals[0], lengths[0]


def log_probabilities(model, source, ids):
    """The same of several hypotheses of a sentence."""
    is_past_end = np.cumsum(ids == model.end_id, axis=1) - (ids == model.end_id) > 0
    starts = np.full((len(ids), 1), model.start_id)
    target_ids = np.concatenate([starts, ids[:, :-1]], axis=1)
    sources = np.repeat(source[None], len(ids), axis=0)
    logits = model({"source_ids": sources, "target_ids": target_ids})
    logits = ops.convert_to_numpy(logits).astype("float64")
    chosen = np.take_along_axis(logits, ids[..., None], axis=-1)[..., 0]
    gains = chosen - np.log(np.exp(logits).sum(axis=-1))
    return np.sum(gains, axis=1, where=~is_past_end), np.sum(~is_past_end, axis=1)


VARIANTS = {
    "post-norm": {"seed": 3},
    "pre-norm": {"seed": 11, "normalize_first": True},
    "two vocabularies, other special ids": {
        "seed": 17,
        "target_vocabulary_size": 19,
        "pad_id": 1,
        "start_id": 4,
        "end_id": 6,
    },
}


@functools.cache
def variant(name):
    return transformer(**VARIANTS[name])


@pytest.mark.quick("post-norm")
@pytest.mark.parametrize("name", VARIANTS)
def test_scores_are_those_of_the_model_without_a_cache(name):
    model = variant(name)
    source = np.where(SOURCE == 0, model.pad_id, SOURCE)
    lengths = set()
    for search in (GreedySearch(), BEAM):
        ids, scores = model.generate(source, search, MAX_LENGTH)
        assert (ids.dtype, scores.dtype) == ("int32", "float32")
        assert ids.shape == (4, 1 if search is not BEAM else 3, MAX_LENGTH)
        assert np.all(np.diff(scores) <= 0), "the best comes first"
        for sentence, hypotheses, found in zip(source, ids, scores, strict=True):
            totals, ends = log_probabilities(model, sentence, hypotheses)
            for hypothesis, score, expected, length in zip(
                hypotheses, found, totals, ends, strict=True
            ):
                if search is BEAM:
                    expected /= ((5 + length) / 6) ** 0.6
                np.testing.assert_allclose(score, expected, 1e-4, 1e-4)
                assert np.all(hypothesis[length:] == model.pad_id)
                assert model.pad_id not in hypothesis[:length]
                lengths.add(length)
    assert len(lengths) > 1, "no sentence ends: the test shows less than it should"


@pytest.mark.slow  # as test_transformer_positions.py shows
def test_greedy_takes_what_the_model_without_a_cache_finds_likeliest():
    model = variant("pre-norm")
    ids = model.generate(SOURCE, max_length=MAX_LENGTH).ids[:, 0]
    target_ids = np.concatenate([np.full((4, 1), model.start_id), ids[:, :-1]], axis=1)
    logits = model({"source_ids": SOURCE, "target_ids": target_ids})
    logits = ops.convert_to_numpy(logits)
    logits[..., model.pad_id] = -np.inf
    real = ids != model.pad_id
    np.testing.assert_array_equal(logits.argmax(axis=-1)[real], ids[real])


@pytest.mark.slow  # as decoding/test_beam.py shows of a toy
@pytest.mark.parametrize("length_penalty", [0, 0.6, 2])
def test_a_beam_as_wide_as_the_space_finds_what_enumeration_finds(length_penalty):
    model = transformer(seed=5, source_vocabulary_size=5)
    bodies = [list(itertools.product((1, 2, 4), repeat=n)) for n in range(4)]
    space = [(*body, 3) for n in range(3) for body in bodies[n]] + bodies[3]
    space = np.array([[*one, 0, 0, 0][:3] for one in space])
    search = BeamSearch(len(space), length_penalty, num_hypotheses=len(space))
    ids, scores = model.generate(np.minimum(SOURCE, 4), search, max_length=3)
    for i, source in enumerate(np.minimum(SOURCE, 4)):
        totals, lengths = log_probabilities(model, source, space)
        expected = totals / ((5 + lengths) / 6) ** length_penalty
        order = np.argsort(-expected)
        np.testing.assert_array_equal(ids[i], space[order])
        np.testing.assert_allclose(scores[i], expected[order], 1e-4, 1e-5)


@pytest.mark.slow
def test_a_beam_of_one_finds_what_greedy_search_finds():
    model = variant("post-norm")
    greedy = model.generate(SOURCE, GreedySearch(), MAX_LENGTH)
    beam = model.generate(SOURCE, BeamSearch(1, length_penalty=0), MAX_LENGTH)
    np.testing.assert_array_equal(beam.ids, greedy.ids)
    np.testing.assert_allclose(beam.scores, greedy.scores, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "search",
    [GreedySearch(), BEAM, Sampling(seed=5)],
    ids=["greedy", "beam", "sampling"],
)
@settings(max_examples=15)
@given(st.lists(st.lists(st.integers(4, 16), max_size=6), min_size=1, max_size=5))
def test_any_mix_of_lengths_gives_what_each_sentence_gives_alone(search, bodies):
    model = variant("post-norm")
    sentences = [np.array([*body, model.end_id], "int32") for body in bodies]
    length = max(map(len, sentences))
    batch = np.stack([np.pad(one, (0, length - len(one))) for one in sentences])
    together = model.generate(batch, search, MAX_LENGTH)
    for i, sentence in enumerate(sentences):
        alone = model.generate(sentence[None], search, MAX_LENGTH)
        np.testing.assert_array_equal(alone.ids[0], together.ids[i])
        np.testing.assert_allclose(alone.scores[0], together.scores[i], 1e-4, 1e-5)


@pytest.mark.slow  # as test_transformer.py shows of its logits
@pytest.mark.parametrize("search", [None, BEAM], ids=["default", "beam"])
def test_a_reloaded_model_generates_the_same(search, tmp_path):
    model = variant("pre-norm")
    model.save(tmp_path / "model.keras")
    reloaded = keras.models.load_model(tmp_path / "model.keras")
    before, after = (
        one.generate(SOURCE, search, MAX_LENGTH) for one in (model, reloaded)
    )
    np.testing.assert_array_equal(after.ids, before.ids)
    np.testing.assert_array_equal(after.scores, before.scores)


def test_generate_follows_new_weights_and_leaves_the_model_as_it_was():
    model, other = (transformer(seed, num_layers=1) for seed in (1, 2))
    layers = [layer.name for layer in model.layers]
    paths = [w.path for w in model.weights]
    before = model.generate(SOURCE, max_length=MAX_LENGTH)
    model.set_weights(other.get_weights())
    after = model.generate(SOURCE, max_length=MAX_LENGTH)
    expected = other.generate(SOURCE, max_length=MAX_LENGTH)
    assert np.any(before.ids != after.ids)
    np.testing.assert_array_equal(after.ids, expected.ids)
    assert [layer.name for layer in model.layers] == layers
    assert [w.path for w in model.weights] == paths


@pytest.mark.slow
@pytest.mark.needs_tensorflow
def test_a_model_compiled_again_does_not_keep_its_old_programs(monkeypatch):
    traced_for = []
    started = Transformer.start

    def start(self, *arguments):
        traced_for.append(target.xla_compiles_for_cpu())
        return started(self, *arguments)

    model = transformer(seed=3)
    monkeypatch.setattr(Transformer, "start", start)
    for jit_compile in (False, True, False):
        model.compile(jit_compile=jit_compile)
        ids = model.generate(SOURCE, max_length=3).ids
        np.testing.assert_array_equal(ids, model.generate(SOURCE, max_length=3).ids)
    assert traced_for == [False, True], "two programs, each traced once"


@pytest.mark.slow
def test_copies_of_a_model_that_generates_have_no_programs():
    model = transformer(seed=3)
    expected = model.generate(SOURCE, max_length=3).ids
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other._runner._program.cache_info().currsize == 0
        ids = other.generate(SOURCE, max_length=3).ids
        np.testing.assert_array_equal(ids, expected)


def test_a_model_that_generated_is_freed_with_its_programs():
    model = transformer(seed=3, num_layers=1)
    model.generate(SOURCE, max_length=3)
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision_models_train_a_step_and_generate(dtype):
    model = Transformer(VOCABULARY, **SETTINGS, dtype=dtype)
    model.compile("sgd", loss=TokenCrossentropy(0.1))
    inputs = {"source_ids": SOURCE, "target_ids": np.roll(SOURCE, 1, axis=1)}
    before = model.get_weights()
    history = model.fit(inputs, SOURCE, verbose=0).history
    assert np.isfinite(history["loss"][0])
    after = model.get_weights()
    assert all(np.all(np.isfinite(w)) for w in after)
    assert any(np.any(x != y) for x, y in zip(before, after, strict=True))
    assert {w.dtype for w in after} == {np.dtype("float32")}
    ids, scores = model.generate(SOURCE, BEAM, MAX_LENGTH)
    for i, (hypothesis, score) in enumerate(zip(ids[:, 0], scores[:, 0], strict=True)):
        expected, length = log_probability(model, SOURCE[i], hypothesis)
        expected /= ((5 + length) / 6) ** 0.6
        np.testing.assert_allclose(score, expected, 0.02, 0.02)


@pytest.mark.quick("float32", "mixed_bfloat16")
@pytest.mark.parametrize("dtype", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_a_cached_step_reads_nothing_of_a_source_that_is_all_masked(dtype):
    model = transformer(seed=3, dtype=dtype)
    nothing = np.zeros(SOURCE.shape, "int32")
    visible = np.zeros((4, 2, MAX_LENGTH, 2), bool)
    visible[:, [0, 1], 0, [0, 1]] = True
    token_ids = np.full((4, 2), model.start_id, "int32")
    steps = []
    for source in (SOURCE, SOURCE[::-1].copy()):
        context, cache = model.start(source, 2, MAX_LENGTH)
        context = [x._replace(mask=nothing > 0) for x in context]
        index = np.zeros(4, "int32")
        logits, _ = model.step(token_ids, context, cache, index, visible)
        steps.append(ops.convert_to_numpy(logits))
    np.testing.assert_array_equal(*steps)
    whole = model({"source_ids": nothing, "target_ids": token_ids[:, :1]})
    whole = ops.convert_to_numpy(whole)
    tolerance = {"float32": 1e-5, "mixed_float16": 0.02}.get(dtype, 0.15)
    np.testing.assert_allclose(steps[0], np.repeat(whole, 2, axis=1), 0, tolerance)


@pytest.mark.slow
def test_any_kind_of_integers_in_arrays_or_tensors_will_do():
    model = variant("post-norm")
    expected = model.generate(SOURCE, max_length=MAX_LENGTH).ids
    for source in (SOURCE.astype("int64"), ops.convert_to_tensor(SOURCE)):
        ids = model.generate(source, max_length=MAX_LENGTH).ids
        np.testing.assert_array_equal(ids, expected)


def test_an_empty_batch_gives_an_empty_result():
    hypotheses = variant("post-norm").generate(SOURCE[:0], max_length=MAX_LENGTH)
    assert hypotheses.ids.shape == (0, 1, MAX_LENGTH)
    assert hypotheses.scores.shape == (0, 1)


@pytest.mark.parametrize("shape", [(7,), (2, 3, 5), ()])
def test_ids_of_another_rank_are_refused_in_one_line(shape):
    with pytest.raises(
        ValueError, match=r"`source_ids` must have the shape \(batch, length\)"
    ) as caught:
        variant("post-norm").generate(np.ones(shape, "int32"))
    assert "\n" not in str(caught.value)


def test_ids_that_are_not_integers_are_refused_in_one_line():
    with pytest.raises(
        ValueError, match="`source_ids` must be integers.* of dtype float64"
    ) as caught:
        variant("post-norm").generate(SOURCE.astype("float64"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("outside", [-1, VOCABULARY, 1000])
def test_ids_of_another_vocabulary_are_refused(outside):
    ids = np.where(SOURCE == 5, outside, SOURCE)
    message = f"vocabulary of {VOCABULARY} tokens. Received: {outside}. Use the tok"
    with pytest.raises(ValueError, match=message):
        variant("post-norm").generate(ids)


@pytest.mark.slow  # as test_every_model.py shows
@pytest.mark.needs_tensorflow  # JAX trains on them without a word
@pytest.mark.parametrize("name", ["source_ids", "target_ids", "labels"])
def test_training_on_ids_of_another_vocabulary_says_so_in_the_last_line(name):
    model = transformer(0, num_layers=1)
    model.compile("sgd", TokenCrossentropy(), jit_compile=False)
    ids = dict.fromkeys(("source_ids", "target_ids", "labels"), SOURCE)
    ids[name] = np.where(SOURCE == 5, 1009, SOURCE)
    labels = ids.pop("labels")
    message = f"vocabulary of {VOCABULARY} tokens. Received: 1009, in the inputs or the"
    with pytest.raises(ValueError, match=message):
        model.fit(ids, labels, verbose=0)


def test_lists_are_refused_by_name():
    with pytest.raises(ValueError, match="`source_ids` must be"):
        variant("post-norm").generate(SOURCE.tolist())
