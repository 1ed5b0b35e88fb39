"""What blocks and stacks that decode step by step have in common.

A cache holds the keys and the values of one block, each of shape
`(batch, num_heads, max_length, num_hypotheses * dim)`; `decoding.cache` tells
who wrote what into it. (With an axis of its own for a single hypothesis, XLA takes
the cache for one of another layout, and copies it twice a step.)
"""

import keras
from keras import ops

# What a step reads costs little up to about so many entries for each sentence.
FEW_ENTRIES = 128


def cache_lengths(max_length, num_hypotheses):
    """How long a cache is to be, one after the other: twice as long each time.

    A step reads all of the cache, full or not. What lengthens it is a copy, once.
    """
    length = 1
    while length * num_hypotheses < FEW_ENTRIES:
        length *= 2
    lengths = []
    while length < max_length:
        lengths.append(length)
        length *= 2
    return [*lengths, max_length]


def lengthen_cache(cache, length):
    """Makes room for `length` positions in a structure of caches."""

    def pad(states):
        missing = length - states.shape[2]
        return ops.pad(states, ((0, 0), (0, 0), (0, missing), (0, 0)))

    return keras.tree.map_structure(pad, cache)


def empty_cache(keys, num_hypotheses, max_length):
    """Makes room for keys and values like `keys`, `(batch, heads, length, dim)`."""
    batch, heads, _, dim = ops.shape(keys)
    shape = (batch, heads, max_length, num_hypotheses * dim)
    empty = ops.zeros(shape, keys.dtype)
    return {"keys": empty, "values": empty}


def write_step(cache, index, keys, values):
    """Writes what every hypothesis adds at position `index`.

    Args:
        cache: Keys and values, see above.
        index: Position, an integer tensor.
        keys: Float tensor of shape `(batch, num_heads, num_hypotheses, dim)`.
        values: Float tensor of the same shape.

    Returns:
        The new cache.
    """
    batch, heads, max_length, _ = ops.shape(cache["keys"])
    rows = ops.arange(batch * heads)[:, None] * max_length + index

    def write(states, new):
        # One row for each head: a copy and few writes, where a choice between
        # old and new would compute every entry.
        width = states.shape[-1]
        table = ops.scatter_update(
            ops.reshape(states, (-1, width)), rows, ops.reshape(new, (-1, width))
        )
        return ops.reshape(table, ops.shape(states))

    return {
        "keys": write(cache["keys"], keys),
        "values": write(cache["values"], values),
    }


def cache_entries(cache, num_hypotheses):
    """Keys and values, each `(batch, heads, max_length * num_hypotheses, dim)`."""
    for states in (cache["keys"], cache["values"]):
        batch, heads, max_length, width = ops.shape(states)
        shape = (batch, heads, max_length * num_hypotheses, width // num_hypotheses)
        yield ops.reshape(states, shape)


def cache_positions(max_length, num_hypotheses):
    """Where the entries of a cache stand, in the order (position, hypothesis)."""
    positions = ops.arange(max_length)[:, None]
    return ops.reshape(ops.broadcast_to(positions, (max_length, num_hypotheses)), (-1,))


def step_through(blocks, states, memory, memory_mask, cache, index, visible):
    """Decodes one position through all blocks, by the `step` of each.

    Returns:
        The states after the last block, and the new cache.
    """
    new_cache = []
    for block, block_memory, block_cache in zip(blocks, memory, cache, strict=True):
        states, block_cache = block.step(
            states, block_memory, memory_mask, block_cache, index, visible
        )
        new_cache.append(block_cache)
    return states, new_cache
