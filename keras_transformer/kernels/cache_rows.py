"""Writing one position of each sentence into a key/value cache, as a few rows."""

from keras import ops


def rows_at(index, heads, length):
    """Returns which rows of a cache hold the positions `index`, `(batch,)`.

    A cache `(batch, heads, length, width)` has `batch * heads * length` rows. The
    result is int32 of shape `(batch * heads, 1)`.
    """
    (batch,) = ops.shape(index)
    starts = ops.arange(0, batch * heads * length, length, dtype="int32")
    rows = ops.reshape(starts, (-1, heads)) + ops.expand_dims(index, 1)
    return ops.reshape(rows, (-1, 1))


def write_rows(states, rows, new):
    """Replaces `states[b, :, index[b]]` by `new[b]` for every sentence `b`.

    `rows` are those of `rows_at(index, heads, length)`.

    The plain form, `where(position == index, new, states)`, computes every entry of
    the cache. A scatter copies the cache, `(batch, heads, length, width)`, and writes
    one row for each head: `new`, with `width` elements a head.

    Hypotheses share the last axis: if they had a separate axis, XLA would copy a cache
    of one hypothesis twice in every step.
    """
    batch, heads, length, width = ops.shape(states)
    table, new_rows = (ops.reshape(x, (-1, width)) for x in (states, new))
    table = ops.scatter_update(table, rows, new_rows)
    return ops.reshape(table, (batch, heads, length, width))
