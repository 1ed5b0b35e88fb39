"""Projections: single-row products under XLA on CPUs.

A product with a single row takes the time to read the matrix once. XLA reads it with
one thread, or copies it first. Plain forms: `layer(states)` and `matmul(query,
transpose(key))`.
"""

from keras import ops

from keras_transformer.kernels import target
from keras_transformer.kernels.graphs import shape_of

KERNEL_SLICES = 4  # measured: 2 and 8 were no faster


def dense(layer, states):
    """Calls a dense layer, faster for a single row and for states of unknown size.

    TensorFlow takes some 35 operations to multiply states of an unknown number or
    length, most of them to compute shapes. So the states are reshaped to a matrix, and
    back.

    XLA computes a product of one row on one core, but spreads a batch of matrices
    over all cores. So the kernel is cut into a batch of slices, whose products are
    summed. A batch size that is unknown in the trace is known when XLA compiles.

    `layer` is a `keras.layers.Dense`, `states` have the shape `(batch, length, width)`.
    """
    sizes = states.shape[:-1]
    is_unknown = len(sizes) == 2 and None in sizes and sizes[1] != 1
    if target.BACKEND == "tensorflow" and is_unknown:
        batch, length, width = shape_of(states, for_reshape=True)
        outputs = layer(ops.reshape(states, (-1, width)))
        return ops.reshape(outputs, (batch, length, outputs.shape[-1]))
    rows, width = states.shape[0], states.shape[-1]
    if (
        sizes[1:] != (1,)
        or rows not in (1, None)
        or width % KERNEL_SLICES
        or layer.quantization_mode
        or not target.xla_compiles_for_cpu()
    ):
        return layer(states)
    slices = KERNEL_SLICES
    if rows is None:
        rows = shape_of(states)[0]
        slices = ops.where(rows == 1, KERNEL_SLICES, 1)
    dtype, slice_width = layer.compute_dtype, width // slices
    kernel = ops.cast(layer.kernel, dtype)
    kernel = ops.reshape(kernel, (slices, slice_width, layer.units))
    states = ops.reshape(ops.cast(states, dtype), (rows, slices, slice_width))
    products = ops.matmul(ops.transpose(states, (1, 0, 2)), kernel)
    outputs = ops.reshape(ops.sum(products, axis=0), (rows, 1, layer.units))
    if layer.use_bias:
        outputs = outputs + ops.cast(layer.bias, dtype)
    return outputs if layer.activation is None else layer.activation(outputs)


def query_key_products(query, key):
    """Computes `query key^T`.

    For a single query XLA would write a transposed copy of all keys. Transposing the
    query and the product instead costs nothing.
    """
    if query.shape[-2] == 1 and target.xla_compiles_for_cpu():
        return ops.swapaxes(ops.matmul(key, ops.swapaxes(query, -1, -2)), -1, -2)
    return ops.matmul(query, ops.swapaxes(key, -1, -2))


def split_heads(states, num_heads: int):
    """(batch, length, heads * dim) -> (batch, heads, length, dim)."""
    batch, length, width = shape_of(states, for_reshape=True)
    if states.shape[1] == 1:  # the transpose of a single position is a reshape
        return ops.reshape(states, (batch, num_heads, 1, width // num_heads))
    states = ops.reshape(states, (batch, length, num_heads, width // num_heads))
    return ops.transpose(states, (0, 2, 1, 3))


def merge_heads(states):
    """(batch, heads, length, dim) -> (batch, length, heads * dim)."""
    batch, num_heads, length, dim = shape_of(states, for_reshape=True)
    if states.shape[2] != 1:
        states = ops.transpose(states, (0, 2, 1, 3))
    return ops.reshape(states, (batch, length, num_heads * dim))
