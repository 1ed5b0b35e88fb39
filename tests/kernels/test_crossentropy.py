import keras
import numpy as np
import pytest
from gradients import gradients
from keras import ops

from keras_transformer.kernels.crossentropy import (
    log_normalizer,
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


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e3])
def test_the_log_normalizer_is_the_logsumexp(scale):
    logits = np.random.default_rng(3).normal(size=(7, 101)).astype("float32") * scale
    largest_id = np.argmax(logits, axis=-1).astype("int32")
    tensors = map(ops.convert_to_tensor, (logits, logits.max(axis=-1), largest_id))
    expected = ops.logsumexp(ops.convert_to_tensor(logits), axis=-1)
    found = log_normalizer(*tensors)
    np.testing.assert_allclose(found, ops.convert_to_numpy(expected), 1e-5, 1e-5)
