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
    ends_with,
    plain_beam_search,
    plain_greedy_search,
    ranked,
)

from keras_transformer.decoding import (
    BeamSearch,
    GreedySearch,
    MaximumLength,
    MinimumLength,
    Sampling,
)

SOURCES = np.array([[3, 4, 5], [6, 7, 0], [8, 0, 0]], "int32")
END_IDS = END, 4, 5


def toy(vocabulary_size=7, max_length=5, seed=3):
    return ToyModel(vocabulary_size, max_length, seed=seed)


@pytest.mark.parametrize("end_ids", [4, (4, 6), END_IDS])
@pytest.mark.parametrize("seed", range(3))
def test_greedy_search_ends_with_whichever_end_token_comes_first(end_ids, seed):
    model, ends = toy(seed=seed), ends_with(*np.atleast_1d(end_ids))
    expected = [[plain_greedy_search(model, one, 5, (), ends)] for one in SOURCES]
    assert_same(GreedySearch(end_ids=end_ids)(model, SOURCES, 5), expected)


@pytest.mark.quick("0-2-4", "0.6-5-end_ids1", "0.6-2-end_ids2", "-1-1-end_ids2")
@pytest.mark.parametrize("end_ids", [4, (4, 6), END_IDS])
@pytest.mark.parametrize("width", [1, 2, 5])
@pytest.mark.parametrize("length_penalty", [0, 0.6, -1])
def test_a_beam_returns_what_a_plain_one_returns(width, end_ids, length_penalty):
    model, ends = toy(), ends_with(*np.atleast_1d(end_ids))
    search = BeamSearch(width, length_penalty, (width + 1) // 2, end_ids=end_ids)
    expected = [
        plain_beam_search(model, source, 5, width, length_penalty, (), ends)
        for source in SOURCES
    ]
    assert_same(search(model, SOURCES, 5), expected)


def test_a_beam_as_wide_as_the_space_returns_what_enumeration_returns():
    model, ends = toy(5, 3), ends_with(END, 3)
    expected = [ranked(model, source, 3, 0.6, (), ends) for source in SOURCES]
    search = BeamSearch(len(expected[0]), num_hypotheses=7, end_ids=(END, 3))
    assert_same(search(model, SOURCES, 3), expected)


def test_every_place_of_a_beam_lives_on_though_all_end_tokens_are_likelier():
    logits = np.full((2, 6), -np.inf)
    logits[0, [3, END, 4, 5, 1]] = np.log([0.3, 0.2, 0.2, 0.2, 0.1])
    logits[1, END] = 0
    # With this penalty, two tokens of probability 0.1 beat one of 0.2.
    search = BeamSearch(2, length_penalty=3, num_hypotheses=2, end_ids=END_IDS)
    ids, scores = search(TableModel(logits), SOURCES[:1], 2)
    assert np.array(ids[0]).tolist() == [[3, END], [1, END]]
    np.testing.assert_allclose(scores[0], np.log([0.3, 0.1]) / (7 / 6) ** 3, rtol=1e-4)


def test_what_is_drawn_ends_with_whichever_end_token_comes_first():
    search = Sampling(seed=3, num_hypotheses=31, end_ids=END_IDS)
    ids = ops.convert_to_numpy(search(toy(), SOURCES, 5).ids)
    is_end = np.isin(ids, END_IDS)
    is_past_end = np.cumsum(is_end, axis=-1) - is_end > 0
    np.testing.assert_array_equal(ids == PAD, is_past_end)
    assert set(END_IDS) <= set(ids.flatten().tolist())


@pytest.mark.parametrize("make", [GreedySearch, lambda **kw: BeamSearch(3, **kw)])
def test_limits_of_length_hold_for_every_end_token(make):
    def lengths(*processors):
        search = make(processors=processors, end_ids=END_IDS)
        ids = ops.convert_to_numpy(search(toy(), SOURCES, 5).ids)
        last = np.sum(ids != PAD, axis=-1) - 1
        last_ids = np.take_along_axis(ids, last[..., None], axis=-1)
        assert np.isin(last_ids[last < 4], END_IDS).all()
        return last + 1

    assert lengths().min() < 3
    assert lengths(MinimumLength(3)).min() >= 3
    limits = np.maximum(1, np.sum(SOURCES != PAD, axis=1) - 1)
    assert (lengths(MaximumLength(1.0, -1)) <= limits[:, None]).all()


def test_end_tokens_are_any_number_of_ids_in_any_order():
    searches = GreedySearch(end_ids=3), GreedySearch(end_ids=[5, 3, 5])
    for search in searches:
        config = json.loads(json.dumps(keras.saving.serialize_keras_object(search)))
        assert keras.saving.deserialize_keras_object(config) == search
    assert searches[0] != searches[1]
    assert searches[0] == GreedySearch(end_ids=np.array([3]))
    assert searches[1] == GreedySearch(end_ids=(3, 5))


def test_a_config_of_a_search_without_endings_is_read():
    config = {"beam_width": 3, "processors": []}
    assert BeamSearch.from_config(config) == BeamSearch(3)
    older = {**config, "end_ids": None, "stop_strings": None}
    assert BeamSearch.from_config(older) == BeamSearch(3)


@pytest.mark.parametrize("end_ids", [(), -1, 2.5, "3", [3, None]])
def test_what_are_no_ids_end_nothing(end_ids):
    with pytest.raises(ValueError, match="`end_ids` must be one id .* or several"):
        GreedySearch(end_ids=end_ids)
