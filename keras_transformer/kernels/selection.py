"""Selection from long rows: top-k, top-p, gathers, and writes of a few rows.

The vocabulary is by far the longest axis of decoding. For top-k, a row is split into
blocks, about as many as a block is long. One fast pass finds the maximum of every
block, and only the blocks with the largest are searched. On two CPU cores this takes a
quarter of the time of `ops.top_k`, for the same result.
"""

import math

import numpy as np
from keras import ops

from keras_transformer.kernels import target
from keras_transformer.kernels.graphs import shape_of

# The several small operations on blocks take longer than `ops.top_k` of a shorter row.
MIN_LENGTH_FOR_BLOCKS = 1024


def top_k_in_blocks(x, count: int):
    """Finds the largest values of each row of `x`, `(rows, size)`, as `ops.top_k` does.

    Returns the values in falling order and their int32 positions, both `(rows, count)`.
    Of equal values the first comes first.
    """
    size = x.shape[-1]
    if size < MIN_LENGTH_FOR_BLOCKS or 4 * count > math.isqrt(size):
        return top_k(x, count)
    blocks = split_in_blocks(x, fill=-np.inf)
    length = blocks.shape[-1]
    # The blocks with the largest maxima hold the largest values. Blocks are sorted by
    # position, so the first of equal values stays first.
    _, best_blocks = top_k(ops.max(blocks, axis=-1), count)
    best_blocks = ops.sort(best_blocks, axis=-1)
    candidates = ops.reshape(take_rows(blocks, best_blocks), (-1, count * length))
    values, places = top_k(candidates, count)
    positions = take_rows(best_blocks, places // length) * length + places % length
    # Where `ops.top_k` returns equal values in any order, it may return the padding.
    return values, ops.clip(positions, 0, size - 1)


def top_k(x, count: int):
    """`ops.top_k` with the first of equal values first, on PyTorch too."""
    if target.BACKEND == "torch":
        places = ops.argsort(-x, axis=-1)[..., :count]
        return ops.take_along_axis(x, places, axis=-1), places
    return ops.top_k(x, count)


def top_one(values, ids):
    """Finds the largest of `(rows, count)` values that a top-k returned, and its id.

    For values in falling order that is `values[:, 0], ids[:, 0]`. XLA uses its fast
    top-k only if nothing slices the result, so nothing here does.
    """
    largest = ops.max(values, axis=-1, keepdims=True)
    return ops.squeeze(largest, -1), take_one(ids, first_equal(values, largest))


def first_equal(values, one):
    """Returns the int32 position, `(rows,)`, of the first value that equals `one`.

    `values` have the shape `(rows, count)`, `one` has `(rows, 1)`. Keras's `argmax` of
    floats has bitwise operations, which LiteRT lacks.
    """
    is_equal = ops.cast(ops.equal(values, one), "int32")
    return ops.cast(ops.argmax(is_equal, axis=-1), "int32")


def split_in_blocks(x, fill: float):
    """Splits `(rows, size)` into `(rows, blocks, length)`, padded by `fill`."""
    size = x.shape[-1]
    length = block_length(size)
    missing = -size % length
    if missing:
        x = ops.pad(x, ((0, 0), (0, missing)), constant_values=fill)
    return ops.reshape(x, (-1, (size + missing) // length, length))


def block_length(size: int) -> int:
    """Returns a length near the square root of `size`, a divisor if there is one."""
    root = math.isqrt(size)
    near = range(max(root // 2, 1), 2 * root)
    divisors = [length for length in near if size % length == 0]
    return min(divisors or [root], key=lambda length: abs(length - root))


def in_nucleus(log_weights, weights, probability: float):
    """Finds the fewest, likeliest tokens that hold a probability, in `(0, 1]`.

    Sorting gives the same but takes far longer: this bisects for the log-weight of the
    last of them, and reads the vocabulary a fixed number of times.

    `log_weights`, `(..., size)`, are at most 0; `weights` are their exponentials, of
    any sum. Returns a boolean tensor of the same shape: True where the likelier tokens
    alone do not hold the probability. Equally likely tokens are in it together.
    """
    wanted = probability * ops.sum(weights, axis=-1, keepdims=True)

    def halve(_, interval):
        low, high = interval
        middle = (low + high) / 2
        above = ops.where(log_weights > middle, weights, 0.0)
        holds = ops.sum(above, axis=-1, keepdims=True) >= wanted
        return ops.where(holds, middle, low), ops.where(holds, high, middle)

    # Below this a float32 exponential is zero. 32 halvings reach its precision.
    low = ops.full_like(wanted, -104.0)
    low, _ = ops.fori_loop(0, 32, halve, (low, ops.zeros_like(wanted)))
    return log_weights > low


def take_rows(x, indices):
    """Takes entries of each row: `result[r, i] = x[r, indices[r, i]]`.

    `x` has the shape `(rows, choices, ...)`, the int32 `indices` have `(rows, count)`.
    `ops.take_along_axis` gives the same in more operations.
    """
    if x.shape[0] == 0:  # JAX cannot gather from an empty tensor.
        return ops.zeros((*ops.shape(indices), *x.shape[2:]), x.dtype)
    if target.BACKEND == "tensorflow":
        import tensorflow as tf

        return tf.gather(x, indices, axis=1, batch_dims=1)
    num_rows, choices, *rest = ops.shape(x)
    starts = ops.arange(0, num_rows * choices, choices, dtype="int32")
    flat = ops.reshape(x, (-1, *rest))
    return ops.take(flat, ops.expand_dims(starts, 1) + indices, axis=0)


def take_one(x, indices):
    """Takes one entry of each row: `result[r] = x[r, indices[r]]`.

    `x` has the shape `(rows, choices, ...)`, the int32 `indices` have `(rows,)`.
    """
    return ops.squeeze(take_rows(x, ops.expand_dims(indices, 1)), 1)


def take_last(x, indices):
    """Takes one entry of the last axis: `result[b, i] = x[b, i, indices[b, i]]`.

    The int32 `indices` have the shape of `x`, `(..., choices)`, without its last axis.
    They may count from the end, as for `ops.take_along_axis`, which takes forty
    operations on TensorFlow where sizes are unknown.
    """
    if target.BACKEND != "tensorflow":
        return ops.take_along_axis(x, indices[..., None], axis=-1)[..., 0]
    import tensorflow as tf

    indices = tf.where(indices < 0, indices + x.shape[-1], indices)
    return tf.gather(x, indices, axis=-1, batch_dims=len(indices.shape))


def rows_at(index, heads, length):
    """Returns which rows of a cache hold the positions `index`, `(batch,)`.

    A cache `(batch, heads, length, width)` has `batch * heads * length` rows. The
    result is int32 of shape `(batch * heads, 1)`.
    """
    (batch,) = shape_of(index)
    starts = ops.arange(0, batch * heads * length, length, dtype="int32")
    rows = ops.reshape(starts, (-1, heads)) + ops.expand_dims(index, 1)
    return ops.reshape(rows, (-1, 1))


def write_rows(states, rows, new):
    """Replaces `states[b, :, index[b]]` by `new[b]` for every sentence `b`.

    `rows` is what `rows_at(index, heads, length)` returns.

    The plain form, `where(position == index, new, states)`, computes every entry of
    the cache. A scatter copies the cache, `(batch, heads, length, width)`, and writes
    one row for each head: `new`, with `width` elements a head.

    Hypotheses share the last axis: if they had a separate axis, XLA would copy a cache
    of one hypothesis twice in every step.
    """
    batch, heads, length, width = shape_of(states, for_reshape=True)
    table, new_rows = (ops.reshape(x, (-1, width)) for x in (states, new))
    table = ops.scatter_update(table, rows, new_rows)
    return ops.reshape(table, (batch, heads, length, width))
