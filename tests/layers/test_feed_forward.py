import keras
import numpy as np
import pytest
from keras import ops
from layer_contract import check_layer

from keras_transformer.layers import FeedForward

BATCH, LENGTH, WIDTH = 2, 5, 7
INPUTS = np.random.default_rng(0).normal(size=(BATCH, LENGTH, WIDTH)).astype("float32")


@pytest.mark.quick("silu")
@pytest.mark.parametrize("activation", ["gelu", keras.activations.silu])
def test_feed_forward_keeps_the_contract_of_layers(activation):
    arguments = {"intermediate_dim": 11, "activation": activation}
    check_layer(FeedForward, arguments, INPUTS, INPUTS.shape)


def test_is_the_equation_of_the_paper():
    layer = FeedForward(intermediate_dim=11)
    layer.build(INPUTS.shape)
    random = np.random.default_rng(1)
    layer.set_weights([random.normal(size=w.shape) for w in layer.weights])
    wide, wide_bias, narrow, narrow_bias = layer.get_weights()
    assert wide.shape == (WIDTH, 11)
    expected = np.maximum(INPUTS @ wide + wide_bias, 0) @ narrow + narrow_bias
    outputs = ops.convert_to_numpy(layer(INPUTS))
    np.testing.assert_allclose(outputs, expected, 1e-4, 1e-5)


def test_positions_know_nothing_of_each_other():
    layer = FeedForward(intermediate_dim=11)
    outputs = ops.convert_to_numpy(layer(INPUTS))
    for position in range(LENGTH):
        alone = layer(INPUTS[:, position : position + 1])
        np.testing.assert_allclose(alone[:, 0], outputs[:, position], 1e-5, 1e-6)


def test_width_must_be_positive():
    with pytest.raises(
        ValueError,
        match="`intermediate_dim` must be a positive integer. "
        "Received: intermediate_dim=0",
    ):
        FeedForward(intermediate_dim=0)


def test_unknown_activations_are_refused():
    with pytest.raises(ValueError, match="activation.*: reluu"):
        FeedForward(intermediate_dim=11, activation="reluu")
