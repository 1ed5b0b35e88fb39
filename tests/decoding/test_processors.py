import types

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis.extra.numpy import arrays
from keras import ops
from toy_decoding import (
    END,
    PAD,
    TableModel,
    ToyModel,
    assert_same,
    next_log_probabilities,
    plain_beam_search,
    plain_greedy_search,
    ranked,
)

from keras_transformer.decoding import (
    BannedIds,
    BeamSearch,
    ForcedPrefix,
    GreedySearch,
    MaximumLength,
    MinimumLength,
    NoRepeatNgram,
    RepetitionPenalty,
    Sampling,
)

SOURCES = np.array([[3, 4, 5, 7, 9], [6, 7, 8, 0, 0], [8, 0, 0, 0, 0]], "int32")
VOCABULARY_SIZE = 7

# Each in plain Python: a function of logits, the tokens so far and the source.


def plain_banned(ids):
    def process(logits, tokens, source):
        logits[list(ids)] = -np.inf
        return logits

    return process


def plain_minimum(length):
    def process(logits, tokens, source):
        if len(tokens) + 1 < length:
            logits[END] = -np.inf
        return logits

    return process


def plain_maximum(ratio, extra):
    def process(logits, tokens, source):
        limit = max(1, int(np.float32(ratio) * np.sum(source != PAD)) + extra)
        if len(tokens) + 1 >= limit:
            logits[np.arange(len(logits)) != END] = -np.inf
        return logits

    return process


def plain_no_repeat(size):
    def process(logits, tokens, source):
        grams = {tuple(tokens[t : t + size]) for t in range(len(tokens) - size + 1)}
        for token in range(len(logits)):
            if len(tokens) + 1 >= size:
                newest = (*tokens[len(tokens) - size + 1 :], token)
                if newest in grams:
                    logits[token] = -np.inf
        return logits

    return process


def plain_penalty(penalty):
    def process(logits, tokens, source):
        for token in set(tokens):
            positive = logits[token] > 0
            logits[token] *= 1 / penalty if positive else penalty
        return logits

    return process


def plain_prefix(prefixes):
    def process(logits, tokens, source):
        row = [tuple(one) for one in SOURCES.tolist()].index(tuple(source))
        prefix = prefixes[row] if isinstance(prefixes[0], list) else prefixes
        if len(tokens) < len(prefix) and prefix[len(tokens)] > PAD:
            forced = prefix[len(tokens)]
            logits[np.arange(len(logits)) != forced] = -np.inf
        return logits

    return process


ids_so_far = arrays("int32", (3, 2, 5), elements=st.integers(1, VOCABULARY_SIZE - 1))
all_logits = arrays(
    "float32", (3, 2, VOCABULARY_SIZE), elements=st.integers(-20, 20).map(float)
)
prefixes = st.lists(st.integers(-1, VOCABULARY_SIZE - 1), min_size=1, max_size=4)
controls = st.one_of(
    st.lists(st.integers(0, VOCABULARY_SIZE - 1), min_size=1).map(
        lambda ids: (BannedIds(ids), plain_banned(ids))
    ),
    st.integers(1, 6).map(lambda n: (MinimumLength(n), plain_minimum(n))),
    st.tuples(st.sampled_from([0.0, 0.5, 0.7, 1.0, 1.1]), st.integers(-2, 3)).map(
        lambda one: (MaximumLength(*one), plain_maximum(*one))
    ),
    st.integers(1, 6).map(lambda n: (NoRepeatNgram(n), plain_no_repeat(n))),
    st.sampled_from([1.0, 1.2, 3.0]).map(
        lambda one: (RepetitionPenalty(one), plain_penalty(one))
    ),
    st.one_of(prefixes, st.lists(prefixes, min_size=3, max_size=3)).map(
        lambda ids: (ForcedPrefix(ids), plain_prefix(ids))
    ),
)


@hypothesis.given(
    controls,
    ids_so_far,
    all_logits,
    st.lists(st.integers(0, 4), min_size=3, max_size=3),
)
@hypothesis.settings(max_examples=60)
def test_a_processor_does_what_plain_python_does(control, ids, logits, index):
    processor, plain = control
    index = np.array(index, "int32")[:, None, None]
    ids = np.where(np.arange(5) < index, ids, PAD)
    process = processor.bind(TableModel(logits[0]), SOURCES, (END,))
    processed = process(*map(ops.convert_to_tensor, (logits, ids, index)))
    processed = ops.convert_to_numpy(processed)
    assert processed.dtype == "float32"
    for sentence in range(3):
        for row in range(2):
            np.testing.assert_allclose(
                processed[sentence, row],
                plain(
                    logits[sentence, row].copy(),
                    ids[sentence, row, : index[sentence, 0, 0]].tolist(),
                    SOURCES[sentence],
                ),
                rtol=1e-6,
            )


def for_source(chosen, source):
    """The plain processors of pairs, as functions of logits and tokens."""
    return [
        lambda logits, tokens, plain=plain: plain(logits, tokens, source)
        for _, plain in chosen
    ]


several_controls = st.lists(controls, min_size=1, max_size=3)


@hypothesis.given(several_controls)
@hypothesis.settings(max_examples=6)
def test_any_controls_together_hold_in_greedy_and_beam_search(chosen):
    model = ToyModel(VOCABULARY_SIZE, max_length=5, seed=3, end_bias=0.5)
    processors = [processor for processor, _ in chosen]
    greedy = GreedySearch(processors)(model, SOURCES, 5)
    beam = BeamSearch(3, num_hypotheses=2, processors=processors)(model, SOURCES, 5)
    expected_greedy, expected_beam = [], []
    for source in SOURCES:
        plain = for_source(chosen, source)
        expected_greedy.append([plain_greedy_search(model, source, 5, plain)])
        expected_beam.append(plain_beam_search(model, source, 5, 3, 0.6, plain))
    assert_same(greedy, expected_greedy)
    assert_same(beam, expected_beam)


@pytest.mark.slow
@hypothesis.given(several_controls, st.sampled_from([None, 2]), st.integers(0, 99))
@hypothesis.settings(max_examples=25)
def test_any_controls_together_hold_in_what_is_drawn(chosen, top_k, seed):
    model = ToyModel(VOCABULARY_SIZE, max_length=5, seed=3, end_bias=0.5)
    processors = [processor for processor, _ in chosen]
    search = Sampling(top_k=top_k, seed=seed, num_hypotheses=3, processors=processors)
    found = map(ops.convert_to_numpy, search(model, SOURCES, 5))
    for source, rows, scores in zip(SOURCES, *found, strict=True):
        plain = for_source(chosen, source)
        for ids, score in zip(rows, scores, strict=True):
            tokens = ids[ids != PAD].tolist()
            exact = 0.0
            for length, token in enumerate(tokens):
                gains = next_log_probabilities(model, source, tokens[:length], plain)
                assert token in np.argsort(-gains)[:top_k]
                exact += gains[token]
            if len(tokens) < 5 and END not in tokens:  # it came to a dead end
                gains = next_log_probabilities(model, source, tokens, plain)
                exact += np.max(gains)
                assert exact == -np.inf
            assert exact > -np.inf or len(tokens) < 5
            np.testing.assert_allclose(score, exact, atol=1e-5)


@pytest.mark.parametrize(
    "chosen",
    [
        [(BannedIds([1, 4]), plain_banned([1, 4]))],
        [(MinimumLength(3), plain_minimum(3))],
        [(MaximumLength(0.5, 1), plain_maximum(0.5, 1))],
        [(NoRepeatNgram(1), plain_no_repeat(1))],
        [(NoRepeatNgram(2), plain_no_repeat(2))],
        [(RepetitionPenalty(1.5), plain_penalty(1.5))],
        [(ForcedPrefix([[3], [1, 4], [0, 3]]), plain_prefix([[3], [1, 4], [0, 3]]))],
        [
            (MinimumLength(2), plain_minimum(2)),
            (MaximumLength(1.0, 0), plain_maximum(1.0, 0)),
            (RepetitionPenalty(1.2), plain_penalty(1.2)),
            (NoRepeatNgram(2), plain_no_repeat(2)),
        ],
    ],
    ids=lambda chosen: "+".join(type(one).__name__ for one, _ in chosen),
)
def test_a_wide_beam_finds_the_best_of_what_is_allowed(chosen):
    model = ToyModel(vocabulary_size=5, max_length=4, seed=13, end_bias=0.5)
    expected = [
        ranked(model, source, 4, 0.6, for_source(chosen, source)) for source in SOURCES
    ]
    search = BeamSearch(121, num_hypotheses=7, processors=[one for one, _ in chosen])
    assert_same(search(model, SOURCES, 4), expected)


@pytest.mark.parametrize(
    "search",
    [GreedySearch, lambda **settings: BeamSearch(1, length_penalty=0, **settings)],
)
def test_what_is_forbidden_leaves_the_scores_of_the_rest(search):
    logits = np.log(np.full((1, 5), [0.1, 0.1, 0.2, 0.5, 0.1]))
    ids, scores = search(processors=[BannedIds([3])])(
        TableModel(logits), SOURCES[:1], 1
    )
    assert np.array(ids).tolist() == [[[END]]]
    np.testing.assert_allclose(scores, np.log([[0.2]]), rtol=1e-5)


@pytest.mark.parametrize(
    "search",
    [
        GreedySearch,
        lambda **settings: Sampling(seed=1, num_hypotheses=2, **settings),
        lambda **settings: Sampling(seed=1, top_k=2, top_p=0.5, **settings),
        lambda **settings: BeamSearch(3, num_hypotheses=2, **settings),
    ],
)
def test_controls_that_contradict_each_other_give_minus_infinity(search):
    model = ToyModel(vocabulary_size=5, max_length=4)
    search = search(processors=[BannedIds([3]), ForcedPrefix([[1], [4, 3], [1, END]])])
    ids, scores = map(ops.convert_to_numpy, search(model, SOURCES, 4))
    assert (scores == -np.inf).all(axis=-1).tolist() == [False, True, False]
    assert not np.isnan(scores).any()
    assert (ids[1, :, 1:] == PAD).all()


def test_a_prefix_may_be_a_tensor_with_one_row_for_each_sentence():
    model = ToyModel(vocabulary_size=5, max_length=4, seed=5)
    rows = [[3, 4], [1, 0], [4, 4]]
    as_list = BeamSearch(3, processors=[ForcedPrefix(rows)])
    as_tensor = BeamSearch(
        3, processors=[ForcedPrefix(ops.convert_to_tensor(np.array(rows)))]
    )
    expected, given = as_list(model, SOURCES, 4), as_tensor(model, SOURCES, 4)
    np.testing.assert_array_equal(expected.ids, given.ids)
    assert as_list == as_tensor
    assert as_tensor.processors[0].num_sequences == 3
    assert np.array(given.ids)[:, 0, 0].tolist() == [3, 1, 4]


@pytest.mark.parametrize(
    ("ratio", "length", "limit"),
    [(1.05, 60, 63), (0.55, 20, 11), (1.999, 1, 1), (1e9, 10, None)],
)
def test_a_limit_is_the_product_rounded_down(ratio, length, limit):
    model = types.SimpleNamespace(pad_id=0)
    process = MaximumLength(ratio).bind(model, np.ones((1, length), "int32"), (3,))

    def ends(index):
        logits = ops.convert_to_numpy(process(ops.zeros((1, 1, 5)), None, index))
        return logits[0, 0, 4] < -1e6

    last = 10_000 if limit is None else limit - 1
    assert not ends(last - 1)
    assert ends(last) == (limit is not None)


@pytest.mark.parametrize(
    ("processor", "settings", "message"),
    [
        (BannedIds, {"ids": []}, r"`ids` must be a sequence of one or.* ids=\[\]\."),
        (BannedIds, {"ids": [3, -1]}, r"Received: ids=\[3, -1\]\."),
        (BannedIds, {"ids": 5}, r"Received: ids=5\."),
        (BannedIds, {"ids": [1.7]}, r"Received: ids=\[1\.7\]\."),
        (BannedIds, {"ids": "12"}, r"Received: ids='12'\."),
        (MinimumLength, {"length": 0}, r"`length` must be .* length=0\."),
        (MaximumLength, {"ratio": -1}, r"`ratio` must be .* ratio=-1\."),
        (MaximumLength, {"ratio": "2"}, r"`ratio` must be .* ratio='2'\."),
        (MaximumLength, {"ratio": 1, "extra": 0.5}, r"`extra` must be .* extra=0\.5\."),
        (NoRepeatNgram, {"size": 0}, r"`size` must be .* size=0\."),
        (RepetitionPenalty, {"penalty": 0.9}, r"`penalty` must be .* penalty=0\.9\."),
        (RepetitionPenalty, {"penalty": None}, r"penalty=None\."),
        (GreedySearch, {"processors": BannedIds([1])}, r"a list of .*=BannedIds\(ids="),
        (GreedySearch, {"processors": [5]}, r"a list of .* processors=\(5,\)\."),
        (ForcedPrefix, {"ids": []}, r"`ids` must be a sequence .* ids=\[\]\."),
        (ForcedPrefix, {"ids": [1.5]}, r"Received: ids=\[1\.5\]\."),
        (ForcedPrefix, {"ids": [[1], [None]]}, r"`ids` must be a sequence"),
        (ForcedPrefix, {"ids": [[4], 3]}, r"`ids` must be .* ids=\[\[4\], 3\]\."),
        (ForcedPrefix, {"ids": 3}, r"`ids` must be a sequence .* ids=3\."),
        (ForcedPrefix, {"ids": ops.ones((2, 3))}, r"an integer tensor of shape"),
    ],
)
def test_arguments_out_of_range_are_refused(processor, settings, message):
    with pytest.raises(ValueError, match=message):
        processor(**settings)


@pytest.mark.parametrize(
    "ids", [[[7, 5], [11]], [np.array([7, 5]), [np.int64(11)]], ([7, 5], range(11, 12))]
)
def test_a_prefix_may_be_any_sequences_of_integers(ids):
    assert ForcedPrefix(ids) == ForcedPrefix([[7, 5], [11]])
    assert ForcedPrefix(ids[0]) == ForcedPrefix(np.array([7, 5]))


@pytest.mark.needs_tensorflow
def test_a_ragged_prefix_leaves_short_rows_free_whatever_the_padding():
    import tensorflow as tf

    class PaddedWithFour(ToyModel):
        pad_id = 4

    rows = [[3, 1], [1], []]
    ragged = ForcedPrefix(tf.ragged.constant(rows))
    assert ragged == ForcedPrefix(rows)
    model = PaddedWithFour(vocabulary_size=5, max_length=3, seed=5)
    ids = np.array(GreedySearch([ragged])(model, SOURCES, 3).ids)[:, 0]
    free = np.array(GreedySearch()(model, SOURCES, 3).ids)[:, 0]
    assert ids[0, :2].tolist() == [3, 1]
    assert ids[1, 0] == 1
    assert ids[1, 1] != 0
    assert ids[2].tolist() == free[2].tolist()


def test_a_prefix_for_another_number_of_sentences_is_refused():
    search = GreedySearch(processors=[ForcedPrefix([[1], [3]])])
    with pytest.raises(ValueError, match="2 sequences for 3 sentences"):
        search(ToyModel(5, 3), SOURCES, 3)


def test_a_maximum_length_without_source_ids_is_refused():
    search = GreedySearch(processors=[MaximumLength(1.5)])
    with pytest.raises(ValueError, match=r"Received: a shape of \(3, 5, 2\)\."):
        search(ToyModel(5, 3), ops.ones((3, 5, 2), dtype="int32"), 3)
