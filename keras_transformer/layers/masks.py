"""Masks: which positions may be attended to. True means that they may."""

import functools
from typing import Any, NamedTuple

from keras import ops

from keras_transformer.checks import check_integer_ids


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


def causal_mask(length):
    """Lets every position attend to itself and to the positions before it.

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
            or with the heads as its second axis, or None.
        use_causal_mask: Whether queries attend only to keys at their own position
            and before. The first query and the first key are at the same position.
    """

    query_mask: Any = None
    key_mask: Any = None
    attention_mask: Any = None
    use_causal_mask: bool = False

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
            return ops.take(mask, ops.minimum(rows, ops.shape(mask)[2] - 1), axis=2)

        query_mask, key_mask, attention_mask, causal = self
        if query_mask is not None:
            # LiteRT adds axes to booleans so, but not by an index such as `[:, None]`.
            query_mask = ops.expand_dims(query_mask, (1, 3))
        if key_mask is not None:
            key_mask = ops.expand_dims(key_mask, (1, 2))
        if attention_mask is not None and len(attention_mask.shape) == 3:
            attention_mask = ops.expand_dims(attention_mask, 1)
        positions = ops.arange(query_length) if rows is None else rows
        return combine_masks(
            at_rows(query_mask),
            key_mask,
            _not_after(positions, key_length)[None, None] if causal else None,
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
