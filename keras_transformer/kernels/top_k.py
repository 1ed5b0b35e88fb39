"""Work along the vocabulary: the largest values, and draws.

The vocabulary is by far the longest axis of decoding. A long row is cut into
blocks, about as many as a block is long; one fast pass reduces every block,
and only the blocks that matter are looked at closely. On two CPU cores that
takes a quarter of the time of `ops.top_k`, and a small part of that of
`ops.cumsum`, for the same result.
"""

import math

import numpy as np
from keras import ops

from keras_transformer.kernels import target
from keras_transformer.kernels.gather import pick, take_rows

# A shorter row takes less time as it is than several small operations do.
SHORTEST_CUT = 1024


def largest(x, count: int):
    """Finds the largest values of each row, as `ops.top_k` does.

    Args:
        x: Float tensor of shape `(rows, size)`.
        count: How many to find, at most `size`.

    Returns:
        The values in falling order and their int32 positions, both of shape
        `(rows, count)`. Of equal values the first comes first.
    """
    size = x.shape[-1]
    if size < SHORTEST_CUT or 4 * count > math.isqrt(size):
        return top_k(x, count)
    blocks = cut(x, fill=-np.inf)
    length = blocks.shape[-1]
    # The blocks with the largest maxima hold the largest values. In the order
    # of their positions, equal values stay in order too.
    _, found = top_k(ops.max(blocks, axis=-1), count)
    found = ops.sort(found, axis=-1)
    candidates = ops.reshape(take_rows(blocks, found), (-1, count * length))
    values, places = top_k(candidates, count)
    positions = take_rows(found, places // length) * length + places % length
    # A backend whose top-k orders equal values freely may find the filling.
    return values, ops.minimum(positions, size - 1)


def top_k(x, count: int):
    """`ops.top_k`, which PyTorch has with equal values in any order."""
    if target.is_torch():
        places = ops.argsort(-x, axis=-1)[..., :count]
        return ops.take_along_axis(x, places, axis=-1), places
    return ops.top_k(x, count)


def draw(weights, uniform):
    """Draws a position of each row with the probability of its weight.

    Args:
        weights: Float tensor of shape `(rows, size)`, at least 0, of any sum.
        uniform: Float tensor of shape `(rows,)`, drawn evenly from `[0, 1)`.

    Returns:
        Int32 positions of shape `(rows,)`: the inverse of the distribution
        function at `uniform`. A position of weight zero is not drawn, unless
        all weights are zero.
    """
    blocks = cut(weights, fill=0.0)
    totals = ops.sum(blocks, axis=-1)
    block, remainder = locate(totals, uniform * ops.sum(totals, axis=-1))
    position, _ = locate(pick(blocks, block), remainder)
    return block * blocks.shape[-1] + position


def locate(weights, target):
    """Finds where the running sum of a row exceeds a target.

    Returns:
        The position, and what of the target is left when the weights before
        that position are taken off; both of shape `(rows,)`.
    """
    reached = ops.cumsum(weights, axis=-1)
    exceeds = (reached > target[:, None]) & (weights > 0)
    # Where rounding lets no sum exceed the target, the largest weight will do.
    position = ops.argmax(ops.where(exceeds, np.inf, weights), axis=-1)
    position = ops.cast(position, "int32")
    return position, target - pick(reached - weights, position)


def cut(x, fill: float):
    """Cuts rows into blocks of equal length.

    Args:
        x: Tensor of shape `(rows, size)`.
        fill: What fills the last block up.

    Returns:
        A tensor of shape `(rows, blocks, length)`.
    """
    size = x.shape[-1]
    length = block_length(size)
    missing = -size % length
    if missing:
        x = ops.pad(x, ((0, 0), (0, missing)), constant_values=fill)
    return ops.reshape(x, (-1, (size + missing) // length, length))


def block_length(size: int) -> int:
    """Returns a length near the square root, a divisor of the size if it can."""
    root = math.isqrt(size)
    near = range(max(root // 2, 1), 2 * root)
    divisors = [length for length in near if size % length == 0]
    return min(divisors or [root], key=lambda length: abs(length - root))
