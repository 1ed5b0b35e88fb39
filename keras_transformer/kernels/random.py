"""Random numbers that depend on a seed alone, and draws with them.

The numbers of `keras.random` differ between backends, and between compiled and other
code. These are the same everywhere, so that a model and its export draw the same.
"""

import numpy as np
from keras import ops

from keras_transformer.kernels.selection import first_equal, split_in_blocks, take_one


def uniforms(max_length: int, keys, seed: int):
    """Computes uniform numbers in `[0, 1)`, float32 of shape `(max_length, rows)`.

    Those of a row depend on its key, an int32 of `keys`, `(rows,)`, and on `seed`, an
    integer of at least 0: not on the other rows.
    """
    states = np.random.SeedSequence(seed).generate_state(max_length).view("int32")
    bits = scramble(ops.bitwise_xor(scramble(keys), states[:, None]))
    return ops.cast(shift_right(bits, 8), "float32") * 2.0**-24


def hash_rows(ids, pad_id: int):
    """Hashes each row, `(batch, length)`, to an int32 that padding does not change."""
    positions = scramble(ops.arange(ops.shape(ids)[1], dtype="int32"))
    hashes = scramble(ops.bitwise_xor(positions, ops.cast(ids, "int32")))
    return ops.sum(ops.where(ops.equal(ids, pad_id), 0, hashes), axis=1)


def scramble(x):
    """Maps 32-bit integers to 32-bit integers that look random.

    Reference:
        [Wellons, 2018](https://nullprogram.com/blog/2018/07/31/), `lowbias32`
    """
    x = ops.bitwise_xor(x, shift_right(x, 16)) * np.int32(0x7FEB352D)
    x = ops.bitwise_xor(x, shift_right(x, 15)) * np.int32(0x846CA68B - 2**32)
    return ops.bitwise_xor(x, shift_right(x, 16))


def shift_right(x, count: int):
    """Shifts the bits of int32 integers to the right, with zeros from the left."""
    shifted = ops.bitwise_right_shift(x, np.int32(count))  # with copies of the sign
    # Not by a mask: LiteRT has no bitwise "and".
    return ops.where(x < 0, shifted + np.int32(2 ** (32 - count)), shifted)


def draw(weights, uniform):
    """Draws an int32 position of each row with the probability of its weight.

    That is where the cumulative sum of the weights, `(rows, size)`, at least 0 and of
    any sum, exceeds `uniform`, `(rows,)`, of the total. A position of weight zero is
    not drawn, unless all weights are zero. `ops.cumsum` is slow on long rows: here it
    sums blocks, and then one block.
    """
    blocks = split_in_blocks(weights, fill=0.0)
    totals = ops.sum(blocks, axis=-1)
    block, remainder = invert_cdf(totals, uniform * ops.sum(totals, axis=-1))
    position, _ = invert_cdf(take_one(blocks, block), remainder)
    return block * blocks.shape[-1] + position


def invert_cdf(weights, level):
    """Finds where the cumulative sum of each row, `(rows, size)`, exceeds its level.

    Returns the position, and `level` less the weights before that position.
    """
    sums = ops.cumsum(weights, axis=-1)
    exceeds = (sums > level[:, None]) & (weights > 0)
    # Where rounding lets no sum exceed the level, the largest weight is taken.
    candidates = ops.where(exceeds, np.inf, weights)
    position = first_equal(candidates, ops.max(candidates, axis=-1, keepdims=True))
    return position, level - take_one(sums - weights, position)
