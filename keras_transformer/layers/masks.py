"""Masks: which positions may be attended to. True means that they may."""

import functools
from typing import Any, NamedTuple

from keras import ops

from keras_transformer.checks import check_ids, check_integer_ids


def padding_mask(ids, pad_id: int = 0):
    """Marks the real tokens of padded sequences.

    Args:
        ids: Integer tensor of shape `(batch, length)`.
        pad_id: The id that fills sequences up to the length of the longest.

    Returns:
        A boolean tensor of shape `(batch, length)`, True at real tokens.

    Raises:
        ValueError: If `ids` are not integers.

    Example:
        >>> ops.convert_to_numpy(padding_mask(np.array([[7, 5, 0]])))
        array([[ True,  True, False]])
    """
    check_integer_ids(ids)
    return ops.not_equal(ids, pad_id)


def causal_mask(length: int):
    """Lets every position attend to itself and to the positions before it.

    Args:
        length: Number of positions.

    Returns:
        A boolean tensor of shape `(1, length, length)`: `(batch, query, key)`.

    Example:
        >>> ops.convert_to_numpy(causal_mask(3)).astype(int)
        array([[[1, 0, 0],
                [1, 1, 0],
                [1, 1, 1]]])

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.2.3
    """
    return _not_after(ops.arange(length), length)[None]


def packed_mask(segment_ids):
    """Lets every position attend to its own segment of a packed row alone.

    Packed rows hold several short sequences, one after the other, instead of padding.
    The mask is block-diagonal; `packed_positions` are the positions to match.

    Args:
        segment_ids: Integer tensor of shape `(batch, length)`: 1 at the first sequence
            of each row, 2 at the second and so on, and 0 at padding.

    Returns:
        A boolean tensor of shape `(batch, length, length)`: `(batch, query, key)`, for
        the call argument `attention_mask`. Nothing attends to padding, nor does padding
        attend to anything.

    Raises:
        ValueError: If `segment_ids` are not integers of shape `(batch, length)`.

    Example:
        >>> mask = packed_mask(np.array([[1, 1, 2, 0]]))
        >>> ops.convert_to_numpy(mask).astype(int)
        array([[[1, 1, 0, 0],
                [1, 1, 0, 0],
                [0, 0, 1, 0],
                [0, 0, 0, 0]]])

    Reference:
        [Raffel et al., 2020](https://arxiv.org/abs/1910.10683), section 3.1.2
    """
    check_ids(segment_ids, "segment_ids")
    queries, keys = segment_ids[:, :, None], segment_ids[:, None, :]
    return ops.logical_and(ops.equal(queries, keys), ops.not_equal(queries, 0))


def packed_positions(segment_ids):
    """Positions in packed rows, counted from the start of each segment.

    Args:
        segment_ids: Integer tensor of shape `(batch, length)`, as in `packed_mask`.

    Returns:
        An int32 tensor of shape `(batch, length)`, for the call argument `positions`; 0
        at padding.

    Raises:
        ValueError: If `segment_ids` are not integers of shape `(batch, length)`.

    Example:
        >>> ops.convert_to_numpy(packed_positions(np.array([[1, 1, 1, 2, 2, 0]])))
        array([[0, 1, 2, 0, 1, 0]], dtype=int32)
    """
    check_ids(segment_ids, "segment_ids")
    # Not `ops.arange`: the length of a `keras.Input` may be unknown.
    indices = ops.cumsum(ops.ones_like(segment_ids, "int32"), axis=1) - 1
    begins = ops.not_equal(segment_ids[:, 1:], segment_ids[:, :-1])
    begins = ops.pad(ops.cast(begins, "int32"), ((0, 0), (1, 0)), constant_values=1)
    # The start of the n-th segment is the n-th of the indices at which one begins.
    starts = ops.sort(ops.where(begins > 0, indices, 2**31 - 1), axis=1)
    segments = ops.cumsum(begins, axis=1) - 1
    positions = indices - ops.take_along_axis(starts, segments, axis=1)
    return ops.where(ops.equal(segment_ids, 0), 0, positions)


def combine_masks(*masks):
    """True where every given mask is True; None if none is given."""
    given = [ops.cast(mask, "bool") for mask in masks if mask is not None]
    return functools.reduce(ops.logical_and, given) if given else None


def zero_masked(states, mask):
    """Zeroes masked states: weighted with zero, a NaN would still be a NaN.

    The mask, `(batch, ..., length)` or None, broadcasts to the axes before the last.
    """
    return states if mask is None else ops.where(ops.expand_dims(mask, -1), states, 0)


class AttentionMasks(NamedTuple):
    """The masks of one call of attention with heads.

    They are combined only for the queries at hand: long inputs never need a mask of
    all pairs of a query and a key.

    Attributes:
        query_mask: Boolean tensor of shape `(batch, query_length)`, or None.
        key_mask: Boolean tensor of shape `(batch, key_length)`, or None.
        attention_mask: Boolean tensor of shape `(batch, query_length, key_length)`,
            with the heads as its second axis or without the batch, or None.
        use_causal_mask: Whether queries attend only to keys at their own position
            and before. The first query and the first key are at the same position.
        sliding_window: Queries attend only to keys less than so many positions away;
            None for any distance.
    """

    query_mask: Any = None
    key_mask: Any = None
    attention_mask: Any = None
    use_causal_mask: bool = False
    sliding_window: int | None = None

    def combined(self, query_length, key_length, rows=None):
        """Which keys each query may attend to.

        Args:
            query_length: Number of queries.
            key_length: Number of keys.
            rows: Positions `(rows,)` of the queries at hand; all queries unless
                given. Rows beyond the last query get the mask of the last.

        Returns:
            A boolean tensor that broadcasts to `(batch, heads, rows, key_length)`,
            or None if nothing is masked.
        """

        def at_rows(mask):
            if mask is None or rows is None:
                return mask
            return ops.take(mask, ops.clip(rows, 0, ops.shape(mask)[2] - 1), axis=2)

        query_mask, key_mask, attention_mask, causal, window = self
        if query_mask is not None:
            query_mask = ops.expand_dims(query_mask, (1, 3))
        if key_mask is not None:
            key_mask = ops.expand_dims(key_mask, (1, 2))
        if attention_mask is not None and len(attention_mask.shape) < 4:
            axes = 1 if len(attention_mask.shape) == 3 else (0, 1)
            attention_mask = ops.expand_dims(attention_mask, axes)
        positions = rows
        if rows is None and (causal or window):
            positions = ops.arange(query_length)
        return combine_masks(
            at_rows(query_mask),
            key_mask,
            _not_after(positions, key_length)[None, None] if causal else None,
            _within(window, positions, key_length)[None, None] if window else None,
            at_rows(attention_mask),
        )

    def zero_masked(self, *states):
        """Zeroes masked keys and values, `(batch, heads, length, dim)`."""
        mask = self.key_mask
        mask = None if mask is None else ops.expand_dims(mask, 1)
        return [zero_masked(x, mask) for x in states]


def _not_after(query_positions, key_length):
    """(query, key): whether a key is not after the query, which makes masks causal."""
    return query_positions[:, None] >= ops.arange(key_length)


def _within(window, query_positions, key_length):
    """(query, key): whether a key is less than `window` positions from the query."""
    distances = query_positions[:, None] - ops.arange(key_length)
    return ops.less(ops.abs(distances), window)
