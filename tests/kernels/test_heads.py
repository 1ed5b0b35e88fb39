import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.kernels.projections import (
    merge_heads,
    project_to_heads,
    split_heads,
)

BATCH, LENGTH, WIDTH, HEADS = 2, 5, 7, 3
STATES, OTHERS = np.random.default_rng(0).normal(size=(2, BATCH, LENGTH, WIDTH))


def dense(head_dim, use_bias=True):
    layer = keras.layers.Dense(
        HEADS * head_dim, use_bias=use_bias, bias_initializer="glorot_normal"
    )
    layer.build((None, None, WIDTH))
    return layer


def test_heads_are_slices_of_the_width():
    states = np.arange(BATCH * LENGTH * 6).reshape(BATCH, LENGTH, 6)
    heads = ops.convert_to_numpy(split_heads(ops.convert_to_tensor(states), HEADS))
    for head in range(HEADS):
        columns = slice(2 * head, 2 * head + 2)
        np.testing.assert_array_equal(heads[:, head], states[..., columns])
    merged = ops.convert_to_numpy(merge_heads(ops.convert_to_tensor(heads)))
    np.testing.assert_array_equal(merged, states)


@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize("length", [1, LENGTH])
@pytest.mark.parametrize("head_dims", [(4, 4, 4), (4, 4, 2), (2, 4, 4)], ids=str)
@pytest.mark.parametrize("numbers_of_heads", [(3, 3, 3), (3, 1, 1)], ids=str)
@pytest.mark.parametrize("inputs", ["self", "cross", "three"])
def test_joint_projections_equal_single_ones(
    inputs, numbers_of_heads, head_dims, length, use_bias
):
    query, key, value = {
        "self": (STATES, STATES, STATES),
        "cross": (STATES, OTHERS, OTHERS),
        "three": (STATES, OTHERS, STATES),
    }[inputs]
    # The same object where the states are the same, as in a layer's call.
    tensors = {
        id(x): ops.convert_to_tensor(x[:, :length], "float32")
        for x in (query, key, value)
    }
    layers = [dense(head_dim, use_bias) for head_dim in head_dims]
    projections = [
        (tensors[id(x)], layer, num_heads)
        for x, layer, num_heads in zip(
            (query, key, value), layers, numbers_of_heads, strict=True
        )
    ]
    found = project_to_heads(*projections)
    assert len(found) == 3
    for heads, (states, layer, num_heads) in zip(found, projections, strict=True):
        expected = ops.convert_to_numpy(split_heads(layer(states), num_heads))
        np.testing.assert_allclose(ops.convert_to_numpy(heads), expected, 1e-5, 1e-6)


@pytest.mark.usefixtures("few_objects_to_collect")
def test_quantized_projections_are_called_as_layers():
    layers = [dense(4) for _ in range(3)]
    for layer in layers:
        layer.quantize("int8")
    states = ops.convert_to_tensor(STATES, "float32")
    found = project_to_heads(*((states, layer, HEADS) for layer in layers))
    for heads, layer in zip(found, layers, strict=True):
        expected = ops.convert_to_numpy(split_heads(layer(states), HEADS))
        np.testing.assert_array_equal(ops.convert_to_numpy(heads), expected)
