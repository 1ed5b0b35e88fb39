"""Attention over chosen axes of inputs with more than three axes."""

import math
import numbers

from keras import ops


class AttentionAxes:
    """Folds inputs `(batch, ..., dim)` into `(batch, length, dim)`, and back.

    The axes that attention runs over become the length; the others join the batch.

    Args:
        axes: The axes attended over, or None for all but the first and the last.
        rank: Number of axes of the inputs.

    Raises:
        ValueError: If an axis is the first or the last, or does not exist.
    """

    def __init__(self, axes, rank: int):
        inner = range(1, rank - 1)
        axes = inner if axes is None else axes
        axes = [axis + rank if axis < 0 else axis for axis in axes]
        if not axes or not set(axes) <= set(inner):
            raise ValueError(
                "`attention_axes` must be axes between the first and the last. "
                f"Received: attention_axes={tuple(axes)}, inputs with {rank} axes."
            )
        self._axes = axes
        self._others = [axis for axis in inner if axis not in axes]

    @property
    def _order(self):
        return [0, *self._others, *self._axes]

    def fold(self, states):
        """(batch, ..., dim) -> (batch * others, attended, dim)."""
        states = ops.transpose(states, (*self._order, len(self._order)))
        length = math.prod(ops.shape(states)[1 + len(self._others) : -1])
        return ops.reshape(states, (-1, length, states.shape[-1]))

    def unfold(self, states, like):
        """(batch * others, attended, dim) -> (batch, ..., dim), the axes as in `like`.

        `like` is the tensor that was folded; its `dim` may differ.
        """
        shape = ops.shape(like)
        states = ops.reshape(
            states, (*(shape[axis] for axis in self._order), states.shape[-1])
        )
        position = {axis: i for i, axis in enumerate(self._order)}
        order = [position[axis] for axis in range(len(self._order))]
        return ops.transpose(states, (*order, len(self._order)))

    def fold_mask(self, mask, like):
        """Folds a mask of `like`, with or without the axes not attended over."""
        if mask is None:
            return None
        shape = ops.shape(like)[:-1]
        if len(mask.shape) < len(shape):
            mask = ops.expand_dims(mask, self._others)
        mask = ops.broadcast_to(mask, shape)
        return ops.squeeze(self.fold(mask[..., None]), -1)

    def fold_positions(self, positions, like):
        """Repeats positions `(batch, length)` for the axes not attended over."""
        if positions is None or len(positions.shape) < 2:
            return positions
        shape = ops.shape(like)
        others = math.prod(shape[axis] for axis in self._others)
        length = ops.shape(positions)[1]
        positions = ops.broadcast_to(positions[:, None], (shape[0], others, length))
        return ops.reshape(positions, (-1, length))

    def fold_attention_mask(self, mask, query, key):
        """Folds `(batch, [others], [heads], queries..., keys...)` to four axes.

        As in Keras, axes that are missing are those after the batch.
        """
        if mask is None:
            return None
        num_attended, num_others = len(self._axes), len(self._others)
        shape_q, shape_k = ops.shape(query), ops.shape(key)
        missing = 2 + num_others + 2 * num_attended - len(mask.shape)
        first = len(mask.shape) - 2 * num_attended
        mask = ops.expand_dims(mask, list(range(first, first + missing)))
        heads = mask.shape[1 + num_others]
        batch = [shape_q[axis] for axis in (0, *self._others)]
        queries, keys = ([s[axis] for axis in self._axes] for s in (shape_q, shape_k))
        mask = ops.broadcast_to(mask, (*batch, heads, *queries, *keys))
        return ops.reshape(mask, (-1, heads, math.prod(queries), math.prod(keys)))

    def unfold_scores(self, scores, query, key):
        """(batch * others, heads, queries, keys) -> (batch, others..., heads, ...)."""
        shapes = ops.shape(query), ops.shape(key)
        return ops.reshape(scores, self.scores_shape(scores.shape[1], *shapes))

    def scores_shape(self, num_heads, query_shape, key_shape):
        """The shape of what `unfold_scores` returns."""
        batch = [query_shape[axis] for axis in (0, *self._others)]
        attended = [s[axis] for s in (query_shape, key_shape) for axis in self._axes]
        return (*batch, num_heads, *attended)


def as_tuple(name, sizes):
    """An integer or several as a tuple; None for None."""
    if sizes is None:
        return None
    sizes = tuple(sizes) if isinstance(sizes, (list, tuple)) else (sizes,)
    if not all(isinstance(size, numbers.Integral) for size in sizes):
        raise ValueError(
            f"Invalid `{name}`: it must be an integer or a tuple of integers. "
            f"Received: {name}={sizes}."
        )
    return sizes


def check_attention_shapes(query, value, key):
    """Raises `ValueError` unless the shapes of query, value and key fit each other."""
    for name, shape in (("query", query), ("value", value), ("key", key)):
        if len(shape) != len(query) or len(query) < 3:
            raise ValueError(
                f"`{name}` must have the shape (batch, length, hidden_dim), or as many "
                f"axes as the query. Received: {name} of shape {tuple(shape)}, query "
                f"of shape {tuple(query)}."
            )
        if None not in (shape[0], query[0]) and shape[0] != query[0]:
            raise ValueError(
                "The batch sizes of query, value and key must be equal. "
                f"Received: query of shape {tuple(query)}, {name} of shape "
                f"{tuple(shape)}."
            )
    for axis in range(1, len(key) - 1):
        if None not in (key[axis], value[axis]) and key[axis] != value[axis]:
            raise ValueError(
                "All axes of value and key but the last must be equal. "
                f"Received: value of shape {tuple(value)}, key of shape {tuple(key)}."
            )
