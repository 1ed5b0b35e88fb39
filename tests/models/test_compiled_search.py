import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from toy_decoding import PAD, ToyModel

from keras_transformer.decoding import (
    BannedIds,
    BeamSearch,
    ForcedPrefix,
    GreedySearch,
    MaximumLength,
    Sampling,
)
from keras_transformer.models import LanguageModel, Transformer
from keras_transformer.models.compiled_search import CompiledSearch
from keras_transformer.models.generation import GenerationMixin

MAX_LENGTH = 13


class Toy(ToyModel, GenerationMixin):
    """A toy that generates, and counts the sentences of all of its steps."""

    compiled = False
    num_rows = 0

    def step(self, token_ids, *arguments):
        self.num_rows += token_ids.shape[0] or 0
        return super().step(token_ids, *arguments)


@pytest.fixture
def eagerly():
    """Runs what is compiled step by step, so that steps can be counted."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def never_ends():
    """Ends by no means but a `MaximumLength`."""
    return Toy(vocabulary_size=7, max_length=MAX_LENGTH, end_bias=-99.0)


def sources(*lengths):
    return np.where(np.arange(MAX_LENGTH) < np.array(lengths)[:, None], 5, PAD)


def in_parts_and_whole(model, search, inputs, max_length=MAX_LENGTH):
    """Searches twice with the same random numbers."""
    found = []
    tables = search.tables(len(inputs))
    for patience in (0.0, np.inf):
        keras.utils.set_random_seed(3)
        find = CompiledSearch(
            model,
            search.with_tables(dict.fromkeys(tables)),
            max_length,
            patience=patience,
        )
        found.append(find(inputs, tables))
    return found


LIMIT = MaximumLength(1.0)
PREFIXES = ForcedPrefix([[3 + row % 4] * (row % 3) for row in range(17)])


@pytest.mark.parametrize(
    "search",
    [
        GreedySearch([LIMIT]),
        GreedySearch([PREFIXES, LIMIT]),
        BeamSearch(3, num_hypotheses=2, processors=[LIMIT]),
        BeamSearch(2, length_penalty=1.5, processors=[PREFIXES, LIMIT]),
        Sampling(seed=5, num_hypotheses=3, processors=[LIMIT]),
        Sampling(top_k=3, processors=[LIMIT]),
    ],
    ids=str,
)
def test_sentences_that_go_on_by_themselves_find_what_they_find_together(search):
    model = Toy(vocabulary_size=7, max_length=MAX_LENGTH, seed=2, end_bias=-3.0)
    inputs = np.random.default_rng(5).integers(3, 13, size=(17, MAX_LENGTH))
    inputs *= sources(*[3, 4, 5] * 2, 13, *[5] * 5, 11, *[4] * 4) != PAD
    (ids, scores), (whole_ids, whole_scores) = in_parts_and_whole(model, search, inputs)
    assert model.num_steps > 2, "none goes on: a part and a whole are traced"
    assert np.isfinite(scores).all()
    np.testing.assert_array_equal(ids, whole_ids)
    np.testing.assert_allclose(scores, whole_scores, 1e-5)


@functools.cache
def real_models():
    sizes = {"num_layers": 1, "hidden_dim": 8, "num_heads": 2, "intermediate_dim": 11}
    return {
        "transformer": Transformer(17, **sizes, dtype="mixed_bfloat16"),
        "language model": LanguageModel(17, **sizes),
    }


@pytest.mark.parametrize("name", ["transformer", "language model"])
def test_memory_and_cache_go_on_as_they_were(name):
    model = real_models()[name]
    random = np.random.default_rng(3)
    for weight in model.weights:
        weight.assign(weight + random.normal(0, 0.4, weight.shape))
    inputs = random.integers(4, 17, size=(17, 7)).astype("int32")
    inputs[:, 3:] *= random.integers(2, size=(17, 1))
    search = BeamSearch(3, processors=[MaximumLength(1.5, 1)])
    (ids, scores), (whole_ids, whole_scores) = in_parts_and_whole(model, search, inputs)
    assert len(np.unique(np.sum(ids != 0, axis=-1))) > 1
    np.testing.assert_array_equal(ids, whole_ids)
    np.testing.assert_allclose(scores, whole_scores, 1e-5)


def test_a_sentence_that_has_ended_takes_no_more_steps(eagerly):
    model, search = never_ends(), GreedySearch([MaximumLength(1.0)])
    inputs = sources(*[2] * 9, 13, *[3] * 7)
    ids, _ = CompiledSearch(model, search, MAX_LENGTH, patience=0.0)(inputs, {})
    np.testing.assert_array_equal(
        np.sum(ids != PAD, axis=-1)[:, 0], np.sum(inputs != PAD, axis=1)
    )
    # An eighth of 17 are 2: the one that goes on, and one to fill up.
    assert model.num_rows == 17 * 3 + 2 * 10


def test_a_batch_stays_whole_until_enough_was_wasted(eagerly):
    model, search = never_ends(), GreedySearch([MaximumLength(1.0)])
    find = CompiledSearch(model, search, MAX_LENGTH, patience=2.0)
    alike, uneven = sources(*[13] * 17), sources(13, *[4] * 16)

    def rows_of_steps(inputs):
        before = model.num_rows
        find(inputs, {})
        return model.num_rows - before

    assert [rows_of_steps(alike) for _ in range(3)] == [17 * 13] * 3
    # Each of these wastes 9 of 13 steps, and 3 of them 2 batches.
    assert [rows_of_steps(uneven) for _ in range(3)] == [17 * 13] * 3
    assert rows_of_steps(uneven) == 17 * 4 + 2 * 9
    assert rows_of_steps(alike) == 17 * 13


@pytest.mark.parametrize("size", [0, 1, 7])
def test_a_small_batch_stays_whole(size, eagerly):
    model, search = never_ends(), GreedySearch([MaximumLength(1.0)])
    inputs = sources(13, *[1] * 6)[:size]
    ids, _ = CompiledSearch(model, search, MAX_LENGTH, patience=0.0)(inputs, {})
    assert ids.shape == (size, 1, MAX_LENGTH)
    assert model.num_rows == size * 13


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
    assert traces == [traces[0]] * 4
    with pytest.raises(ValueError, match="2 sequences for 3 sentences"):
        model.generate(inputs, GreedySearch([ForcedPrefix([[1], [3]])]), 5)
