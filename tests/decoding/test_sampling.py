import numpy as np
import pytest
from keras import ops
from toy_decoding import END, PAD, TableModel, ToyModel, next_log_probabilities

from keras_transformer.decoding import GreedySearch, Sampling

SOURCES = np.array([[3, 4, 5], [6, 7, 0], [8, 0, 0]], "int32")


def plain_distribution(log_probabilities, temperature=1.0, top_k=None, top_p=None):
    """What the docstring of `Sampling` says, for one hypothesis."""
    order = np.argsort(-log_probabilities, kind="stable")
    weights = np.exp(log_probabilities / temperature)
    weights[order[top_k or len(order) :]] = 0
    weights /= np.sum(weights)
    if top_p is not None:
        before = np.cumsum(weights[order]) - weights[order]
        weights[order[before >= top_p]] = 0
    return weights / np.sum(weights)


def alike(count):
    """Sentences that the models do not tell apart, but their draws do."""
    numbers = 13 + np.arange(count, dtype="int32")[:, None]
    return np.concatenate([np.repeat(SOURCES[:1], count, axis=0), numbers], axis=1)


@pytest.mark.quick("{}-1", "{}-3", "{'temperature': 0.5}-1")
@pytest.mark.parametrize("num_hypotheses", [1, 3])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 2.0},
        {"top_k": 1},
        {"top_k": 3},
        {"top_p": 0.6},
        {"temperature": 2.0, "top_k": 4, "top_p": 0.7},
    ],
    ids=str,
)
def test_pairs_of_tokens_come_as_often_as_their_probability(settings, num_hypotheses):
    model = ToyModel(vocabulary_size=6, max_length=2, seed=7)
    expected = np.zeros((6, 6))
    for first, share in enumerate(
        plain_distribution(next_log_probabilities(model, SOURCES[0], ()), **settings)
    ):
        if first == END:
            expected[END, PAD] = share
        elif share > 0:
            after = next_log_probabilities(model, SOURCES[0], (first,))
            expected[first] = share * plain_distribution(after, **settings)
    draws = 12_000
    search = Sampling(**settings, seed=5, num_hypotheses=num_hypotheses)
    ids = search(model, alike(draws // num_hypotheses), 2).ids
    ids = ops.convert_to_numpy(ids).reshape(-1, 2)
    counts = np.zeros((6, 6))
    np.add.at(counts, tuple(ids.T), 1)
    assert (counts[expected == 0] == 0).all()
    # Five standard deviations: one table of 36 in 50,000 exceeds them by chance.
    tolerance = 5 * np.sqrt(draws * expected * (1 - expected)) + 1
    assert (np.abs(counts - draws * expected) <= tolerance).all()


@pytest.mark.quick("{}", "{'top_k': 3}")
@pytest.mark.parametrize("settings", [{}, {"top_k": 3}, {"top_p": 0.8}], ids=str)
def test_a_long_vocabulary_is_drawn_from_by_its_probabilities(settings):
    logits = np.random.default_rng(3).normal(size=(1, 1031)) * 5
    expected = logits[0] - np.log(np.sum(np.exp(logits)))
    expected[PAD] = -np.inf
    expected = plain_distribution(expected, **settings)
    search = Sampling(**settings, seed=2, num_hypotheses=101)
    ids = search(TableModel(logits), alike(87), 1).ids
    counts = np.bincount(ops.convert_to_numpy(ids).ravel(), minlength=1031)
    draws = 101 * 87
    assert counts.sum() == draws
    assert (counts[expected == 0] == 0).all()
    tolerance = 5 * np.sqrt(draws * expected * (1 - expected)) + 2
    assert (np.abs(counts - draws * expected) <= tolerance).all()


@pytest.mark.parametrize("settings", [{}, {"top_k": 3, "temperature": 0.3}], ids=str)
def test_the_score_is_the_log_probability_and_the_best_comes_first(settings):
    model = ToyModel(vocabulary_size=7, max_length=5, seed=7)
    search = Sampling(**settings, seed=5, num_hypotheses=3)
    ids, scores = map(ops.convert_to_numpy, search(model, SOURCES, 5))
    assert (np.diff(scores, axis=-1) <= 0).all()
    for source, rows, row_scores in zip(SOURCES, ids, scores, strict=True):
        for tokens, score in zip(rows, row_scores, strict=True):
            tokens = tokens[tokens != PAD]
            exact = sum(
                next_log_probabilities(model, source, tokens[:t])[token]
                for t, token in enumerate(tokens)
            )
            np.testing.assert_allclose(score, exact, atol=1e-5)


def test_a_seed_makes_draws_repeatable_and_another_seed_changes_them():
    model = ToyModel(vocabulary_size=11, max_length=7)
    first, same, other = (
        ops.convert_to_numpy(Sampling(seed=seed)(model, SOURCES, 7).ids)
        for seed in (5, 5, 7)
    )
    np.testing.assert_array_equal(first, same)
    assert (first != other).any()


def test_with_a_seed_draws_go_with_the_sentence_and_not_with_its_place():
    model = ToyModel(vocabulary_size=11, max_length=7)
    search = Sampling(seed=5, num_hypotheses=3)
    ids = search(model, SOURCES, 7).ids
    assert np.any(np.array(ids[:, 0]) != np.array(ids[:, 1]))
    order = [2, 0, 2, 1]
    moved = search(model, np.pad(SOURCES, ((0, 0), (0, 2)))[order], 7).ids
    np.testing.assert_array_equal(moved, np.array(ids)[order])


def test_with_a_seed_inputs_that_are_no_ids_are_told_apart_by_their_place():
    model = TableModel(np.zeros((5, 11)))
    search = Sampling(seed=5)
    ids = search(model, np.zeros((7, 3), "float32"), 5).ids
    assert len(np.unique(ids, axis=0)) == 7
    np.testing.assert_array_equal(search(model, np.zeros((7, 2, 2)), 5).ids, ids)


def test_without_a_seed_every_call_and_every_row_draws_anew():
    model, search = ToyModel(vocabulary_size=11, max_length=7), Sampling()
    sources = np.repeat(SOURCES[:1], 5, axis=0)
    first, second = (
        ops.convert_to_numpy(search(model, sources, 7).ids) for _ in range(2)
    )
    assert (first != second).any()
    assert (first[0] != first[1:]).any()


@pytest.mark.quick("settings0", "settings1")
@pytest.mark.parametrize(
    "settings", [{"temperature": 0}, {"top_k": 1}, {"top_p": 1e-6}]
)
def test_the_coldest_and_the_narrowest_draws_are_greedy(settings):
    model = ToyModel(vocabulary_size=11, max_length=7, seed=5)
    sampled = Sampling(**settings, seed=3)(model, SOURCES, 7)
    greedy = GreedySearch()(model, SOURCES, 7)
    np.testing.assert_array_equal(sampled.ids, greedy.ids)
    np.testing.assert_allclose(sampled.scores, greedy.scores, atol=1e-5)


@pytest.mark.parametrize("temperature", [1e-300, 1e-9, 1e9, 1e300])
def test_extreme_temperatures_give_numbers(temperature):
    model = ToyModel(vocabulary_size=5, max_length=3)
    scores = Sampling(temperature, seed=1)(model, SOURCES, 3).scores
    assert np.isfinite(ops.convert_to_numpy(scores)).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -0.1}, r"`temperature` .* Received: temperature=-0\.1\."),
        ({"temperature": np.nan}, r"Received: temperature=nan\."),
        ({"temperature": "hot"}, r"Received: temperature='hot'\."),
        ({"top_p": [0.5]}, r"`top_p` must be .* top_p=\[0\.5\]\."),
        ({"top_k": 0}, r"`top_k` must be .* Received: top_k=0\."),
        ({"top_k": 2.5}, r"Received: top_k=2\.5\."),
        ({"top_p": 0.0}, r"`top_p` must be .* Received: top_p=0\.0\."),
        ({"top_p": 1.1}, r"Received: top_p=1\.1\."),
        ({"seed": 1.5}, r"`seed` must be .* Received: seed=1\.5\."),
        ({"seed": -1}, r"Received: seed=-1\."),
        ({"num_hypotheses": 0}, r"`num_hypotheses` must be .* num_hypotheses=0\."),
    ],
)
def test_arguments_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Sampling(**settings)
