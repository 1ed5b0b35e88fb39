import numpy as np
import pytest
from keras import ops
from toy_decoding import (
    END,
    PAD,
    TableModel,
    ToyModel,
    assert_same,
    plain_greedy_search,
    step_by_step,
)

from keras_transformer.decoding import BannedIds, GreedySearch, Sampling

SOURCES = np.array([[3, 4, 5], [6, 7, 0], [8, 0, 0]], "int32")
EVERY_SEARCH = [GreedySearch, lambda **kwargs: Sampling(top_k=2, seed=3, **kwargs)]


@pytest.mark.parametrize(
    ("vocabulary_size", "end_bias", "seed"), [(5, 0, 4), (11, 1, 3), (1031, 2, 1)]
)
def test_the_likeliest_token_is_taken_at_every_step(vocabulary_size, end_bias, seed):
    model = ToyModel(vocabulary_size, max_length=11, seed=seed, end_bias=end_bias)
    expected = [[plain_greedy_search(model, source, 7)] for source in SOURCES]
    assert len({len(one[0][1]) for one in expected}) == 3  # sentences end apart
    assert_same(GreedySearch()(model, SOURCES, 7), expected)


def test_the_search_stops_when_every_sentence_has_ended():
    model = ToyModel(vocabulary_size=7, max_length=11, seed=5)
    with step_by_step():
        ids = ops.convert_to_numpy(GreedySearch()(model, SOURCES, 11).ids)
    longest = np.max(np.sum(ids != PAD, axis=-1))
    assert model.num_steps == longest < 11


def test_of_equally_likely_tokens_the_lowest_id_is_taken():
    logits = np.zeros((3, 7))
    logits[1, 4:] = 1.0
    logits[2, [END, 5]] = 2.0
    ids = GreedySearch()(TableModel(logits), SOURCES[:1], 3).ids
    assert np.array(ids[0, 0]).tolist() == [1, 4, END]


@pytest.mark.parametrize("search", EVERY_SEARCH)
def test_padding_is_never_produced_however_likely(search):
    model = ToyModel(vocabulary_size=5, max_length=5)
    model.bias[PAD] = 9.0
    ids, scores = map(ops.convert_to_numpy, search()(model, SOURCES, 5))
    ended = np.cumsum(ids == END, axis=-1) - (ids == END) > 0
    np.testing.assert_array_equal(ids == PAD, ended)
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("search", EVERY_SEARCH)
def test_a_hypothesis_without_any_allowed_token_stops_with_minus_infinity(search):
    logits = np.zeros((3, 5))
    logits[0, END] = -np.inf
    logits[1] = -np.inf
    logits[1, 4] = 0.0
    search = search(processors=[BannedIds([4])])
    ids, scores = search(TableModel(logits), SOURCES[:2], 3)
    assert np.array(scores).tolist() == [[-np.inf], [-np.inf]]
    assert (np.array(ids)[:, :, 0] != PAD).all()
    assert (np.array(ids)[:, :, 1:] == PAD).all()


@pytest.mark.parametrize("search", EVERY_SEARCH)
def test_an_empty_batch_gives_an_empty_result(search):
    model = ToyModel(vocabulary_size=5, max_length=3)
    ids, scores = search()(model, SOURCES[:0], 3)
    assert (ids.shape, scores.shape) == ((0, 1, 3), (0, 1))
