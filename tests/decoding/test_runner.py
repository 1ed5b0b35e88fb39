import functools
import logging

import keras
import numpy as np
import pytest
from keras import ops
from toy_decoding import PAD, ToyModel, step_by_step

from keras_transformer.decoding import (
    BannedIds,
    BeamSearch,
    ForcedPrefix,
    GreedySearch,
    MaximumLength,
    Sampling,
    StopStrings,
    halves,
)
from keras_transformer.decoding.runner import SearchRunner
from keras_transformer.layers import LearnedPositionalEncoding, cache
from keras_transformer.models import LanguageModel, Transformer
from keras_transformer.models.generation import GenerationMixin

MAX_LENGTH = 13


class Toy(ToyModel, GenerationMixin):
    """A toy that generates; notes how many sentences take each step, and in what."""

    compiled = False

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        GenerationMixin.__init__(self)
        self.rows = []
        self.lengths = []

    def generate(self, inputs, search, max_length):
        return self.run_search(inputs, search, max_length)

    def step(self, token_ids, memory, cache, *arguments):
        self.rows.append(token_ids.shape[0])
        self.lengths.append(cache["entries"].shape[1])
        return super().step(token_ids, memory, cache, *arguments)


@pytest.fixture
def eagerly():
    """Runs what is compiled step by step, so that steps can be counted."""
    with step_by_step():
        yield


def never_ends(**settings):
    """Ends by no means but a `MaximumLength`."""
    return Toy(vocabulary_size=7, max_length=MAX_LENGTH, end_bias=-99.0, **settings)


def sources(*lengths):
    return np.where(np.arange(MAX_LENGTH) < np.array(lengths)[:, None], 5, PAD)


def in_stages_and_whole(model, search, inputs, max_length=MAX_LENGTH):
    """Searches twice with the same random numbers."""
    found = []
    tables = search.tables(len(inputs))
    for patience in (0.0, np.inf):
        keras.utils.set_random_seed(3)
        find = SearchRunner(
            model,
            search.with_tables(dict.fromkeys(tables)),
            max_length,
            patience=patience,
        )
        found.append(find(inputs, tables))
    return found


LIMIT = MaximumLength(1.0)
STOPS = StopStrings(
    ["bab", "aac"], dict(enumerate(["", "a", "", "b", "ab", "c", "ba"]))
)
PREFIXES = ForcedPrefix([[3 + row % 4] * (row % 3) for row in range(17)])


def sentences_of_many_lengths():
    inputs = np.random.default_rng(5).integers(3, 13, size=(17, MAX_LENGTH))
    inputs *= sources(3, 4, 9, *[3, 4] * 3, 13, 6, 4, 11, 6, 3, 7, 6) != PAD
    return inputs


@pytest.mark.parametrize(
    ("search", "growth"),
    [
        (GreedySearch([LIMIT]), ()),
        (GreedySearch([PREFIXES, LIMIT]), (5, 7)),
        (BeamSearch(3, num_hypotheses=2, processors=[LIMIT]), (2,)),
        (BeamSearch(2, length_penalty=1.5, processors=[PREFIXES, LIMIT]), ()),
        (Sampling(seed=5, num_hypotheses=3, processors=[LIMIT]), (6,)),
        (Sampling(top_k=3, processors=[LIMIT]), ()),
        (BeamSearch(3, processors=[LIMIT], end_ids=(2, 5)), (6,)),
        (BeamSearch(2, processors=[LIMIT], stop_strings=STOPS), (6,)),
    ],
    ids=str,
)
def test_sentences_that_go_on_by_themselves_find_what_they_find_together(
    search, growth
):
    settings = {"max_length": MAX_LENGTH, "seed": 2, "end_bias": -3.0}
    model = Toy(vocabulary_size=7, growth=growth, **settings)
    inputs = sentences_of_many_lengths()
    (ids, scores), (whole_ids, whole_scores) = in_stages_and_whole(
        model, search, inputs
    )
    assert set(model.rows) == {17, 8, 4, 2}, "each stage is traced"
    assert np.isfinite(scores).all()
    np.testing.assert_array_equal(ids, whole_ids)
    np.testing.assert_allclose(scores, whole_scores, 1e-5)


@pytest.mark.needs_tensorflow
@pytest.mark.parametrize("jit_compile", [True, False])
def test_where_xla_compiles_the_rows_of_one_sentence_are_parted(
    jit_compile, monkeypatch
):
    lengths, call = [], keras.layers.Dense.call

    def spy(self, inputs, **kwargs):
        lengths.append(inputs.shape[1])
        return call(self, inputs, **kwargs)

    model = Transformer(12, num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=8)
    model.compile(jit_compile=jit_compile)
    expected = GreedySearch()(model, ops.convert_to_tensor(sources(3)), 4)
    monkeypatch.setattr(keras.layers.Dense, "call", spy)
    found = model.generate(sources(3), max_length=4)
    # The source is read by the layers themselves, steps only if nothing is parted.
    assert set(lengths) == ({MAX_LENGTH} if jit_compile else {MAX_LENGTH, 1})
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.scores, expected.scores, 1e-5)


@pytest.mark.needs_tensorflow
def test_halves_of_a_batch_side_by_side_find_what_it_finds(monkeypatch):
    search = BeamSearch(2, length_penalty=1.5, processors=[PREFIXES, LIMIT])
    settings = {"max_length": MAX_LENGTH, "seed": 2, "end_bias": -3.0}
    model = Toy(vocabulary_size=7, growth=(2,), **settings)
    inputs, tables = sentences_of_many_lengths(), search.tables(17)
    search = search.with_tables(dict.fromkeys(tables))
    ids, scores = SearchRunner(model, search, MAX_LENGTH, True)(inputs, tables)
    assert set(model.rows) == {17}
    model.rows.clear()
    monkeypatch.setattr(halves, "MIN_HYPOTHESES", 17)
    find = SearchRunner(model, search, MAX_LENGTH, jit_compile=True, patience=0.0)
    found = find(inputs, tables)
    assert set(model.rows) == {9, 4, 2, 1}
    np.testing.assert_array_equal(found[0], ids)
    np.testing.assert_allclose(found[1], scores, 1e-5)


def test_draws_without_a_seed_go_on_from_that_of_keras():
    model = Toy(vocabulary_size=7, max_length=MAX_LENGTH, seed=2, end_bias=-3.0)
    draws = []
    for _ in range(2):
        keras.utils.set_random_seed(7)
        draws.append(
            [
                model.generate(sources(*[5] * 4), Sampling(), MAX_LENGTH).ids
                for _ in range(2)
            ]
        )
    np.testing.assert_array_equal(*draws)
    first, second = draws[0]
    assert (first != second).any()
    assert (first[0] != first[1]).any()


@functools.cache
def real_models():
    sizes = {"num_layers": 1, "hidden_dim": 8, "num_heads": 2, "intermediate_dim": 11}
    return {
        "transformer": Transformer(17, **sizes, dtype="mixed_bfloat16"),
        "language model": LanguageModel(17, **sizes),
    }


@pytest.mark.parametrize("name", ["transformer", "language model"])
def test_memory_and_cache_go_on_as_they_were(name, monkeypatch):
    model = real_models()[name]
    random = np.random.default_rng(3)
    for weight in model.weights:
        weight.assign(weight + random.normal(0, 0.4, weight.shape))
    inputs = random.integers(4, 17, size=(17, 7)).astype("int32")
    inputs[:, 3:] *= random.integers(2, size=(17, 1))
    search = BeamSearch(3, processors=[MaximumLength(1.5, 1)])
    assert model.cache_lengths(MAX_LENGTH, 3) == [MAX_LENGTH]
    expected = model.generate(inputs, search, MAX_LENGTH)
    monkeypatch.setattr(cache, "MIN_ENTRIES", 8)
    assert model.cache_lengths(MAX_LENGTH, 3) == [4, 8, MAX_LENGTH]
    (ids, scores), (whole_ids, whole_scores) = in_stages_and_whole(
        model, search, inputs
    )
    assert len(np.unique(np.sum(ids != 0, axis=-1))) > 1
    np.testing.assert_array_equal(ids, expected.ids)
    np.testing.assert_allclose(scores, expected.scores, 1e-5)
    np.testing.assert_array_equal(ids, whole_ids)
    np.testing.assert_allclose(scores, whole_scores, 1e-5)


@pytest.mark.parametrize(
    "lengths",
    [
        [*[2] * 9, *[13] * 8],  # a half
        [*[3] * 3, 13, *[2] * 7, 13, *[3] * 4, 13],  # a quarter
        [*[2] * 9, 13, *[3] * 7],  # a half, and an eighth at once
        [9, *[2] * 5, 7, 5, 5, 13, *[2] * 4, 7, 5, 5],  # one after the other
        [*range(1, 14), 1, 2, 3, 5],
        [13] * 17,
    ],
    ids=str,
)
def test_sentences_that_have_ended_take_no_more_steps(lengths, eagerly):
    model, search = never_ends(), GreedySearch([MaximumLength(1.0)])
    find = SearchRunner(model, search, MAX_LENGTH, patience=0.0)
    ids, _ = find(sources(*lengths), {})
    assert np.sum(ids != PAD, axis=-1)[:, 0].tolist() == lengths
    sizes = 17, 8, 4, 2  # all, half of them, a quarter, an eighth
    num_active = [sum(length > step for length in lengths) for step in range(13)]
    assert model.rows == [
        min(size for size in sizes if size >= count) for count in num_active if count
    ]


def test_sentences_that_go_on_do_so_with_a_longer_cache(eagerly):
    model, search = never_ends(growth=(3, 6)), GreedySearch([MaximumLength(1.0)])
    find = SearchRunner(model, search, MAX_LENGTH, patience=0.0)
    lengths = [*[2] * 9, *[4] * 4, 6, 7, 7, 5]
    ids, _ = find(sources(*lengths), {})
    assert np.sum(ids != PAD, axis=-1)[:, 0].tolist() == lengths
    assert model.lengths == [3, 3, 3, 6, 6, 6, 13]
    assert model.rows == [17, 17, 8, 8, 4, 4, 2]


@pytest.mark.parametrize("name", ["transformer", "language model"])
def test_positions_that_end_too_early_are_found_before_the_first_step(name):
    make = {"transformer": Transformer, "language model": LanguageModel}[name]
    positions = LearnedPositionalEncoding(max_length=300)
    model = make(17, num_layers=1, hidden_dim=8, num_heads=2, positions=positions)
    with pytest.raises(ValueError, match="Positions end at `max_length`=300"):
        model.generate(np.array([[4, 3]]), max_length=301)


def test_a_batch_stays_whole_until_enough_was_wasted(eagerly):
    model, search = never_ends(), GreedySearch([MaximumLength(1.0)])
    find = SearchRunner(model, search, MAX_LENGTH, patience=1.5)
    alike, one, half = ([4] * count + [13] * (17 - count) for count in (0, 16, 9))

    def rows_of_steps(lengths):
        model.rows.clear()
        find(sources(*lengths), {})
        return model.rows

    whole = [17] * 13
    assert [rows_of_steps(alike) for _ in range(3)] == [whole] * 3
    # An eighth would have saved 15 of 17 sentences 9 of 13 steps, less 4 of the other
    # two: 0.57 of a batch.
    assert [rows_of_steps(one) == whole for _ in range(4)] == [True] * 3 + [False]
    assert rows_of_steps(one) == [17] * 4 + [2] * 9
    # A half saves 9 of 17 sentences as many, less 4 of the other 8: 0.22 of a batch.
    assert [rows_of_steps(half) == whole for _ in range(8)] == [True] * 7 + [False]
    assert rows_of_steps(half) == [17] * 4 + [8] * 9
    assert rows_of_steps(one) == [17] * 4 + [2] * 9
    assert rows_of_steps(alike) == whole


@pytest.mark.parametrize("size", [0, 1, 7])
def test_a_small_batch_stays_whole(size, eagerly):
    model, search = never_ends(), GreedySearch([MaximumLength(1.0)])
    inputs = sources(13, *[1] * 6)[:size]
    ids, _ = SearchRunner(model, search, MAX_LENGTH, patience=0.0)(inputs, {})
    assert ids.shape == (size, 1, MAX_LENGTH)
    assert model.rows == [size] * (13 if size else 0)


def test_batches_of_another_size_go_on_by_themselves_too():
    model = Toy(vocabulary_size=7, max_length=MAX_LENGTH, seed=2, end_bias=-3.0)
    search = BeamSearch(2, processors=[PREFIXES, LIMIT])
    search = search.with_tables({"0": None})
    find = SearchRunner(model, search, MAX_LENGTH, patience=0.0)
    whole = SearchRunner(model, search, MAX_LENGTH, patience=np.inf)
    inputs = sources(3, 13, *[5, 2, 3, 9, 4, 3, 3, 2, 7, 6, 2, 3, 11, 3, 2])
    for size in (17, 8, 3, 11, 17):
        tables = {"0": PREFIXES.table(17)[-size:]}
        ids, scores = find(inputs[-size:], tables)
        expected_ids, expected_scores = whole(inputs[-size:], tables)
        np.testing.assert_array_equal(ids, expected_ids)
        np.testing.assert_allclose(scores, expected_scores, 1e-5)


@pytest.mark.needs_tensorflow
def test_searches_of_many_shapes_are_no_reason_to_warn():
    model = Toy(vocabulary_size=7, max_length=MAX_LENGTH, seed=2, growth=(1, 2, 3))
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    logger = logging.getLogger("tensorflow")
    logger.addHandler(handler)
    for length in range(1, 7):
        model.generate(sources(*[length] * 3), GreedySearch(), max_length=length)
    logger.removeHandler(handler)
    assert [record.getMessage() for record in records] == []


def test_another_prefix_is_an_input_and_not_compiled_anew():
    settings = {"vocabulary_size": 7, "max_length": 5, "seed": 3}
    model, other = Toy(**settings), Toy(**settings)
    inputs = np.array([[3, 4, 5], [6, 7, 0], [8, 0, 0]], "int32")
    traces = []
    for prefix in (
        [4, 3, 5],
        [[3], [4, 6, 5], []],
        np.array([1, 1, 6, 6]),
        ops.convert_to_tensor([[5, 1, 3], [5, 1, 4], [0, 0, 3]]),
    ):
        search = BeamSearch(2, processors=[BannedIds([4]), ForcedPrefix(prefix)])
        found, expected = model.generate(inputs, search, 5), search(other, inputs, 5)
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_allclose(found.scores, expected.scores, 1e-5)
        traces.append(model.num_steps)
    assert model._runner.cache_info().misses == 1
    if keras.backend.backend() != "torch":  # which compiles nothing
        assert traces == [traces[0]] * 4
    with pytest.raises(ValueError, match="2 sequences for 3 sentences"):
        model.generate(inputs, GreedySearch([ForcedPrefix([[1], [3]])]), 5)
