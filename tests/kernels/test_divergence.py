import numpy as np
import pytest
from gradients import gradients
from keras import ops

from keras_transformer.kernels.divergence import softmax_divergence

RANDOM = np.random.default_rng(0)
SHAPE = (3, 5, 7)
WEIGHTS = RANDOM.uniform(0.5, 2, SHAPE[:-1]).astype("float32")


def plain(logits, other_logits):
    p, q = ops.softmax(logits), ops.softmax(other_logits)
    return ops.sum(p * (ops.log(p) - ops.log(q)), axis=-1)


def logits(scale=2.0):
    return RANDOM.normal(size=SHAPE, scale=scale).astype("float32")


@pytest.mark.parametrize("function", [plain, softmax_divergence])
def test_it_is_the_definition(function):
    ours, others = logits(), logits()
    p, q = (np.exp(x.astype("float64")) for x in (ours, others))
    p, q = p / p.sum(-1, keepdims=True), q / q.sum(-1, keepdims=True)
    expected = (p * np.log(p / q)).sum(-1)
    np.testing.assert_allclose(function(ours, others), expected, 1e-4, 1e-6)


def test_the_gradients_are_those_of_the_plain_form():
    def weighted(function):
        weights = ops.convert_to_tensor(WEIGHTS)
        return lambda *tensors: ops.sum(function(*tensors) * weights)

    tensors = [logits(), logits()]
    found = gradients(weighted(softmax_divergence), tensors)
    expected = gradients(weighted(plain), tensors)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-4, 1e-6)


def test_equal_predictions_have_no_divergence():
    ours = logits()
    found = ops.convert_to_numpy(softmax_divergence(ours, ours + 3))
    np.testing.assert_allclose(found, 0, atol=1e-5)


def test_probabilities_that_underflow_leave_it_finite():
    ours, others = logits(scale=300.0), logits(scale=300.0)
    [to_ours, to_others] = gradients(
        lambda *tensors: ops.sum(softmax_divergence(*tensors)), [ours, others]
    )
    assert np.isfinite(ops.convert_to_numpy(softmax_divergence(ours, others))).all()
    assert np.isfinite(to_ours).all()
    assert np.isfinite(to_others).all()
