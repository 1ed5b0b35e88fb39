"""Writing one position of a key/value cache as a few rows."""

from keras import ops


def write_rows(states, index, new):
    """Replaces `states[:, :, index]` by `new`.

    The plain form, `where(position == index, new, states)`, computes every entry of
    the cache. A scatter copies the cache and writes one row for each head.

    Args:
        states: Tensor of shape `(batch, heads, length, width)`.
        index: Position, an integer tensor.
        new: Tensor of shape `(batch, heads, ...)` with `width` elements a head.

    Returns:
        A tensor of the shape of `states`.
    """
    batch, heads, length, width = ops.shape(states)
    rows = ops.arange(batch * heads)[:, None] * length + index
    table = ops.scatter_update(
        ops.reshape(states, (-1, width)), rows, ops.reshape(new, (-1, width))
    )
    return ops.reshape(table, (batch, heads, length, width))
