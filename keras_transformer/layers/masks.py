"""Masks: which positions may be attended to. True means that they may."""

import functools

from keras import ops

from keras_transformer.checks import check_ids, check_shape


def padding_mask(ids, pad_id: int = 0):
    """Marks the real tokens of padded sequences.

    Args:
        ids: Integer tensor of shape `(batch, length)`.
        pad_id: The id that pads sequences to the length of the longest.

    Returns:
        A boolean tensor of shape `(batch, length)`, True at real tokens.

    Raises:
        ValueError: If `ids` are not integers.

    Example:
        >>> ops.convert_to_numpy(padding_mask(np.array([[7, 5, 0]])))
        array([[ True,  True, False]])
    """
    check_ids(ids)
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
    positions = ops.arange(length)
    return (ops.expand_dims(positions, 1) >= positions)[None]


def combine_masks(*masks):
    """True where every given mask is True; None if none is given."""
    given = [ops.cast(mask, "bool") for mask in masks if mask is not None]
    return functools.reduce(ops.logical_and, given) if given else None


def zero_masked(states, mask):
    """Zeroes masked states: weighted with zero, a NaN would still be a NaN.

    The mask, `(batch, ..., length)` or None, broadcasts to the axes before the last.
    """
    return states if mask is None else ops.where(ops.expand_dims(mask, -1), states, 0)


def check_masks(query_length, key_length, attention_mask=None, **masks) -> None:
    """Raises `ValueError` unless masks have the lengths of queries and keys.

    Lengths that are not known are None.
    """
    for name, mask in masks.items():
        if mask is not None:
            check_shape(name, mask.shape, "batch", "length")
            length = query_length if name == "query_mask" else key_length
            if None not in (length, mask.shape[1]) and mask.shape[1] != length:
                raise ValueError(
                    f"`{name}` must have the shape (batch, {length}), for {length} "
                    f"positions. Received: {name} of shape {tuple(mask.shape)}."
                )
    if attention_mask is not None:
        shape, lengths = tuple(attention_mask.shape), (query_length, key_length)
        fits = (
            found in (1, None, length) or length is None
            for found, length in zip(shape[-2:], lengths, strict=False)
        )
        if not 2 <= len(shape) <= 4 or not all(fits):
            raise ValueError(
                "`attention_mask` must have the shape (batch, query_length, "
                f"key_length), for lengths {lengths}. "
                f"Received: attention_mask of shape {shape}."
            )


def combined_mask(
    query_length,
    key_length,
    query_mask=None,
    key_mask=None,
    attention_mask=None,
    use_causal_mask=False,
    rows=None,
):
    """Combines the masks of one call of attention with heads.

    `query_mask` and `key_mask` have the shape `(batch, length)`, `attention_mask` has
    `(batch, query_length, key_length)`, with the heads as its second axis or without
    the batch. Under a causal mask, the first query and the first key are at the same
    position.

    `rows` are indices `(rows,)` of some of the queries, so that long inputs never need
    a mask of all pairs of a query and a key. Indices beyond the last query get the mask
    of the last. None: all queries.

    Returns a boolean tensor that broadcasts to `(batch, heads, rows, key_length)`, or
    None if nothing is masked.
    """
    # Converters to ONNX and LiteRT fail on an index such as `mask[:, None]`.
    if query_mask is not None:
        query_mask = ops.expand_dims(query_mask, (1, 3))
    if key_mask is not None:
        key_mask = ops.expand_dims(key_mask, (1, 2))
    if attention_mask is not None:
        axes = {2: (0, 1), 3: 1, 4: ()}[len(attention_mask.shape)]
        attention_mask = ops.expand_dims(attention_mask, axes)
    if rows is not None:
        query_mask, attention_mask = (
            mask
            if mask is None
            else ops.take(mask, ops.clip(rows, 0, ops.shape(mask)[2] - 1), axis=2)
            for mask in (query_mask, attention_mask)
        )
    causal = None
    if use_causal_mask:
        rows = ops.arange(query_length) if rows is None else rows
        causal = ops.expand_dims(rows, 1) >= ops.arange(key_length)
        causal = ops.expand_dims(causal, (0, 1))
    return combine_masks(query_mask, key_mask, causal, attention_mask)
