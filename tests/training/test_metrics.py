import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer.training import (
    Padding,
    Perplexity,
    TokenAccuracy,
    TokenCrossentropy,
)

BATCH, LENGTH, VOCABULARY = 2, 5, 7
METRICS = [TokenAccuracy, Perplexity]


def draw_batch(seed, length=LENGTH):
    random = np.random.default_rng(seed)
    labels = random.integers(0, VOCABULARY, (BATCH, length))
    labels[:, random.integers(1, length + 1) :] = 0
    logits = random.normal(size=(BATCH, length, VOCABULARY)).astype("float32")
    # So that some predictions are right.
    return labels, logits + np.eye(VOCABULARY, dtype="float32")[labels]


def expected_value(metric, labels, logits, weights=None):
    labels, logits = labels.ravel(), logits.reshape(-1, VOCABULARY).astype("float64")
    weights = np.ones(labels.shape) if weights is None else weights.ravel()
    weights = weights * (labels != metric.pad_id)
    if isinstance(metric, TokenAccuracy):
        return np.average(logits.argmax(axis=-1) == labels, weights=weights)
    chosen = logits[np.arange(labels.size), labels]
    losses = np.log(np.exp(logits).sum(axis=-1)) - chosen
    return np.exp(np.average(losses, weights=weights))


@pytest.mark.quick("TokenAccuracy")
@pytest.mark.parametrize("metric_class", METRICS)
@settings(max_examples=10)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_batches_of_any_lengths_give_the_mean_over_all_their_tokens(
    metric_class, lengths
):
    metric = metric_class()
    batches = [draw_batch(seed, length) for seed, length in enumerate(lengths)]
    for labels, logits in batches:
        metric.update_state(labels, logits)
    labels = np.concatenate([labels.ravel() for labels, _ in batches])
    logits = np.concatenate([x.reshape(-1, VOCABULARY) for _, x in batches])
    if np.any(labels):
        expected = expected_value(metric, labels, logits)
        np.testing.assert_allclose(metric.result(), expected, 1e-4)


@pytest.mark.parametrize("pad_id", [0, 3])
@pytest.mark.parametrize("metric_class", METRICS)
def test_padding_never_counts_whatever_its_logits(metric_class, pad_id):
    labels, logits = np.array([[3, 5, 3, 2, 0], [6, 1, 3, 0, 0]]), draw_batch(11)[1]
    changed = np.where((labels == pad_id)[..., None], np.float32(1e30), logits)
    results = []
    for each in (logits, changed):
        metric = metric_class(pad_id=pad_id)
        metric.update_state(labels, each)
        results.append(float(metric.result()))
    assert results[0] == results[1]
    np.testing.assert_allclose(results[0], expected_value(metric, labels, logits), 1e-4)


@pytest.mark.parametrize("shape", [(BATCH,), (BATCH, 1), (BATCH, LENGTH)])
@pytest.mark.parametrize("metric_class", METRICS)
def test_sample_weights_weigh_tokens_and_sentences(metric_class, shape):
    labels, logits = draw_batch(seed=5)
    weights = np.random.default_rng(1).uniform(0.5, 2, shape).astype("float32")
    metric = metric_class()
    metric.update_state(labels, logits, sample_weight=weights)
    every = weights[:, None] if weights.ndim == 1 else weights
    every = np.broadcast_to(every, labels.shape)
    expected = expected_value(metric, labels, logits, every)
    np.testing.assert_allclose(metric.result(), expected, 1e-4)


def test_accuracies_of_two_precisions_are_comparable():
    random = np.random.default_rng(3)
    logits = random.normal(size=(7, 997, 101)).astype("float32") + 30  # steps of 1/8
    labels = (logits + random.gumbel(size=logits.shape)).argmax(axis=-1)
    accuracies = []
    for dtype in ("float32", "bfloat16"):
        metric = TokenAccuracy(pad_id=-1)
        metric.update_state(labels, keras.ops.cast(logits, dtype))
        accuracies.append(float(metric.result()))
    # Of the largest logits in bfloat16, half are tied.
    np.testing.assert_allclose(accuracies[1], accuracies[0], atol=0.01)


def test_tied_logits_share_one_right_token():
    metric = TokenAccuracy()
    logits = [[[0.0, 5, 5, 5], [0, 5, 5, 1], [0, 5, 5, 1]]]
    metric.update_state(np.array([[1, 2, 3]]), np.array(logits))
    np.testing.assert_allclose(metric.result(), (1 / 3 + 1 / 2 + 0) / 3, 1e-6)


def test_perplexity_is_the_exponential_of_the_unsmoothed_loss():
    labels, logits = draw_batch(seed=3)
    metric = Perplexity()
    metric.update_state(labels, logits)
    np.testing.assert_allclose(
        metric.result(), np.exp(float(TokenCrossentropy()(labels, logits))), 1e-5
    )


def test_perplexity_of_a_guess_is_the_size_of_the_vocabulary():
    metric = Perplexity()
    metric.update_state(draw_batch(7)[0], np.zeros((BATCH, LENGTH, VOCABULARY)))
    np.testing.assert_allclose(metric.result(), VOCABULARY, 1e-5)


@pytest.mark.parametrize(
    ("metric_class", "nothing"), [(TokenAccuracy, 0), (Perplexity, 1)]
)
def test_a_reset_forgets_and_padding_alone_leaves_the_beginning(metric_class, nothing):
    labels, logits = draw_batch(seed=3)
    metric = metric_class()
    assert float(metric.result()) == nothing
    metric.update_state(labels, logits)
    assert float(metric.result()) != nothing
    metric.reset_state()
    metric.update_state(np.zeros_like(labels), logits)
    assert float(metric.result()) == nothing


def test_a_model_reports_them_over_a_whole_epoch():
    inputs = keras.Input((None,), dtype="int32")
    embedding = keras.layers.Embedding(VOCABULARY, VOCABULARY, mask_zero=True)
    model = keras.Model(inputs, embedding(inputs))
    metrics = [TokenAccuracy(), Perplexity()]
    model.compile(loss=TokenCrossentropy(), metrics=metrics)
    labels = np.concatenate([draw_batch(seed)[0] for seed in range(3)])
    ids = np.roll(labels, 1, axis=1)
    report = model.evaluate(ids, labels, batch_size=BATCH, return_dict=True, verbose=0)
    logits = np.asarray(model(ids))
    for metric in metrics:
        expected = expected_value(metric, labels, logits)
        np.testing.assert_allclose(report[metric.name], expected, 1e-4)


@pytest.mark.parametrize("metric_class", METRICS)
def test_metrics_come_back_from_their_config(metric_class):
    metric = metric_class(pad_id=5, name="measure")
    stored = keras.saving.serialize_keras_object(metric)
    restored = keras.saving.deserialize_keras_object(stored)
    assert type(restored) is metric_class
    assert restored.get_config() == metric.get_config()
    assert (restored.pad_id, restored.name) == (5, "measure")


def test_padding_is_counted_in_the_labels_of_an_epoch():
    metric = Padding(pad_id=3)
    for labels in ([[3, 3, 5], [7, 3, 2]], [[0], [3]]):
        metric.update_state(np.array(labels), None)
    assert float(metric.result()) == 0.5
    assert metric.num_tokens() == 4
    assert Padding.from_config(metric.get_config()).pad_id == 3
