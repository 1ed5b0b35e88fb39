import keras
import numpy as np
import pytest
from gradients import gradients
from keras import ops

from keras_transformer.kernels.crossentropy import (
    distribution_crossentropy,
    smoothed_crossentropy,
)

RANDOM = np.random.default_rng(5)
LABELS = RANDOM.integers(0, 11, (3, 5))
LOGITS = RANDOM.normal(size=(3, 5, 11), scale=3).astype("float32")
WEIGHTS = RANDOM.normal(size=(3, 5)).astype("float32")


def plain_crossentropy(labels, logits, label_smoothing):
    """The reference: every array of the definition, and the backend's gradient."""
    vocabulary = logits.shape[-1]
    one_hot = ops.one_hot(labels, vocabulary)
    targets = (1 - label_smoothing) * one_hot + label_smoothing / vocabulary
    return -ops.sum(targets * ops.log_softmax(ops.cast(logits, "float32")), axis=-1)


def values_and_gradient(function, label_smoothing, logits):
    values = function(LABELS, ops.convert_to_tensor(logits), label_smoothing)
    [gradient] = gradients(
        lambda logits: ops.sum(
            ops.multiply(function(LABELS, logits, label_smoothing), WEIGHTS)
        ),
        [logits],
    )
    return ops.convert_to_numpy(values), gradient


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("largest", [0.0, 80.0, -200.0], ids=["usual", "sure", "none"])
def test_values_and_gradients_are_those_of_the_definition(label_smoothing, largest):
    """For usual logits, a label of probability 1, and one whose probability is 0."""
    logits = LOGITS.copy()
    logits[0, 1, LABELS[0, 1]] += largest
    found = values_and_gradient(smoothed_crossentropy, label_smoothing, logits)
    expected = values_and_gradient(plain_crossentropy, label_smoothing, logits)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-5, 1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_has_a_gradient_of_its_own_dtype(dtype):
    logits = ops.cast(LOGITS, dtype)
    found = values_and_gradient(smoothed_crossentropy, 0.1, logits)
    expected = values_and_gradient(plain_crossentropy, 0.1, logits)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-2, 1e-2)
    assert keras.backend.standardize_dtype(found[0].dtype) == "float32"


def crossentropy_with_distribution(targets, logits):
    """The reference: the definition, and the backend's gradient."""
    return -ops.sum(targets * ops.log_softmax(ops.cast(logits, "float32")), axis=-1)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 1e-2)]
)
@pytest.mark.parametrize("largest", [0.0, 80.0, -200.0], ids=["usual", "sure", "none"])
def test_a_distribution_has_the_crossentropy_of_the_definition(
    dtype, tolerance, largest
):
    logits = LOGITS.copy()
    logits[0, 1, LABELS[0, 1]] += largest
    logits = ops.cast(logits, dtype)
    targets = ops.softmax(RANDOM.normal(size=LOGITS.shape).astype("float32"))
    results = []
    for function in (distribution_crossentropy, crossentropy_with_distribution):
        values = ops.convert_to_numpy(function(targets, logits))
        [gradient] = gradients(
            lambda x, function=function: ops.sum(function(targets, x) * WEIGHTS),
            [logits],
        )
        results.append((values, gradient))
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, tolerance, tolerance)
