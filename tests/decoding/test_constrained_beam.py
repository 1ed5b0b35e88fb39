import collections
import json

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from toy_decoding import (
    END,
    PAD,
    ToyModel,
    all_sequences,
    assert_same,
    next_log_probabilities,
)

from keras_transformer.decoding import (
    BannedIds,
    BeamSearch,
    ConstrainedBeamSearch,
    MinimumLength,
)

SOURCES = np.array([[3, 4, 5], [6, 7, 0], [8, 0, 0]], "int32")
LENGTH_PENALTY = 0.6


def occurrences(tokens, phrase, continuation_ids=(), followed=False):
    """Returns the starts of a phrase that neither overlap nor continue.

    With `followed`, only those that another token follows.
    """
    starts, first = [], 0
    while first + len(phrase) + followed <= len(tokens):
        end = first + len(phrase)
        is_continued = end < len(tokens) and tokens[end] in continuation_ids
        if tuple(tokens[first:end]) == phrase and not is_continued:
            starts.append(first)
            first = end
        else:
            first += 1
    return starts


def contains(tokens, phrases, continuation_ids=()):
    body = [token for token in tokens if token not in (PAD, END)]
    return all(
        len(occurrences(body, phrase, continuation_ids)) >= count
        for phrase, count in collections.Counter(map(tuple, phrases)).items()
    )


def needed(tokens, phrases, continuation_ids=()):
    """Returns how many tokens are missing, if one phrase follows the other."""
    missing, begun = 0, [0]
    for phrase, count in collections.Counter(map(tuple, phrases)).items():
        starts = occurrences(tokens, phrase, continuation_ids, followed=True)[:count]
        if len(starts) < count:
            missing += len(phrase) * (count - len(starts))
            rest = tokens[starts[-1] + len(phrase) :] if starts else tokens
            lengths = range(1, min(len(phrase), len(rest)) + 1)
            begun += [n for n in lengths if tuple(rest[-n:]) == phrase[:n]]
    return missing - max(begun)


def is_allowed(tokens, max_length, *required):
    prefixes = [tokens[:n] for n in range(len(tokens) + (tokens[-1] != END))]
    return contains(tokens, required[0], *required[1:]) and all(
        needed(prefix, *required) <= max_length - len(prefix) for prefix in prefixes
    )


def ranked(model, source, max_length, *required):
    """Returns all sequences with the phrases, `(score, tokens)`, best first."""
    found = []
    for tokens in all_sequences(model.vocabulary_size, max_length):
        if is_allowed(tokens, max_length, *required):
            score = sum(
                next_log_probabilities(model, source, tokens[:n])[token]
                for n, token in enumerate(tokens)
            )
            found.append((score / ((5 + len(tokens)) / 6) ** LENGTH_PENALTY, tokens))
    return sorted(found, reverse=True)


CASES = {
    "one": [(3,)],
    "long": [(3, 4)],
    "repeated": [(4,), (4,)],
    "overlapping": [(3, 4), (4, 1)],
    "beginning alike": [(3, 4), (3, 1)],
    "one in the other": [(3, 4), (3,)],
    "breaking off": [(3, 3, 4)],
    "overlapping itself": [(3, 3), (3, 3)],
}


@pytest.mark.parametrize("continuation_ids", [(), (4,)], ids=["free", "words"])
@pytest.mark.parametrize("phrases", CASES.values(), ids=CASES)
def test_a_beam_as_wide_as_the_space_returns_what_enumeration_returns(
    phrases, continuation_ids
):
    model = ToyModel(5, 5, seed=11, end_bias=-1)
    width = 400
    expected = [ranked(model, x, 5, phrases, continuation_ids) for x in SOURCES]
    assert expected[0]
    search = ConstrainedBeamSearch(
        width,
        [phrases] * 3,
        num_hypotheses=17,
        continuation_ids=continuation_ids,
    )
    assert_same(search(model, SOURCES, 5), expected)


phrases = st.lists(st.lists(st.sampled_from([1, 3, 4, 5, 6]), min_size=1, max_size=3))


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(phrases.map(lambda x: x[:3]), min_size=3, max_size=3),
    st.integers(1, 5),
    st.integers(0, 99),
    st.sampled_from([0, 5]),
    st.booleans(),
)
def test_every_hypothesis_contains_its_phrases_at_any_width(
    required, width, seed, slack, is_end_likely
):
    tokens = max(sum(map(len, phrases)) for phrases in required)
    max_length = max(1, tokens + slack)
    model = ToyModel(7, 14, seed, end_bias=3.0 if is_end_likely else -9.0)
    search = ConstrainedBeamSearch(width, required, num_hypotheses=width)
    found = search(model, SOURCES, max_length)
    ids, scores = map(np.array, found)
    assert (scores[:, 0] > -np.inf).all()
    for row, row_scores, phrases in zip(ids, scores, required, strict=True):
        for tokens, score in zip(row, row_scores, strict=True):
            assert score == -np.inf or contains(tokens, phrases)


@pytest.mark.parametrize("width", [1, 2, 5])
@pytest.mark.parametrize("required", [None, [[], [], []]], ids=["none", "empty"])
def test_without_phrases_it_is_a_beam_search(width, required):
    model = ToyModel(7, 7, seed=3, end_bias=0.5)
    settings = {"num_hypotheses": width, "processors": [MinimumLength(2)]}
    expected = BeamSearch(width, **settings)(model, SOURCES, 7)
    found = ConstrainedBeamSearch(width, required, **settings)(model, SOURCES, 7)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.scores, expected.scores)


def test_a_sentence_gets_beside_others_what_it_gets_alone():
    model = ToyModel(7, 9, seed=2, end_bias=1.0)
    required = [[(3, 4), (6,)], [], [(5, 5, 3)]]
    settings = {"num_hypotheses": 2}
    together = ConstrainedBeamSearch(3, required, **settings)(model, SOURCES, 9)
    for row, source in enumerate(SOURCES):
        search = ConstrainedBeamSearch(3, [required[row]], **settings)
        alone = search(model, source[None, source != PAD], 9)
        np.testing.assert_array_equal(alone.ids[0], together.ids[row])
        np.testing.assert_allclose(alone.scores[0], together.scores[row], atol=1e-5)


def test_its_settings_make_it_anew():
    search = ConstrainedBeamSearch(3, [[(3, 4)], []], continuation_ids=[4])
    assert json.loads(json.dumps(search.get_config())) == search.get_config()
    assert ConstrainedBeamSearch.from_config(search.get_config()) == search
    assert search.replace(beam_width=5).required == search.required
