import numpy as np
import pytest
from keras import ops

from keras_transformer.kernels.crossentropy import (
    log_normalizer,
    normalizer_of_softmax,
)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e3])
def test_it_is_the_logsumexp(scale):
    logits = np.random.default_rng(3).normal(size=(7, 101)).astype("float32") * scale
    largest_id = np.argmax(logits, axis=-1).astype("int32")
    tensors = map(ops.convert_to_tensor, (logits, logits.max(axis=-1), largest_id))
    expected = ops.logsumexp(ops.convert_to_tensor(logits), axis=-1)
    found = log_normalizer(*tensors)
    np.testing.assert_allclose(found, ops.convert_to_numpy(expected), 1e-5, 1e-5)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e3])
def test_the_softmax_gives_the_logsumexp(scale):
    logits = np.random.default_rng(5).normal(size=(3, 5, 101)) * scale
    logits = ops.convert_to_tensor(logits.astype("float32"))
    found = normalizer_of_softmax(logits, ops.softmax(logits))
    expected = ops.convert_to_numpy(ops.logsumexp(logits, axis=-1))
    np.testing.assert_allclose(ops.convert_to_numpy(found), expected, 1e-5, 1e-5)
