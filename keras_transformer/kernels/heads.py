"""Projections into heads: one wide product in place of several narrow ones."""

import itertools

from keras import ops

from keras_transformer.kernels.dense import dense
from keras_transformer.kernels.shapes import shape_of


def split_heads(states, num_heads: int):
    """(batch, length, heads * dim) -> (batch, heads, length, dim)."""
    batch, length, width = shape_of(states)
    if states.shape[1] == 1:  # the transpose of a single position is a reshape
        return ops.reshape(states, (batch, num_heads, 1, width // num_heads))
    states = ops.reshape(states, (batch, length, num_heads, width // num_heads))
    return ops.transpose(states, (0, 2, 1, 3))


def merge_heads(states):
    """(batch, heads, length, dim) -> (batch, length, heads * dim)."""
    batch, num_heads, length, dim = shape_of(states)
    if states.shape[2] != 1:
        states = ops.transpose(states, (0, 2, 1, 3))
    return ops.reshape(states, (batch, length, num_heads * dim))


def project_to_heads(*projections):
    """Projects states and splits the results into heads.

    The plain form is `split_heads(layer(states), num_heads)` for each projection.
    Consecutive projections of the same states, to the same width and number of heads,
    are computed as one product and one transpose.

    Args:
        *projections: Triples of states, `(batch, length, width)`, a
            `keras.layers.Dense` and a number of heads.
    """

    def product(projection):
        states, layer, num_heads = projection
        return id(states), layer.units, num_heads

    projected = []
    for _, neighbours in itertools.groupby(projections, product):
        (states, *_), layers, (num_heads, *_) = zip(*neighbours, strict=True)
        projected += _project(num_heads, states, layers)
    return projected


def _project(num_heads, states, layers):
    is_step = states.shape[1] == 1  # joining the kernels costs more than it saves
    is_quantized = any(layer.quantization_mode for layer in layers)
    if len(layers) == 1 or is_step or is_quantized:
        return [split_heads(dense(layer, states), num_heads) for layer in layers]
    dtype = layers[0].compute_dtype
    batch, length, width = shape_of(states)
    kernel = ops.concatenate([ops.cast(x.kernel, dtype) for x in layers], axis=-1)
    outputs = ops.matmul(ops.reshape(ops.cast(states, dtype), (-1, width)), kernel)
    if layers[0].use_bias:
        bias = ops.concatenate([ops.cast(x.bias, dtype) for x in layers], axis=0)
        # The gradient of TensorFlow's `add` is faster than that of its `+`.
        outputs = ops.add(outputs, bias)
    head_dim = layers[0].units // num_heads
    outputs = ops.reshape(outputs, (batch, length, len(layers), num_heads, head_dim))
    return ops.unstack(ops.transpose(outputs, (2, 0, 3, 1, 4)))
