"""The key/value cache of step-by-step decoding.

A cache holds the keys and the values of one block, each of shape
`(batch, num_heads, max_length, num_hypotheses * dim)`. Its size is fixed; a step
writes one position. `decoding.cache` tracks which hypothesis wrote what.
"""

import keras
from keras import ops

from keras_transformer.kernels.cache_rows import write_rows

# Up to about this many entries for each sentence, a step reads the cache for free.
MIN_ENTRIES = 128


def cache_lengths(max_length, num_hypotheses):
    """The lengths that a growing cache has one after the other, each twice the last.

    A step reads the whole cache, full or not, so a cache starts short.
    """
    length = 1
    while length * num_hypotheses < MIN_ENTRIES:
        length *= 2
    lengths = []
    while length < max_length:
        lengths.append(length)
        length *= 2
    return [*lengths, max_length]


def empty_cache(keys, num_hypotheses, max_length):
    """A cache for keys and values like `keys`, `(batch, heads, length, dim)`."""
    batch, heads, _, dim = ops.shape(keys)
    empty = ops.zeros((batch, heads, max_length, num_hypotheses * dim), keys.dtype)
    return {"keys": empty, "values": empty}


def lengthen_cache(cache, length):
    """Extends every cache of a nested structure to `length` positions."""

    def pad(states):
        missing = length - states.shape[2]
        return ops.pad(states, ((0, 0), (0, 0), (0, missing), (0, 0)))

    return keras.tree.map_structure(pad, cache)


def write_step(cache, index, keys, values):
    """Returns a cache with what every hypothesis adds at position `index`, `(batch,)`.

    New `keys` and `values` have the shape `(batch, num_heads, num_hypotheses, dim)`.
    """
    return {
        "keys": write_rows(cache["keys"], index, keys),
        "values": write_rows(cache["values"], index, values),
    }


def cache_entries(cache, num_hypotheses):
    """Keys and values, each `(batch, heads, max_length * num_hypotheses, dim)`."""
    for states in (cache["keys"], cache["values"]):
        batch, heads, max_length, width = ops.shape(states)
        shape = (batch, heads, max_length * num_hypotheses, width // num_hypotheses)
        yield ops.reshape(states, shape)


def cache_positions(max_length, num_hypotheses):
    """Positions of the entries of a cache, in the order (position, hypothesis)."""
    positions = ops.arange(max_length)[:, None]
    return ops.reshape(ops.broadcast_to(positions, (max_length, num_hypotheses)), (-1,))
