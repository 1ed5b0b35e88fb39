"""`take_along_axis` for rows, in one flat gather."""

from keras import ops


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
