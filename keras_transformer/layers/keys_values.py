"""Keys and values, which the queries of multi-head attention read."""

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_transformer.kernels.graphs import shape_of
from keras_transformer.kernels.selection import rows_at, write_rows


class KeyValues(NamedTuple):
    """Projected keys and values, with their mask and positions.

    The memory of cross-attention, a prompt and a cache are each one. A cache holds the
    entries of a sentence's hypotheses: its last axis is `num_hypotheses * dim` wide,
    and the hypothesis in slot `j` writes the `j`-th part at each step.

    Attributes:
        keys: Float tensor of shape `(batch, num_heads, length, key_dim)`, rotated to
            their positions.
        values: Float tensor of shape `(batch, num_heads, length, value_dim)`.
        mask: Boolean tensor of shape `(batch, length)`; None if all may be read. Keys
            and values are zero where it is False.
        positions: Int32 tensor of shape `(length,)` or `(batch, length)`; None if the
            attention uses no positions.
    """

    keys: Any
    values: Any
    mask: Any = None
    positions: Any = None

    def join(self, others):
        """Returns these keys and values, followed by `others`."""
        both = self, others
        batch = shape_of(self.keys)[0]
        shapes = [(batch, shape_of(x.keys)[2]) for x in both]
        mask = positions = None
        if any(x.mask is not None for x in both):
            real = (x.mask if x.mask is not None else True for x in both)
            mask = ops.concatenate([*map(ops.broadcast_to, real, shapes)], axis=1)
        if self.positions is not None:
            positions = map(ops.broadcast_to, (x.positions for x in both), shapes)
            positions = ops.concatenate([*positions], axis=1)
        return KeyValues(
            keys=ops.concatenate([self.keys, others.keys], axis=2),
            values=ops.concatenate([self.values, others.values], axis=2),
            mask=mask,
            positions=positions,
        )

    def write(self, index, new):
        """Returns a cache with what every hypothesis adds at the entries `index`.

        `index` has the shape `(batch,)`, and `new`, `KeyValues`, has `(batch,
        num_heads, num_hypotheses, dim)`. All hypotheses of a sentence are at the same
        position.
        """
        length = self.keys.shape[2]
        rows = rows_at(index, *self.keys.shape[1:3])
        positions = self.positions
        if positions is not None:
            is_here = ops.arange(length, dtype="int32") == ops.expand_dims(index, 1)
            positions = ops.where(is_here, new.positions[:, :1], positions)
        return self._replace(
            keys=write_rows(self.keys, rows, new.keys),
            values=write_rows(self.values, rows, new.values),
            positions=positions,
        )

    def entries(self, num_hypotheses: int):
        """Returns the entries of a cache, in the order (position, hypothesis)."""

        def separate(states):
            batch, heads, length, width = shape_of(states, for_reshape=True)
            entries = length * num_hypotheses
            return ops.reshape(states, (batch, heads, entries, width // num_hypotheses))

        positions = self.positions
        if positions is not None and num_hypotheses > 1:
            positions = ops.repeat(positions, num_hypotheses, axis=1)
        return self._replace(
            keys=separate(self.keys),
            values=separate(self.values),
            positions=positions,
        )


def empty_cache(like: KeyValues, num_hypotheses: int, max_length: int, positions: bool):
    """Returns an empty cache with the batch, the heads and the widths of `like`.

    `positions` says whether its entries, `max_length` of each hypothesis, have
    positions.
    """

    def empty(states):
        batch, heads, _, dim = shape_of(states)
        shape = (batch, heads, max_length, num_hypotheses * dim)
        return ops.zeros(shape, states.dtype)

    shape = (shape_of(like.keys)[0], max_length)
    return KeyValues(
        keys=empty(like.keys),
        values=empty(like.values),
        positions=ops.zeros(shape, "int32") if positions else None,
    )


def lengthen_cache(cache, length: int):
    """Extends all caches of a nested structure to `length` positions, with zeros."""

    def pad(states):
        axis = 2 if len(states.shape) == 4 else 1
        padding = [[0, 0]] * len(states.shape)
        padding[axis] = [0, length - states.shape[axis]]
        return ops.pad(states, padding)

    return keras.tree.map_structure(pad, cache, none_is_leaf=False)
