import collections
import json

import keras
import numpy as np
import pytest
from toy_decoding import (
    END,
    PAD,
    TableModel,
    ToyModel,
    all_sequences,
    assert_same,
    next_log_probabilities,
)

from keras_transformer.decoding import BeamSearch, ConstrainedBeamSearch, MinimumLength
from keras_transformer.decoding.runner import GenerationMixin
from keras_transformer.kernels import target

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
    "of two tokens": [(3, 4)],
    "repeated": [(4,), (4,)],
    "overlapping": [(3, 4), (4, 1)],
    "beginning alike": [(3, 4), (3, 1)],
    "one in the other": [(3, 4), (3,)],
    "breaking off": [(3, 3, 4)],
    "overlapping itself": [(3, 3), (3, 3)],
}


@pytest.mark.quick("words")
@pytest.mark.parametrize("continuation_ids", [(), (4,)], ids=["free", "words"])
def test_a_beam_as_wide_as_the_space_returns_what_enumeration_returns(continuation_ids):
    model = ToyModel(5, 5, seed=11, end_bias=-1)
    sources = np.arange(3, 3 + len(CASES))[:, None]
    expected = [
        ranked(model, source, 5, phrases, continuation_ids)
        for source, phrases in zip(sources, CASES.values(), strict=True)
    ]
    assert all(expected)
    search = ConstrainedBeamSearch(
        400,  # more than there are prefixes
        list(CASES.values()),
        num_hypotheses=17,
        continuation_ids=continuation_ids,
    )
    assert_same(search(model, sources, 5), expected)


class Toy(ToyModel, GenerationMixin):
    variables = ()
    compute_dtype = "float32"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        GenerationMixin.__init__(self)

    def generate(self, inputs, search, max_length, batch_size=None):
        return self._runner(inputs, search, max_length, batch_size, 7)


def drawn_phrases(random, num_left):
    """Returns phrases that may be equal, overlap or begin alike. None begins with 6."""
    phrases = []
    while num_left and len(phrases) < 4:
        length = random.integers(1, min(3, num_left) + 1)
        phrase = random.choice(
            [1, 3, 4, 5, 6], size=length, p=[0.1, 0.3, 0.3, 0.2, 0.1]
        )
        phrases.append((min(phrase[0], 5), *phrase[1:]))
        num_left -= length
    return [tuple(map(int, phrase)) for phrase in phrases]


@pytest.mark.quick("3--9.0")
@pytest.mark.parametrize("end_bias", [3.0, -9.0])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 5])
def test_every_hypothesis_contains_its_phrases(width, end_bias):
    """Even where they fill the whole length."""
    random = np.random.default_rng(width)
    model = Toy(7, 12, seed=width, end_bias=end_bias)
    for _ in range(40):
        required = [drawn_phrases(random, min(n, 9)) for n in range(16)]
        sources = random.integers(3, 13, size=(16, 3))
        search = ConstrainedBeamSearch(
            width, required, num_hypotheses=width, continuation_ids=[6]
        )
        ids, scores = model.generate(sources, search, 9)
        assert (scores[:, 0] > -np.inf).all()
        for row, row_scores, phrases in zip(ids, scores, required, strict=True):
            found = row[row_scores > -np.inf]
            assert len(np.unique(found, axis=0)) == len(found)
            assert all(contains(tokens, phrases, [6]) for tokens in found)
    assert model._runner._program.cache_info().misses == 1


@pytest.mark.quick("3-None")
@pytest.mark.parametrize(
    ("width", "required"), [(1, [[], [], []]), (3, None), (5, [[], [], []])]
)
def test_without_phrases_it_is_a_beam_search(width, required):
    model = ToyModel(7, 7, seed=3, end_bias=0.5)
    settings = {"num_hypotheses": width, "processors": [MinimumLength(2)]}
    expected = BeamSearch(width, **settings)(model, SOURCES, 7)
    found = ConstrainedBeamSearch(width, required, **settings)(model, SOURCES, 7)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.scores, expected.scores)


@pytest.mark.quick("4")
@pytest.mark.parametrize("batch_size", [1, 4])
def test_a_sentence_gets_beside_others_what_it_gets_alone(batch_size, monkeypatch):
    # One takes the place of another that has ended, without XLA too.
    monkeypatch.setattr(target, "xla_would_compile_for_cpu", lambda: False)
    random = np.random.default_rng(7)
    model = Toy(7, 9, seed=2, end_bias=1.0)
    sources = random.integers(3, 13, size=(11, 3))
    required = [drawn_phrases(random, n % 7) for n in range(11)]
    search = ConstrainedBeamSearch(3, required, num_hypotheses=2)
    together = search(model, sources, 9)
    found = model.generate(sources, search, 9, batch_size)
    np.testing.assert_array_equal(found.ids, together.ids)
    np.testing.assert_allclose(found.scores, together.scores, atol=1e-5)


@pytest.mark.parametrize(("width", "cost"), [(1, 3.0), (2, 20.0)])
def test_a_phrase_stands_where_it_costs_least(width, cost):
    """In a narrow beam too, if it has a place for those that have the phrase."""
    logits = np.full((6, 7), -25.0)
    logits[range(6), [4, 5, 6, 5, 4, END]] = 0.0
    logits[:5, 1] = -4.0
    logits[2, 3] = -cost
    search = ConstrainedBeamSearch(width, [[(3,)]])
    ids, _ = search(TableModel(logits), SOURCES[:1], 6)
    assert np.array(ids[0, 0]).tolist() == [4, 5, 3, 5, 4, END]


def test_its_settings_make_it_anew():
    search = ConstrainedBeamSearch(3, [[(3, 4)], []], continuation_ids=[4])
    assert json.loads(json.dumps(search.get_config())) == search.get_config()
    assert ConstrainedBeamSearch.from_config(search.get_config()) == search
    assert search.replace(beam_width=5).required == search.required
    table = keras.ops.convert_to_tensor([[[3, 4], [-1, -1]], [[-1, -1], [-1, -1]]])
    of_table = ConstrainedBeamSearch(3, table, continuation_ids=[4])
    assert of_table.get_config()["required"] == [[[3, 4], []], [[], []]]


@pytest.mark.parametrize(
    ("required", "message"),
    [
        ([[3]], r"`required` must be .* Received: required=\[\[3\]\]"),
        ([[[-1]]], r"`required` must be .* Received: required=\[\[\[-1\]\]\]"),
        ([[[3]]], "list of phrases for each sentence. Received: 1 lists for 3"),
        ([[], [[7]], []], "of 7 tokens. Received: 7"),
        ([[], [[3], [4, PAD]], []], "ends a sequence.* Received: 0 in required.1."),
        ([[], [], [[3, END]]], "ends a sequence.* Received: 2 in required.2."),
        ([[], [[3, 4], [6, 6]], []], r"at least 4, .* required\[1\].*max_length=3"),
    ],
)
def test_phrases_that_cannot_be_required_are_refused(required, message):
    with pytest.raises(ValueError, match=message):
        Toy(7, 4).generate(SOURCES, ConstrainedBeamSearch(2, required), 3)
