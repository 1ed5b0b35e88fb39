"""Indexing that differs from row to row, in few operations."""

from keras import ops


def take_rows(x, rows):
    """Picks entries of each row: `result[r, i] = x[r, rows[r, i]]`.

    Args:
        x: Tensor of shape `(rows, choices, ...)`.
        rows: Int32 tensor of shape `(rows, count)`.

    Returns:
        A tensor of shape `(rows, count, ...)`.
    """
    if x.shape[0] == 0:  # JAX takes from nothing what has another shape.
        return ops.zeros((*ops.shape(rows), *x.shape[2:]), x.dtype)
    num_rows, choices = ops.shape(x)[:2]
    starts = ops.arange(num_rows, dtype="int32")[:, None] * choices
    flat = ops.reshape(x, (-1, *x.shape[2:]))
    return ops.take(flat, starts + rows, axis=0)


def pick(x, chosen):
    """Picks one entry of each row: `result[r] = x[r, chosen[r]]`.

    Args:
        x: Tensor of shape `(rows, choices, ...)`.
        chosen: Int32 tensor of shape `(rows,)`.

    Returns:
        A tensor of shape `(rows, ...)`.
    """
    return take_rows(x, chosen[:, None])[:, 0]
