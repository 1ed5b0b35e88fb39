"""Writing one position of each sentence into a key/value cache, as a few rows."""

from keras import ops


def write_rows(states, index, new):
    """Replaces `states[b, :, index[b]]` by `new[b]` for every sentence `b`.

    `index` is int32 of shape `(batch,)`.

    The plain form, `where(position == index, new, states)`, computes every entry of
    the cache. A scatter copies the cache, `(batch, heads, length, width)`, and writes
    one row for each head: `new`, with `width` elements a head.

    Hypotheses share the last axis: if they had a separate axis, XLA would copy a cache
    of one hypothesis twice in every step.
    """
    batch, heads, length, width = ops.shape(states)
    index = ops.repeat(index, heads)
    rows = (ops.arange(batch * heads, dtype="int32") * length + index)[:, None]
    table, new_rows = (ops.reshape(x, (-1, width)) for x in (states, new))
    table = ops.scatter_update(table, rows, new_rows)
    return ops.reshape(table, (batch, heads, length, width))
