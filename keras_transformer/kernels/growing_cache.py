"""Caches that are short at first, since a decoding step reads its whole cache.

The plain form is a cache of its full length from the first step on.
"""

import keras
from keras import ops

# With fewer entries for each sentence, a shorter cache saves nothing.
MIN_ENTRIES = 128


def growing_lengths(max_length: int, num_hypotheses: int) -> list[int]:
    """Returns the lengths that a cache grows through, each twice the one before.

    Args:
        max_length: The last of the lengths.
        num_hypotheses: Number of hypotheses of each sentence.
    """
    length = 1
    while length * num_hypotheses < MIN_ENTRIES:
        length *= 2
    lengths = []
    while length < max_length:
        lengths.append(length)
        length *= 2
    return [*lengths, max_length]


def lengthen_cache(cache, length: int):
    """Extends all caches, each `(batch, heads, positions, width)`, with zeros.

    Args:
        cache: Nested structure of caches.
        length: The new number of positions.
    """

    def pad(states):
        missing = length - states.shape[2]
        return ops.pad(states, ((0, 0), (0, 0), (0, missing), (0, 0)))

    return keras.tree.map_structure(pad, cache)
