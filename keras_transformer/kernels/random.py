"""Random numbers that depend on a seed and on nothing else."""

import numpy as np
from keras import ops


def uniforms(max_length: int, rows, seed: int):
    """Draws numbers evenly from `[0, 1)`, one for each position and row.

    `keras.random` gives other numbers compiled than not, and others on another
    backend. These are the same everywhere, so that a seed means the same in a
    model and in what is exported of it; nor does a row change with the others.

    Args:
        max_length: Number of positions.
        rows: Int32 tensor of shape `(rows,)` that tells the rows apart: equal
            ones have equal numbers.
        seed: Integer of at least 0.

    Returns:
        A float32 tensor of shape `(max_length, rows)`.
    """
    keys = np.random.SeedSequence(seed).generate_state(max_length).view("int32")
    bits = scramble(ops.bitwise_xor(scramble(rows), keys[:, None]))
    return ops.cast(shift_right(bits, 8), "float32") * 2.0**-24


def digest(ids, pad_id: int):
    """Sums each row up in one number that padding does not change.

    Args:
        ids: Integer tensor of shape `(batch, length)`.
        pad_id: The id that does not count.

    Returns:
        An int32 tensor of shape `(batch,)`.
    """
    positions = scramble(ops.arange(ops.shape(ids)[1], dtype="int32"))
    marks = scramble(ops.bitwise_xor(positions, ops.cast(ids, "int32")))
    return ops.sum(ops.where(ops.equal(ids, pad_id), 0, marks), axis=1)


def scramble(x):
    """Maps 32-bit integers to 32-bit integers that look unrelated.

    Reference:
        [Wellons, 2018](https://nullprogram.com/blog/2018/07/31/), `lowbias32`
    """
    x = ops.bitwise_xor(x, shift_right(x, 16)) * np.int32(0x7FEB352D)
    x = ops.bitwise_xor(x, shift_right(x, 15)) * np.int32(0x846CA68B - 2**32)
    return ops.bitwise_xor(x, shift_right(x, 16))


def shift_right(x, count: int):
    """Shifts the bits of int32 integers, zeros coming in."""
    shifted = ops.bitwise_right_shift(x, np.int32(count))
    return ops.bitwise_and(shifted, np.int32(2 ** (32 - count) - 1))
