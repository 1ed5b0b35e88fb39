import keras
import numpy as np
import pytest
from gradients import gradients
from keras import ops
from layer_contract import check_layer

from keras_transformer.kernels.layer_norm import LayerNormalization

BATCH, LENGTH, HIDDEN_DIM = 3, 5, 7
RANDOM = np.random.default_rng(7)
INPUTS = RANDOM.normal(3, 2, (BATCH, LENGTH, HIDDEN_DIM)).astype("float32")
UPSTREAM = RANDOM.normal(size=INPUTS.shape).astype("float32")
WEIGHTS = [RANDOM.normal(size=HIDDEN_DIM) for _ in range(2)]


def outputs_and_gradients(layer, inputs):
    layer.build(inputs.shape)
    layer.set_weights(WEIGHTS)

    def total(inputs, *weights):
        outputs, _ = layer.stateless_call(weights, [], inputs)
        return ops.sum(ops.multiply(ops.cast(outputs, "float32"), UPSTREAM))

    weights = [weight.value for weight in layer.trainable_weights]
    outputs = ops.convert_to_numpy(ops.cast(layer(inputs), "float32"))
    return [outputs, *gradients(total, [inputs, *weights])]


def test_normalization_keeps_the_contract_of_layers():
    check_layer(LayerNormalization, {"epsilon": 1e-3}, INPUTS, INPUTS.shape)


@pytest.mark.parametrize("dtype", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_outputs_and_gradients_are_those_of_keras(dtype):
    ours = outputs_and_gradients(LayerNormalization(epsilon=1e-3, dtype=dtype), INPUTS)
    theirs = keras.layers.LayerNormalization(epsilon=1e-3, dtype=dtype)
    tolerance = 1e-5 if dtype == "float32" else 2e-2
    for found, expected in zip(
        ours, outputs_and_gradients(theirs, INPUTS), strict=True
    ):
        np.testing.assert_allclose(found, expected, tolerance, tolerance)


def test_the_gradient_is_the_slope():
    layer = LayerNormalization(epsilon=1e-3)
    _, gradient, *_ = outputs_and_gradients(layer, INPUTS)
    gamma, beta = WEIGHTS

    def total(inputs):
        centered = inputs - inputs.mean(axis=-1, keepdims=True)
        spread = np.sqrt(np.square(centered).mean(axis=-1, keepdims=True) + 1e-3)
        return np.sum((centered / spread * gamma + beta) * UPSTREAM)

    inputs = INPUTS.astype("float64")
    for place in [(0, 0, 0), (1, 3, 5), (2, 4, 6)]:
        step = np.zeros_like(inputs)
        step[place] = 1e-5
        slope = (total(inputs + step) - total(inputs - step)) / 2e-5
        np.testing.assert_allclose(gradient[place], slope, 1e-4)


def test_equal_states_give_finite_gradients():
    for found in outputs_and_gradients(
        LayerNormalization(epsilon=1e-6), np.ones_like(INPUTS)
    ):
        assert np.all(np.isfinite(found))


@pytest.mark.needs_tensorflow
def test_xla_is_given_no_product():
    # It would compute one with a vector again at every place that reads it.
    import tensorflow as tf

    layer = LayerNormalization(epsilon=1e-6)
    layer.build(INPUTS.shape)
    weights = [weight.value for weight in layer.trainable_weights]

    @tf.function(jit_compile=True, autograph=False)
    def slopes(inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = layer(inputs)
        return tape.gradient(outputs, [inputs, *weights], UPSTREAM)

    program = slopes.experimental_get_compiler_ir(tf.constant(INPUTS))("hlo")
    assert " reduce(" in program
    assert " dot(" not in program


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow",
    reason="Keras's means are float32 on PyTorch, and JAX has no float64.",
)
def test_float64_is_computed_in_float64():
    inputs = RANDOM.normal(3, 2, (BATCH, LENGTH, HIDDEN_DIM))
    ours = LayerNormalization(epsilon=1e-6, dtype="float64")
    theirs = keras.layers.LayerNormalization(epsilon=1e-6, dtype="float64")
    np.testing.assert_allclose(ours(inputs), theirs(inputs), 0, 1e-12)
