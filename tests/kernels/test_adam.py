import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.kernels.adam import adam_update, update_if

RANDOM = np.random.default_rng(3)
WEIGHTS = RANDOM.normal(size=(7, 5))
GRADIENTS = RANDOM.normal(size=(3, 7, 5))


class OnePassAdam(keras.optimizers.Adam):
    def update_step(self, gradient, variable, learning_rate):
        adam_update(self, gradient, variable, learning_rate)


def updated(optimizer, dtype="float32", gradients=GRADIENTS):
    """A variable and the variables of its optimizer after a few updates."""
    optimizer = optimizer(0.1, beta_1=0.8, beta_2=0.97, epsilon=1e-4)
    variable = keras.Variable(WEIGHTS, dtype=dtype)
    for gradient in gradients:
        optimizer.apply([gradient], [variable])
    variables = [variable, *optimizer.variables]
    return [ops.convert_to_numpy(ops.cast(x, "float32")) for x in variables]


def assert_equal(found, expected, rtol):
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol, rtol * np.abs(theirs).max())


# Half precision rounds differently after each of the twelve operations of Keras.
@pytest.mark.parametrize(
    ("dtype", "rtol"), [("float32", 1e-6), ("float64", 1e-6), ("bfloat16", 0.05)]
)
def test_one_pass_makes_the_update_of_keras(dtype, rtol):
    if (dtype, keras.backend.backend()) == ("float64", "jax"):
        pytest.skip("JAX has no float64 unless asked.")
    gradients = [ops.convert_to_tensor(x, dtype) for x in GRADIENTS]
    expected = updated(keras.optimizers.Adam, dtype, gradients)
    assert_equal(updated(OnePassAdam, dtype, gradients), expected, rtol)
    assert not np.allclose(expected[0], WEIGHTS, atol=0.05)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="sparse gradients")
def test_sparse_gradients_make_the_update_of_keras():
    import tensorflow as tf

    gradients = [
        tf.IndexedSlices(tf.constant(x[:3], tf.float32), [4, 1, 4], (7, 5))
        for x in GRADIENTS
    ]
    expected = updated(keras.optimizers.Adam, gradients=gradients)
    assert_equal(updated(OnePassAdam, gradients=gradients), expected, 1e-6)


@pytest.mark.parametrize("holds", [True, False])
def test_an_update_under_a_condition(holds):
    first, second = keras.Variable(np.zeros(3)), keras.Variable(np.ones(2))

    def update():
        first.assign(first + 2)
        second.assign(second * 5)

    update_if(ops.convert_to_tensor(holds), update, [first, second])
    expected = ([2] * 3, [5] * 2) if holds else ([0] * 3, [1] * 2)
    for variable, values in zip((first, second), expected, strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(variable), values)
