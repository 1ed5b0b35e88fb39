"""The key/value cache of step-by-step decoding.

A cache holds the keys and the values of one block, each of shape
`(batch, num_heads, max_length, num_hypotheses * dim)`. Its size is fixed; a step
writes one position. `decoding.lineage` says which hypothesis wrote what.
"""

import numpy as np
from keras import ops

from keras_transformer.kernels.cache_rows import rows_at, write_rows


def empty_cache(keys, num_hypotheses, max_length):
    """A cache for keys and values like `keys`, `(batch, heads, length, dim)`."""
    batch, heads, _, dim = ops.shape(keys)
    empty = ops.zeros((batch, heads, max_length, num_hypotheses * dim), keys.dtype)
    return {"keys": empty, "values": empty}


def write_step(cache, index, keys, values):
    """Returns a cache with what every hypothesis adds at position `index`, `(batch,)`.

    New `keys` and `values` have the shape `(batch, num_heads, num_hypotheses, dim)`.
    """
    rows = rows_at(index, *cache["keys"].shape[1:3])
    return {
        "keys": write_rows(cache["keys"], rows, keys),
        "values": write_rows(cache["values"], rows, values),
    }


def cache_entries(cache, num_hypotheses):
    """Keys and values, each `(batch, heads, max_length * num_hypotheses, dim)`."""
    for states in (cache["keys"], cache["values"]):
        batch, heads, max_length, width = ops.shape(states)
        shape = (batch, heads, max_length * num_hypotheses, width // num_hypotheses)
        yield ops.reshape(states, shape)


def cache_positions(max_length, num_hypotheses):
    """Positions of the entries of a cache, in the order (position, hypothesis)."""
    positions = np.repeat(np.arange(max_length, dtype="int32"), num_hypotheses)
    return ops.convert_to_tensor(positions)
