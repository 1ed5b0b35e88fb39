import functools
import logging

import keras
import numpy as np
import pytest
from keras import ops
from toy_decoding import END, PAD, ToyModel, step_by_step

from keras_transformer.decoding import (
    BannedIds,
    BeamSearch,
    ForcedPrefix,
    GreedySearch,
    MaximumLength,
    NoRepeatNgram,
    RepetitionPenalty,
    Sampling,
    runner,
)
from keras_transformer.decoding.runner import GenerationMixin, SearchRunner
from keras_transformer.kernels import target
from keras_transformer.kernels.compiled import CompiledFunction
from keras_transformer.layers import LearnedPositionalEncoding, cache
from keras_transformer.models import LanguageModel, Transformer

MAX_LENGTH = 13


class Toy(ToyModel, GenerationMixin):
    """A toy that generates; notes how many sentences take each step, and in what."""

    variables = ()
    compute_dtype = "float32"
    likely = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        GenerationMixin.__init__(self)
        self.rows = []
        self.in_xla = []

    def generate(self, inputs, search, max_length, batch_size=None):
        return self._runner(inputs, search, max_length, batch_size, 7)

    def likely_length(self, inputs):
        return self.likely

    def step(self, token_ids, *arguments):
        self.rows.append(token_ids.shape[0])
        self.in_xla.append(target.xla_compiles_for_cpu())
        return super().step(token_ids, *arguments)


@pytest.fixture
def eagerly():
    """Runs what is compiled step by step, so that steps can be counted."""
    with step_by_step():
        yield


@pytest.fixture
def without_xla_for_cpus(monkeypatch):
    """Batches continuously without XLA too, as TensorFlow does on a GPU."""
    monkeypatch.setattr(target, "xla_would_compile_for_cpu", lambda: False)


def toy(**settings):
    settings = {"seed": 2, "end_bias": -3.0, **settings}
    return Toy(vocabulary_size=7, max_length=MAX_LENGTH, **settings)


def never_ends():
    """Ends by no means but a `MaximumLength`."""
    return toy(seed=0, end_bias=-99.0)


def sources(*lengths):
    return np.where(np.arange(MAX_LENGTH) < np.array(lengths)[:, None], 5, PAD)


LIMIT = MaximumLength(1.0)
PREFIXES = ForcedPrefix([[3 + row % 4] * (row % 3) for row in range(17)])


def sentences_of_many_lengths():
    inputs = np.random.default_rng(5).integers(3, 13, size=(17, MAX_LENGTH))
    # Some end at every step, and neighbours at different ones.
    inputs *= sources(3, 4, 9, 1, 12, 7, 2, 8, 3, 13, 6, 4, 11, 6, 10, 7, 5) != PAD
    return inputs


def search_rows(model, search, inputs, tables, rows, batch_size):
    inputs, tables = keras.tree.map_structure(lambda x: x[rows], (inputs, tables))
    find = SearchRunner(model)
    return find(inputs, search.with_tables(tables), MAX_LENGTH, batch_size, 7)


SHUFFLED = np.random.default_rng(7).permutation(17)


@pytest.mark.quick(
    "GreedySearch(processors=(MaximumLength(ratio=1.0, extra=0),), end_ids=None)-()-all"
)
@pytest.mark.parametrize(
    ("rows", "batch_size"),
    [
        (np.arange(17), 1),
        (np.arange(17), 4),
        (SHUFFLED, 5),
        (SHUFFLED, 8),
        (SHUFFLED[:7], 2),
        ([11], 1),
    ],
    ids=["1", "4", "all", "8", "some", "one"],
)
@pytest.mark.parametrize(
    ("search", "growth"),
    [
        (GreedySearch([LIMIT]), ()),
        (GreedySearch([PREFIXES, LIMIT]), (5, 7)),
        (GreedySearch([NoRepeatNgram(2), RepetitionPenalty(1.3), LIMIT]), ()),
        (BeamSearch(3, num_hypotheses=2, processors=[LIMIT]), (2,)),
        (BeamSearch(2, length_penalty=1.5, processors=[PREFIXES, LIMIT]), ()),
        (Sampling(seed=5, num_hypotheses=3, processors=[LIMIT]), (6,)),
        (Sampling(top_k=3, processors=[LIMIT]), ()),
        (BeamSearch(3, processors=[LIMIT], end_ids=(2, 5)), (6,)),
    ],
    ids=str,
)
def test_a_sentence_gets_what_it_gets_alone_whatever_its_neighbours(
    search, growth, rows, batch_size, without_xla_for_cpus
):
    model, inputs = toy(growth=growth), sentences_of_many_lengths()
    tables = search.tables(
        model, inputs, MAX_LENGTH
    )  # with the same random numbers in every search
    find = functools.partial(search_rows, model, search, inputs, tables)
    expected_ids, expected_scores = find(np.arange(17), batch_size=17)
    assert np.isfinite(expected_scores[:, 0]).all()
    assert len(np.unique(np.sum(expected_ids[:, 0] != PAD, axis=-1))) >= 3
    ids, scores = find(rows, batch_size=batch_size)
    np.testing.assert_array_equal(ids, expected_ids[rows])
    np.testing.assert_allclose(scores, expected_scores[rows], 1e-5)


@pytest.mark.quick("search1")
@pytest.mark.parametrize(
    "search", [GreedySearch([LIMIT]), BeamSearch(2, processors=[LIMIT])]
)
def test_a_sentence_that_overflows_leaves_nothing_to_the_next(
    search, without_xla_for_cpus
):
    """The next one does not see what was written into the cache in its place."""
    positions = LearnedPositionalEncoding(6)
    model = Transformer(
        99, num_layers=2, hidden_dim=8, num_heads=2, positions=positions
    )
    [table] = [x for x in model.weights if "decoder/position" in x.path]
    is_last = np.arange(6)[:, None] == 3
    table.assign(np.where(is_last, np.inf, ops.convert_to_numpy(table)))
    lengths = np.array([6, 6, 2, 3, 2, 6, 3, 2, 2])
    source_ids = np.where(np.arange(6) < lengths[:, None], [4, 5, 6, 7, 5, 3], PAD)
    settings = {"search": search, "max_length": 6}
    _, expected = model.generate(source_ids[lengths < 4], **settings)
    assert np.isfinite(expected).all()
    with pytest.warns(UserWarning, match="model computes NaN, .* for 3 of 9"):
        _, scores = model.generate(source_ids, **settings, batch_size=2)
    np.testing.assert_allclose(scores[lengths < 4], expected, 1e-5)


@pytest.mark.quick("draws-2")
@pytest.mark.parametrize("likely", [1, 2, 8])
@pytest.mark.parametrize(
    "search",
    [
        BeamSearch(3, num_hypotheses=2, processors=[PREFIXES, LIMIT]),
        Sampling(seed=5, num_hypotheses=2, processors=[LIMIT]),
    ],
    ids=["beam", "draws"],
)
def test_sentences_that_are_longer_than_most_get_a_longer_cache(
    search, likely, without_xla_for_cpus
):
    model, inputs = toy(), sentences_of_many_lengths()
    tables = search.tables(model, inputs, MAX_LENGTH)
    expected = search_rows(toy(), search, inputs, tables, np.arange(17), 17)
    model.likely = likely
    for batch_size in (2, 5):
        found = search_rows(model, search, inputs, tables, np.arange(17), batch_size)
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_allclose(found.scores, expected.scores, 1e-5)


def test_only_longer_sentences_are_searched_again(eagerly, without_xla_for_cpus):
    model = never_ends()
    model.likely = 4
    settings = {"search": GreedySearch([LIMIT]), "max_length": MAX_LENGTH}
    lengths = [4, 4, 9, 4, 3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4]
    ids, _ = model.generate(sources(*lengths), **settings, batch_size=8)
    assert np.sum(ids != PAD, axis=-1)[:, 0].tolist() == lengths
    # The third is searched again, alone.
    assert model.rows[-9:] == [1] * 9
    assert model.rows[:-9] == [8] * len(model.rows[:-9])


def test_a_beam_that_was_cut_stays_as_it_is(without_xla_for_cpus):
    # The longest sources are cut, while their neighbours go on.
    search = BeamSearch(3, processors=[MaximumLength(1.5)])
    model, inputs = toy(), sentences_of_many_lengths()
    find = functools.partial(search_rows, model, search, inputs, {})
    expected = find(np.arange(17), batch_size=17)
    assert np.sum(~np.isin(expected.ids[:, 0, -1], [PAD, END])) >= 3
    found = find(np.arange(17), batch_size=4)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.scores, expected.scores, 1e-5)


def test_a_sentence_begins_as_soon_as_another_has_ended(eagerly, without_xla_for_cpus):
    model = never_ends()
    settings = {"search": GreedySearch([LIMIT]), "max_length": MAX_LENGTH}
    find = functools.partial(model.generate, **settings)
    # Beside the first sentence, the others follow each other in three places.
    lengths = [13, 6, 5, 3, 4, 7, 5, 2, 3, 1]
    ids, _ = find(sources(*lengths), batch_size=4)
    assert np.sum(ids != PAD, axis=-1)[:, 0].tolist() == lengths
    assert model.rows == [4] * 13
    model.rows.clear()
    find(sources(*lengths), batch_size=10)
    assert model.rows == [10] * 13


@pytest.mark.slow
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
def test_xla_compiles_by_itself_where_a_call_has_many_sentences(monkeypatch):
    monkeypatch.setattr(runner, "MIN_HYPOTHESES_FOR_XLA", 2 * 17)
    model, inputs = toy(), sentences_of_many_lengths()
    expected = BeamSearch(2)(toy(), inputs, MAX_LENGTH)
    for num_rows, in_xla in ((16, [False]), (17, [False, True]), (16, [False, True])):
        found = model.generate(inputs[:num_rows], BeamSearch(2), MAX_LENGTH)
        assert model.in_xla == in_xla
        np.testing.assert_array_equal(found.ids, expected.ids[:num_rows])
        np.testing.assert_allclose(found.scores, expected.scores[:num_rows], 1e-5)


@pytest.mark.needs_tensorflow
def test_xla_does_not_compile_half_precision_by_itself(monkeypatch):
    monkeypatch.setattr(runner, "MIN_HYPOTHESES_FOR_XLA", 1)
    model = toy()
    model.compute_dtype = "bfloat16"
    for num_rows in (1, 17):
        inputs = sentences_of_many_lengths()[:num_rows]
        model.generate(inputs, BeamSearch(2), MAX_LENGTH)
    assert (model.in_xla, model.rows) == ([False], [16]), "one program for all calls"


@pytest.mark.quick("True")
@pytest.mark.parametrize("jit_compile", [True, False, "auto"])
def test_a_saved_model_keeps_the_jit_compile_that_was_asked_for(jit_compile, tmp_path):
    sizes = {"num_layers": 1, "hidden_dim": 8, "num_heads": 2, "intermediate_dim": 8}
    model = Transformer(12, **sizes)
    model.compile(jit_compile=jit_compile)
    model.optimizer.build(model.trainable_variables)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    configs = [one.get_compile_config() for one in (model, loaded)]
    assert [config["jit_compile"] for config in configs] == [jit_compile] * 2


@pytest.mark.slow
def test_more_sentences_than_a_call_takes_are_searched_in_several(
    monkeypatch, without_xla_for_cpus
):
    monkeypatch.setattr(runner, "MAX_ROWS_PER_CALL", 6)
    search, inputs = BeamSearch(2, processors=[PREFIXES, LIMIT]), sources(*range(1, 14))
    tables = {"0": PREFIXES.table(17)[:13]}
    find = functools.partial(search_rows, toy(), search, inputs, tables)
    expected = find(np.arange(13), batch_size=13)
    found = find(np.arange(13), batch_size=3)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.scores, expected.scores, 1e-5)


@pytest.mark.parametrize("num_rows", [5, 4, 3])
def test_a_batch_is_never_larger_than_its_batch_size(
    num_rows, eagerly, without_xla_for_cpus
):
    model = toy()
    inputs = sentences_of_many_lengths()[:num_rows]
    model.generate(inputs, GreedySearch([LIMIT]), MAX_LENGTH, batch_size=5)
    assert set(model.rows) == {min(5, 1 << (num_rows - 1).bit_length())}


@pytest.mark.quick("search1")
@pytest.mark.parametrize("search", [BeamSearch(2), Sampling(seed=5, num_hypotheses=7)])
def test_the_rows_of_a_call_are_bounded_by_what_they_hold(
    search, monkeypatch, without_xla_for_cpus
):
    rows, model = [], toy()
    run = CompiledFunction.run

    def spy(self, inputs, *arguments):
        rows.append(len(inputs))
        return run(self, inputs, *arguments)

    monkeypatch.setattr(CompiledFunction, "run", spy)
    inputs = sentences_of_many_lengths()
    expected = model.generate(inputs, search, MAX_LENGTH, batch_size=17)
    monkeypatch.setattr(runner, "MAX_BYTES_PER_CALL", 4096)
    # A sentence holds its ids, and for each hypothesis 16 ids and as many numbers.
    num_numbers = 16 * (search.num_hypotheses if search.is_random else 0)
    held = inputs[:1].nbytes + 4 * (16 * search.num_hypotheses + num_numbers)
    found = model.generate(inputs, search, MAX_LENGTH, batch_size=2)
    assert rows[0] == 17
    assert set(rows[1:]) == {min(4096 // held, 4096)}
    np.testing.assert_array_equal(found.ids, expected.ids)
    monkeypatch.setattr(runner, "MAX_BYTES_PER_CALL", 1)
    model.generate(inputs, search, MAX_LENGTH, batch_size=2)
    assert rows[-1] == 2, "a batch is as large as it is asked to be"


@pytest.mark.needs_tensorflow
@pytest.mark.quick("beam-False")
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize(
    "search", [BeamSearch(2), Sampling(seed=5)], ids=["beam", "draws"]
)
def test_cores_share_the_sentences_of_a_call(search, jit_compile, monkeypatch):
    monkeypatch.setattr(runner, "MAX_BATCH_SIZE_WITHOUT_XLA", 3)
    model, inputs = toy(), sentences_of_many_lengths()
    expected = search(toy(), inputs, MAX_LENGTH)
    model.asked_jit_compile = jit_compile
    for cores in (1, 2, 5):
        monkeypatch.setattr(target, "num_cores", lambda cores=cores: cores)
        for batch_size in (3, 17):
            found = model.generate(inputs, search, MAX_LENGTH, batch_size)
            np.testing.assert_array_equal(found.ids, expected.ids)
            np.testing.assert_allclose(found.scores, expected.scores, 1e-5)


def test_few_programs_serve_batches_of_any_size(without_xla_for_cpus):
    if keras.backend.backend() == "torch":
        pytest.skip("PyTorch compiles nothing.")
    model, search = toy(), GreedySearch()
    for size, num_traces in ((5, 1), (8, 1), (7, 1), (3, 2), (4, 2), (9, 3), (16, 3)):
        model.generate(sources(*[4] * size), search, MAX_LENGTH)
        assert model.num_steps == num_traces
    for size in (9, 17, 31):
        model.generate(sources(*[4] * size), search, MAX_LENGTH, batch_size=8)
        assert model.num_steps == 4


@pytest.mark.needs_tensorflow
def test_without_xla_a_cpu_searches_one_small_batch_after_the_other():
    model = toy()
    inputs, search = sentences_of_many_lengths(), GreedySearch([LIMIT])
    expected = model.generate(inputs, search, MAX_LENGTH, batch_size=1)
    assert model.rows == [1]
    for size, rows in ((17, [16]), (7, [16]), (3, [16, 4]), (4, [16, 4])):
        found = model.generate(inputs[:size], search, MAX_LENGTH)
        assert model.rows == [1, *rows], "traced once for each size"
        np.testing.assert_array_equal(found.ids, expected.ids[:size])
        np.testing.assert_allclose(found.scores, expected.scores[:size], 1e-5)


@pytest.mark.parametrize("batch_size", [None, 3])
def test_a_batch_may_be_empty(batch_size):
    ids, scores = toy().generate(sources()[:0], BeamSearch(2), 5, batch_size)
    assert (ids.shape, ids.dtype) == ((0, 1, 5), "int32")
    assert (scores.shape, scores.dtype) == ((0, 1), "float32")


def test_a_batch_size_that_is_none_is_refused():
    with pytest.raises(ValueError, match="`batch_size` must be .* batch_size=0"):
        toy().generate(sources(3), GreedySearch(), 5, batch_size=0)


def test_draws_without_a_seed_go_on_from_that_of_keras():
    model = toy()
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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["transformer", "language model"])
def test_memory_and_cache_of_each_sentence_are_its_own(
    name, monkeypatch, without_xla_for_cpus
):
    model = real_models()[name]
    random = np.random.default_rng(3)
    for weight in model.weights:
        weight.assign(weight + random.normal(0, 0.4, weight.shape))
    inputs = random.integers(4, 17, size=(17, 7)).astype("int32")
    inputs[:, 3:] *= random.integers(2, size=(17, 1))
    search = BeamSearch(3, processors=[MaximumLength(1.5, 1)])
    assert model.first_cache_length(MAX_LENGTH, 3) == MAX_LENGTH
    expected = model.generate(inputs, search, MAX_LENGTH)
    assert len(np.unique(np.sum(expected.ids != 0, axis=-1))) > 1
    monkeypatch.setattr(cache, "MIN_ENTRIES", 8)
    assert model.first_cache_length(MAX_LENGTH, 3) == 8
    for batch_size in (5, 17):
        ids, scores = SearchRunner(model)(inputs, search, MAX_LENGTH, batch_size, 17)
        np.testing.assert_array_equal(ids, expected.ids)
        np.testing.assert_allclose(scores, expected.scores, 1e-5)


@pytest.mark.parametrize("name", ["transformer", "language model"])
def test_positions_that_end_too_early_are_found_before_the_first_step(name):
    make = {"transformer": Transformer, "language model": LanguageModel}[name]
    positions = LearnedPositionalEncoding(max_length=300)
    model = make(17, num_layers=1, hidden_dim=8, num_heads=2, positions=positions)
    with pytest.raises(ValueError, match="Positions end at `max_length`=300"):
        model.generate(np.array([[4, 3]]), max_length=301)


@pytest.mark.slow
@pytest.mark.needs_tensorflow
def test_searches_of_many_shapes_are_no_reason_to_warn():
    model = toy(growth=(1, 2, 3))
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    logger = logging.getLogger("tensorflow")
    logger.addHandler(handler)
    for length in range(1, 7):
        model.generate(sources(*[length] * 3), GreedySearch(), max_length=length)
    logger.removeHandler(handler)
    assert [record.getMessage() for record in records] == []


@pytest.mark.parametrize(
    "settings",
    [
        {"processors": [BannedIds([3, 7])]},
        {"processors": [ForcedPrefix([[3, -1], [7]])]},
        {"processors": [ForcedPrefix(np.array([[3], [7]]))]},
        {"end_ids": [2, 7]},
    ],
)
def test_ids_outside_the_vocabulary_are_refused(settings):
    with pytest.raises(ValueError, match="of 7 tokens. Received: 7"):
        toy().generate(sources(1, 2), GreedySearch(**settings), 5)


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
        search = BeamSearch(2, processors=[BannedIds([2]), ForcedPrefix(prefix)])
        found, expected = model.generate(inputs, search, 5), search(other, inputs, 5)
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_allclose(found.scores, expected.scores, 1e-5)
        traces.append(model.num_steps)
    assert model._runner._program.cache_info().misses == 1
    if keras.backend.backend() != "torch":  # which compiles nothing
        assert traces == [traces[0]] * 4
    with pytest.raises(ValueError, match="2 sequences for 3 sentences"):
        model.generate(inputs, GreedySearch([ForcedPrefix([[1], [3]])]), 5)


@pytest.mark.slow
def test_another_seed_is_an_input_and_not_compiled_anew():
    model, inputs = toy(), sentences_of_many_lengths()
    for seed in (3, 5, None, None):
        search = Sampling(top_k=4, seed=seed, num_hypotheses=2)
        found = model.generate(inputs, search, MAX_LENGTH)
        if seed is not None:
            expected = search(toy(), inputs, MAX_LENGTH)
            np.testing.assert_array_equal(found.ids, expected.ids)
    assert model._runner._program.cache_info().misses == 1


@pytest.mark.quick("search1-continuous")
@pytest.mark.parametrize("batch_size", [17, 5], ids=["one-batch", "continuous"])
@pytest.mark.parametrize("search", [GreedySearch(), BeamSearch(3), Sampling(seed=5)])
def test_another_limit_of_the_length_is_an_input_and_not_compiled_anew(
    search, batch_size, without_xla_for_cpus
):
    model, inputs = toy(), sentences_of_many_lengths()
    for length in (5, 8, 7):
        found = model.generate(inputs, search, length, batch_size)
        expected = search(toy(), inputs, length)
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_allclose(found.scores, expected.scores, 1e-5)
    assert model._runner._program.cache_info().misses == 1


def test_the_least_recent_programs_are_dropped(monkeypatch):
    monkeypatch.setattr(runner, "MAX_PROGRAMS", 2)
    model = toy()
    for length, misses in ((1, 1), (2, 2), (1, 2), (3, 3), (1, 3), (2, 4)):
        model.generate(sources(3), GreedySearch(), length)
        info = model._runner._program.cache_info()
        assert (info.misses, info.currsize) == (misses, min(misses, 2))


def test_programs_of_other_variables_are_dropped():
    model = toy()
    model.generate(sources(3), GreedySearch(), 5)
    model.variables = [keras.Variable(1.0)]
    for _ in range(2):
        model.generate(sources(3), GreedySearch(), 5)
        assert model._runner._program.cache_info().currsize == 1
        assert model._runner._program.cache_info().misses == 1  # counted anew


@pytest.mark.parametrize("search", [GreedySearch, functools.partial(BeamSearch, 2)])
def test_processors_that_contradict_each_other_are_told(search):
    model, inputs = Toy(vocabulary_size=7, max_length=4), np.ones((3, 2), "int32")
    forced = ForcedPrefix([[1], [4, 3], [1, END]])
    with pytest.warns(UserWarning, match=r"for 1 of 3 inputs, first for inputs\[1\]"):
        found = model.generate(inputs, search(processors=[BannedIds([3]), forced]), 4)
    assert np.isneginf(found.scores).ravel().tolist() == [False, True, False]
