"""`take_along_axis` for rows, in fewer operations."""

from keras import ops

from keras_transformer.kernels import target


def take_rows(x, indices):
    """Takes entries of each row: `result[r, i] = x[r, indices[r, i]]`.

    `ops.take_along_axis` gives the same in more operations.

    Args:
        x: Tensor of shape `(rows, choices, ...)`.
        indices: Int32 tensor of shape `(rows, count)`.

    Returns:
        A tensor of shape `(rows, count, ...)`.
    """
    if x.shape[0] == 0:  # JAX cannot gather from an empty tensor.
        return ops.zeros((*ops.shape(indices), *x.shape[2:]), x.dtype)
    num_rows, choices = ops.shape(x)[:2]
    starts = ops.arange(0, num_rows * choices, choices, dtype="int32")
    flat = ops.reshape(x, (-1, *x.shape[2:]))
    return ops.take(flat, ops.expand_dims(starts, 1) + indices, axis=0)


def take_one(x, indices):
    """Takes one entry of each row: `result[r] = x[r, indices[r]]`.

    Args:
        x: Tensor of shape `(rows, choices, ...)`.
        indices: Int32 tensor of shape `(rows,)`.

    Returns:
        A tensor of shape `(rows, ...)`.
    """
    return ops.squeeze(take_rows(x, ops.expand_dims(indices, 1)), 1)


def take_last(x, indices):
    """Takes one entry of the last axis: `result[b, i] = x[b, i, indices[b, i]]`.

    The indices may count from the end, as those of `ops.take_along_axis`, which takes
    forty operations on TensorFlow where sizes are unknown.

    Args:
        x: Tensor of shape `(..., choices)`.
        indices: Int32 tensor of the shape of `x` without its last axis.

    Returns:
        A tensor of the shape of `indices`.
    """
    if not target.is_tensorflow():
        return ops.take_along_axis(x, indices[..., None], axis=-1)[..., 0]
    import tensorflow as tf

    indices = tf.where(indices < 0, indices + x.shape[-1], indices)
    return tf.gather(x, indices, axis=-1, batch_dims=len(indices.shape))
