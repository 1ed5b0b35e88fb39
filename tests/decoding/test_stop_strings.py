import itertools
import json

import hypothesis
import hypothesis.strategies as st
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
    ends_or_contains,
    plain_beam_search,
    plain_greedy_search,
    ranked,
)

from keras_transformer.decoding import BeamSearch, GreedySearch, Sampling, StopStrings

SOURCES = np.array([[3, 4, 5], [6, 7, 0], [8, 0, 0]], "int32")
TEXTS = ["", "a", "", "b", "ab", "ba", "aab"]
STOPS = [["aa"], ["b"], ["abba", "bb"], ["aba", "baabb"]]


def stop_strings(strings, texts=TEXTS):
    return StopStrings(strings, dict(enumerate(texts)))


def is_complete_after(stops, ids):
    """Tells after each id whether the text so far has a stop string."""
    states, complete = stops.first_states((1,)), []
    for token_id in ids:
        states = stops.read(states, ops.convert_to_tensor([token_id], dtype="int32"))
        complete.append(bool(ops.convert_to_numpy(stops.is_complete(states))[0]))
    return complete


some_text = st.text("ab é", max_size=4)


@hypothesis.given(
    st.lists(some_text, min_size=1, max_size=7),
    st.lists(some_text.filter(len), min_size=1, max_size=3),
    st.lists(st.integers(0, 8), max_size=9),
)
@hypothesis.example(["ab", "ba"], ["abab"], [0, 1])
@hypothesis.example(["x###y"], ["###"], [0])
@hypothesis.example([" ", " a"], [" a"], [0, 1, 1])
@hypothesis.settings(max_examples=60)
def test_a_state_tells_whether_the_text_so_far_has_a_stop_string(texts, strings, ids):
    texts = [*texts, *["z"] * (9 - len(texts))]  # beyond every stop string
    text, expected = "", []
    for token_id in ids:
        # As SentencePiece: no space begins a text.
        token = texts[token_id] if text else texts[token_id].removeprefix(" ")
        text += token
        expected.append(any(stop in text for stop in strings))
    assert is_complete_after(stop_strings(strings, texts), ids) == expected


def test_a_stop_string_spans_tokens_and_begins_and_ends_inside_of_them():
    stops = stop_strings("the end", ["in t", "he", " en", "d?", " end"])
    assert is_complete_after(stops, [0, 1, 2, 3]) == [False, False, False, True]
    assert is_complete_after(stops, [0, 1, 4]) == [False, False, True]
    assert not any(is_complete_after(stops, [1, 2, 3, 0, 2, 3, 0, 1, 1, 4]))


def test_bytes_of_one_character_are_tokens_too():
    texts = [bytes([one]).decode(errors="surrogateescape") for one in "é".encode()]
    assert is_complete_after(stop_strings("é", texts), [1, 0, 1]) == [0, 0, 1]


@pytest.mark.parametrize("strings", STOPS, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_greedy_search_ends_where_its_text_has_a_stop_string(strings, seed):
    model, ends = ToyModel(7, 7, seed, end_bias=-1.0), ends_or_contains(TEXTS, strings)
    expected = [[plain_greedy_search(model, one, 7, (), ends)] for one in SOURCES]
    search = GreedySearch(stop_strings=stop_strings(strings))
    assert_same(search(model, SOURCES, 7), expected)


@pytest.mark.parametrize("strings", STOPS, ids=str)
@pytest.mark.parametrize(("width", "end_ids"), [(1, None), (3, None), (4, (END, 5))])
def test_a_beam_returns_what_a_plain_one_returns(width, end_ids, strings):
    model = ToyModel(7, 6, seed=3, end_bias=-1.0)
    has_stop = ends_or_contains(TEXTS, strings)
    expected = [
        plain_beam_search(
            model,
            source,
            *(6, width, 0.6, ()),
            lambda tokens: tokens[-1] in (end_ids or ()) or has_stop(tokens),
            num_extensions=width * (2 + len(end_ids or [END])),
        )
        for source in SOURCES
    ]
    search = BeamSearch(
        width,
        num_hypotheses=(width + 1) // 2,
        end_ids=end_ids,
        stop_strings=stop_strings(strings),
    )
    assert_same(search(model, SOURCES, 6), expected)


@pytest.mark.parametrize("strings", STOPS, ids=str)
def test_a_beam_as_wide_as_the_space_returns_what_enumeration_returns(strings):
    model, ends = ToyModel(5, 4, seed=11), ends_or_contains(TEXTS, strings)
    expected = [ranked(model, source, 4, 0.6, (), ends) for source in SOURCES]
    search = BeamSearch(
        len(expected[0]), num_hypotheses=7, stop_strings=stop_strings(strings)
    )
    assert_same(search(model, SOURCES, 4), expected)


def test_what_is_drawn_ends_where_its_text_has_a_stop_string():
    model = ToyModel(7, 9, seed=3, end_bias=-1.0)
    search = Sampling(seed=3, num_hypotheses=31, stop_strings=stop_strings(["abb"]))
    ends = ends_or_contains(TEXTS, ["abb"])
    lengths = []
    for ids in ops.convert_to_numpy(search(model, SOURCES, 9).ids).reshape(-1, 9):
        tokens = ids[ids != PAD]
        lengths.append(len(tokens))
        assert [ends(tokens[:n]) for n in range(1, len(tokens))] == [False] * (
            len(tokens) - 1
        )
        assert len(tokens) == 9 or ends(tokens)
    assert len(set(lengths)) > 3


@pytest.mark.parametrize(
    "make",
    [
        GreedySearch,
        lambda **settings: BeamSearch(3, num_hypotheses=2, **settings),
        lambda **settings: Sampling(top_p=0.9, seed=5, num_hypotheses=2, **settings),
    ],
)
def test_a_string_that_never_occurs_changes_nothing(make):
    model = ToyModel(vocabulary_size=31, max_length=7, end_bias=1.0)
    texts = ["".join(two) for two in itertools.product("abcdef", repeat=2)][:31]
    search = make(stop_strings=stop_strings(["ab?", "zzz"], texts))
    found, expected = search(model, SOURCES, 7), make()(model, SOURCES, 7)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.scores, expected.scores)


def test_ids_beyond_all_texts_are_part_of_no_stop_string():
    logits = np.zeros((4, 11))
    logits[[0, 1, 2, 3], [1, 9, 1, 1]] = 9.0
    search = GreedySearch(stop_strings=stop_strings(["aa"]))
    ids = search(TableModel(logits), SOURCES[:1], 4).ids
    assert np.array(ids[0, 0]).tolist() == [1, 9, 1, 1]


def test_stop_strings_come_back_from_the_config_of_a_search():
    stops = stop_strings(["b?", "é\n"], ["", "ab", "x", "\udcc3", "ü", "\udca9\n"])
    assert stops.tokens == {0: "", 1: "ab", 3: "\udcc3", 5: "\udca9\n"}
    search = BeamSearch(3, stop_strings=stops)
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(search)))
    back = keras.saving.deserialize_keras_object(config)
    assert (back, hash(back), str(back)) == (search, hash(search), str(search))
    assert back.stop_strings == stops
    assert is_complete_after(back.stop_strings, [3, 5]) == [False, True]
    assert back != BeamSearch(3)
    assert back != BeamSearch(3, stop_strings=stop_strings(["b?"], ["", "ab"]))


@pytest.mark.parametrize("strings", ["", [], ["a", ""], [3]])
def test_what_are_no_strings_stop_nothing(strings):
    with pytest.raises(ValueError, match="`strings` must be one string or several"):
        stop_strings(strings)


@pytest.mark.parametrize(
    "search", [GreedySearch, Sampling, lambda **x: BeamSearch(2, **x)]
)
def test_a_search_takes_no_plain_text_to_stop_at(search):
    with pytest.raises(ValueError, match=r"must be `StopStrings`.* stop_strings='ab'"):
        search(stop_strings="ab")
