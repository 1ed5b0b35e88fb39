import itertools
import json

import keras
import numpy as np
import pytest
from keras import ops
from toy_decoding import (
    END,
    PAD,
    TableModel,
    ToyModel,
    assert_same,
    padded,
    plain_beam_search,
    ranked,
    step_by_step,
)

from keras_transformer.decoding import (
    BeamSearch,
    GreedySearch,
    PowerLengthPenalty,
    WuLengthPenalty,
)

SOURCES = np.array([[3, 4, 5], [6, 7, 0], [8, 0, 0]], "int32")
PENALTIES = [0, 0.6, 1, 2, -1]


@pytest.mark.quick("4-4--1-2", "5-3-1-1", "5-3-1-2")
@pytest.mark.parametrize("length_penalty", PENALTIES)
@pytest.mark.parametrize(
    ("vocabulary_size", "max_length", "end_bias"), [(3, 5, 0), (4, 4, -1), (5, 3, 1)]
)
def test_a_beam_as_wide_as_the_space_returns_what_enumeration_returns(
    vocabulary_size, max_length, end_bias, length_penalty
):
    model = ToyModel(vocabulary_size, max_length, seed=11, end_bias=end_bias)
    expected = [ranked(model, source, max_length, length_penalty) for source in SOURCES]
    width = len(expected[0])
    search = BeamSearch(width, length_penalty, num_hypotheses=min(width, 7))
    assert_same(search(model, SOURCES, max_length), expected)


@pytest.mark.quick("2-0.6", "2-1", "2-2")
@pytest.mark.parametrize("length_penalty", PENALTIES)
@pytest.mark.parametrize("width", [1, 2, 3, 5])
def test_a_narrow_beam_returns_what_a_plain_one_returns(width, length_penalty):
    model = ToyModel(vocabulary_size=7, max_length=5, seed=3, end_bias=0.5)
    search = BeamSearch(width, length_penalty, num_hypotheses=(width + 1) // 2)
    expected = [
        plain_beam_search(model, source, 5, width, length_penalty) for source in SOURCES
    ]
    assert_same(search(model, SOURCES, 5), expected)


@pytest.mark.quick("0-0.6", "1-2", "2-0")
@pytest.mark.parametrize("length_penalty", PENALTIES)
@pytest.mark.parametrize("seed", range(3))
def test_a_beam_of_one_returns_what_greedy_search_returns(seed, length_penalty):
    model = ToyModel(vocabulary_size=11, max_length=7, seed=seed, end_bias=1.0)
    beam = BeamSearch(1, length_penalty)(model, SOURCES, 7)
    ids, scores = map(ops.convert_to_numpy, GreedySearch()(model, SOURCES, 7))
    np.testing.assert_array_equal(beam.ids, ids)
    lengths = np.sum(ids != PAD, axis=-1)
    divisors = ((5 + lengths) / 6) ** length_penalty
    np.testing.assert_allclose(beam.scores, scores / divisors, rtol=1e-5)


def test_the_hypothesis_that_others_lose_after_its_end_wins():
    # Ends at once with probability 0.6; goes on, and ends then, with 0.4.
    first, second = np.full(5, -30.0), np.full(5, -30.0)
    first[[END, 3]] = np.log([0.6, 0.4])
    second[END] = 0.0
    search = BeamSearch(3, length_penalty=0, num_hypotheses=2)
    ids, scores = search(TableModel([first, second, second]), SOURCES[:1], 3)
    assert np.array(ids[0]).tolist() == [[END, PAD, PAD], [3, END, PAD]]
    np.testing.assert_allclose(scores[0], np.log([0.6, 0.4]), rtol=1e-5)


@pytest.mark.quick("0", "2", "-1")
@pytest.mark.parametrize("length_penalty", PENALTIES)
def test_a_sentence_gets_in_a_batch_what_it_gets_alone(length_penalty):
    model = ToyModel(vocabulary_size=7, max_length=5, seed=2, end_bias=1.0)
    search = BeamSearch(3, length_penalty, num_hypotheses=2)
    together = search(model, SOURCES, 5)
    for row, source in enumerate(SOURCES):
        alone = search(model, source[None, source != PAD], 5)
        np.testing.assert_array_equal(alone.ids[0], together.ids[row])
        np.testing.assert_allclose(alone.scores[0], together.scores[row], atol=1e-5)


def ends_or_goes_on(max_length):
    """Ends with probability 0.7, else goes on with the token 3."""
    logits = np.full((max_length, 5), -np.inf)
    logits[:, [END, 3]] = np.log([0.7, 0.3])
    return TableModel(logits)


def test_the_search_stops_when_no_live_hypothesis_can_win():
    model = ends_or_goes_on(11)
    # What lives after two steps holds 0.09.
    with step_by_step():
        best = BeamSearch(3, length_penalty=0, num_hypotheses=2)(model, SOURCES, 11)
    assert model.num_steps == 2
    np.testing.assert_allclose(best.scores[0], np.log([0.7, 0.21]), rtol=1e-5)


def test_the_search_stops_when_all_that_finished_is_ahead_of_what_lives():
    model = ends_or_goes_on(11)
    # With a penalty so large a live hypothesis could win yet, much longer.
    with step_by_step():
        best = BeamSearch(3, length_penalty=3)(model, SOURCES, 11)
    assert model.num_steps == 3
    assert np.array(best.ids[0, 0]).tolist() == padded((END,), 11)


def test_the_search_goes_on_while_one_sentence_needs_it():
    model = ToyModel(vocabulary_size=5, max_length=7, seed=5)
    steps = {}
    for rows in ([0], [1], [2], [0, 1, 2]):
        model.num_steps = 0
        with step_by_step():
            BeamSearch(2)(model, SOURCES[rows], 7)
        steps[len(rows), rows[0]] = model.num_steps
    assert steps[3, 0] == max(steps[1, 0], steps[1, 1], steps[1, 2])


def test_of_equal_scores_the_one_that_ended_earlier_comes_first():
    logits = np.full((3, 5), -np.inf)
    logits[0, [END, 3]] = logits[1, [END, 4]] = logits[2, [END, 3]] = 0
    logits[1, 4] = -np.inf
    search = BeamSearch(5, length_penalty=0, num_hypotheses=2)
    ids, scores = search(TableModel(logits), SOURCES[:1], 3)
    assert scores[0, 0] == scores[0, 1]
    assert np.array(ids[0]).tolist() == [padded((END,), 3), padded((3, END), 3)]


def traced(function, jit_compile):
    import tensorflow as tf

    return tf.function(function, autograph=False, jit_compile=jit_compile)


RUNS = {
    "eager": lambda function: function,
    "graph": lambda function: traced(function, jit_compile=False),
    "xla": lambda function: traced(function, jit_compile=True),
}


@pytest.mark.parametrize(
    "run",
    [
        "eager",
        pytest.param("graph", marks=pytest.mark.needs_tensorflow),
        pytest.param("xla", marks=pytest.mark.needs_tensorflow),
    ],
)
def test_equal_scores_of_a_step_are_ordered_by_end_then_parent_then_token(run):
    # All tokens are equally likely, so that sequences of a length are.
    bodies = [list(itertools.product((1, 3, 4), repeat=n)) for n in range(4)]
    expected = [(*body, END) for n in range(3) for body in bodies[n]] + bodies[3]
    search = BeamSearch(len(expected), num_hypotheses=len(expected))
    model = TableModel(np.zeros((3, 5)))
    ids, _ = RUNS[run](lambda: search(model, SOURCES[:1], 3))()
    assert np.array(ids[0]).tolist() == [padded(one, 3) for one in expected]


def test_missing_hypotheses_are_padding_with_a_score_of_minus_infinity():
    model = ToyModel(vocabulary_size=3, max_length=2)
    expected = [ranked(model, source, 2, 0.6) for source in SOURCES]
    assert [len(ranking) for ranking in expected] == [3, 3, 3]
    assert_same(BeamSearch(5, num_hypotheses=5)(model, SOURCES, 2), expected)


def test_padding_is_never_produced_however_likely():
    model = ToyModel(vocabulary_size=5, max_length=5)
    model.bias[PAD] = 9.0
    found = BeamSearch(4, num_hypotheses=4)(model, SOURCES, 5)
    ids = ops.convert_to_numpy(found.ids)
    ended = np.cumsum(ids == END, axis=-1) - (ids == END) > 0
    np.testing.assert_array_equal(ids == PAD, ended)
    expected = [plain_beam_search(model, source, 5, 4, 0.6) for source in SOURCES]
    assert_same(found, expected)


@pytest.fixture(params=["float16", "bfloat16"])
def half_precision(request):
    """Everything that is not asked to be float32 is half precise."""
    before = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx(request.param)
    keras.config.set_dtype_policy(request.param)
    yield request.param
    keras.config.set_floatx(before[0])
    keras.config.set_dtype_policy(before[1])


def test_scores_accumulate_in_float32_whatever_the_policy(half_precision):
    # Numbers that either kind of half precision holds, but not their sums.
    logits = np.random.default_rng(7).integers(-40, 40, size=(17, 5)) / 16
    logits[:, END] = -96.0
    search = BeamSearch(2, length_penalty=0)
    scores = search(TableModel(logits, dtype=half_precision), SOURCES, 17).scores
    assert keras.backend.standardize_dtype(scores.dtype) == "float32"
    normalizers = np.log(np.sum(np.exp(logits), axis=-1))
    logits[:, PAD] = -np.inf
    exact = np.sum(logits.max(axis=-1) - normalizers)
    np.testing.assert_allclose(scores[:, 0], [exact] * 3, rtol=1e-6)


def test_an_empty_batch_gives_an_empty_result():
    ids, scores = BeamSearch(3, num_hypotheses=2)(
        ToyModel(vocabulary_size=5, max_length=3), SOURCES[:0], 3
    )
    assert (ids.shape, scores.shape) == ((0, 2, 3), (0, 2))


def test_the_first_token_follows_the_start_token_which_is_not_returned():
    model = ToyModel(vocabulary_size=5, max_length=1)
    first = [np.argmax(model.logits_after(source, ())[1:]) + 1 for source in SOURCES]
    ids = BeamSearch(1)(model, SOURCES, 1).ids
    assert ops.convert_to_numpy(ids)[:, 0, 0].tolist() == first


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beam_width": 0}, r"`beam_width` must be .* Received: beam_width=0\."),
        ({"beam_width": 2.0}, r"Received: beam_width=2\.0\."),
        (
            {"beam_width": 3, "num_hypotheses": 5},
            r"at most `beam_width`.*=5, ",
        ),
        ({"beam_width": 3, "num_hypotheses": 0}, r"`num_hypotheses` must .*=0\."),
        ({"beam_width": 3, "length_penalty": np.inf}, r"length_penalty=inf\."),
        ({"beam_width": 3, "length_penalty": "0.6"}, r"length_penalty='0\.6'\."),
    ],
)
def test_arguments_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        BeamSearch(**settings)


@pytest.mark.parametrize("max_length", [0, -1, 2.5, None])
def test_a_length_out_of_range_is_refused(max_length):
    with pytest.raises(ValueError, match=f"Received: max_length={max_length}"):
        BeamSearch(2)(ToyModel(5, 3), SOURCES, max_length)


def test_length_penalties_divide_by_their_formulas():
    lengths = np.arange(1, 8)
    for penalty, expected in (
        (WuLengthPenalty(0.7), ((5 + lengths) / 6) ** 0.7),
        (PowerLengthPenalty(), lengths),
        (PowerLengthPenalty(-0.5), lengths**-0.5),
    ):
        np.testing.assert_allclose(penalty.divisors(7), expected, 1e-6)
    with pytest.raises(ValueError, match="`exponent` .* finite number.*=nan"):
        PowerLengthPenalty(float("nan"))


def test_an_exponent_is_that_of_wu():
    model = ToyModel(5, 4, seed=3)
    exponent, penalty = (
        BeamSearch(3, x, num_hypotheses=3)(model, SOURCES, 4)
        for x in (0.7, WuLengthPenalty(0.7))
    )
    np.testing.assert_array_equal(exponent.scores, penalty.scores)


def test_another_length_penalty_ranks_by_its_own_scores():
    """Unlike Wu et al.'s, whose divisors of these lengths are closer together."""
    model = ToyModel(4, 4, seed=11, end_bias=-1)
    width = len(ranked(model, SOURCES[0], 4, 0))
    search = BeamSearch(width, PowerLengthPenalty(1.0), num_hypotheses=7)
    found = search(model, SOURCES, 4)
    plain = BeamSearch(width, 0, num_hypotheses=width)(model, SOURCES, 4)
    lengths = np.sum(np.array(plain.ids) != PAD, axis=-1)
    expected = np.sort(np.array(plain.scores) / lengths, axis=1)[:, ::-1][:, :7]
    np.testing.assert_allclose(found.scores, expected, 1e-5)
    twin = BeamSearch.from_config(search.get_config())
    assert twin == search
    assert json.loads(json.dumps(search.get_config())) == search.get_config()
