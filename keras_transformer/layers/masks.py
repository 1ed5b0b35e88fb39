"""Which positions may be attended to. True means: may."""

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

    Args:
        length: Number of positions.

    Returns:
        A boolean tensor of shape `(1, length, length)`, indexed as
        `(batch, query, key)`.

    Example:
        >>> ops.convert_to_numpy(causal_mask(3)).astype(int)
        array([[[1, 0, 0],
                [1, 1, 0],
                [1, 1, 1]]])

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.2.3
    """
    positions = ops.arange(length)
    return ops.expand_dims(positions[:, None] >= positions[None, :], 0)
