"""Writing one position of a key/value cache as a few rows."""

from keras import ops


def write_rows(states, index, new):
    """Replaces `states[:, :, index]` by `new`.

    The plain form, `where(position == index, new, states)`, computes every entry of
    the cache. A scatter copies the cache, `(batch, heads, length, width)`, and writes
    one row for each head: `new`, with `width` elements a head.

    Hypotheses lie side by side in the last axis: with an axis of their own, XLA would
    copy a cache of one hypothesis twice in every step.
    """
    batch, heads, length, width = ops.shape(states)
    rows = ops.arange(batch * heads)[:, None] * length + index
    table, new_rows = (ops.reshape(x, (-1, width)) for x in (states, new))
    table = ops.scatter_update(table, rows, new_rows)
    return ops.reshape(table, (batch, heads, length, width))
