"""Products of one row, where XLA compiles for processors.

What such a product takes is the time to read a matrix, once.
"""

from keras import ops

from keras_transformer.kernels import target

PARTS = 4  # of a kernel; 2 and 8 were no faster


def dense(layer, states):
    """Calls a dense layer, with one row in parts.

    XLA leaves a product of one row to one processor, which reads slower than the
    memory can be read. Of a batch of matrices it gives each processor some. In
    graph mode that takes longer than the whole.

    Args:
        layer: A `keras.layers.Dense`.
        states: Float tensor of shape `(batch, length, width)`. Where the trace
            does not know the batch, XLA still knows it when it compiles.

    Returns:
        What the layer makes of them.
    """
    rows, width = ops.shape(states)[0], states.shape[-1]
    if (
        not target.xla_compiles_for_cpu()
        or states.shape[1:-1] != (1,)
        or (isinstance(rows, int) and rows != 1)
        or width % PARTS
        or layer.quantization_mode
    ):
        return layer(states)
    parts = PARTS if isinstance(rows, int) else ops.where(rows == 1, PARTS, 1)
    dtype, width_of_part = layer.compute_dtype, width // parts
    kernel = ops.cast(layer.kernel, dtype)
    kernel = ops.reshape(kernel, (parts, width_of_part, layer.units))
    states = ops.reshape(ops.cast(states, dtype), (rows, parts, width_of_part))
    products = ops.matmul(ops.transpose(states, (1, 0, 2)), kernel)
    outputs = ops.reshape(ops.sum(products, axis=0), (rows, 1, layer.units))
    if layer.use_bias:
        outputs = outputs + ops.cast(layer.bias, dtype)
    return outputs if layer.activation is None else layer.activation(outputs)


def match(query, key):
    """Multiplies every query with every key.

    Of one query, XLA would copy the keys across first.

    Args:
        query: Float tensor of shape `(..., query_length, dim)`.
        key: Float tensor of shape `(..., key_length, dim)`.

    Returns:
        The products, of shape `(..., query_length, key_length)`.
    """
    if query.shape[-2] == 1 and target.xla_compiles_for_cpu():
        return ops.swapaxes(ops.matmul(key, ops.swapaxes(query, -1, -2)), -1, -2)
    return ops.matmul(query, ops.swapaxes(key, -1, -2))
