"""Attention: every query reads a mixture of the values whose keys match it."""

import math

from keras import ops

from keras_transformer.kernels.dense import match
from keras_transformer.kernels.softmax import masked_softmax


def scaled_dot_product_attention(query, key, value, mask=None, bias=None):
    """Computes `softmax(query key^T / sqrt(key_dim) + bias) value`.

    Args:
        query: Float tensor of shape `(..., query_length, key_dim)`.
        key: Float tensor of shape `(..., key_length, key_dim)`.
        value: Float tensor of shape `(..., key_length, value_dim)`.
        mask: Boolean tensor that broadcasts to
            `(..., query_length, key_length)`, True where the query may attend
            to the key. A query that may attend to nothing reads zeros.
        bias: Float tensor that broadcasts to the same shape, added to the
            scaled products.

    Returns:
        The outputs, of shape `(..., query_length, value_dim)`, and the scores:
        the share that each query gives to each key, of shape
        `(..., query_length, key_length)`.

    Example:
        >>> states = keras.random.normal((2, 5, 16))
        >>> outputs, scores = scaled_dot_product_attention(states, states, states)
        >>> scores.shape
        TensorShape([2, 5, 5])

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.2.1
    """
    query = query * (1 / math.sqrt(query.shape[-1]))
    return read_values(match(query, key), value, mask, bias)


def read_values(products, value, mask=None, bias=None):
    """Mixes the values by how well their keys match each query.

    Args:
        products: Float tensor of shape `(..., query_length, key_length)`: how
            well each key matches, the greater the better.
        value: Float tensor of shape `(..., key_length, value_dim)`.
        mask: As in `scaled_dot_product_attention`.
        bias: As in `scaled_dot_product_attention`; added in float32.

    Returns:
        The outputs, of shape `(..., query_length, value_dim)`, and the scores,
        of the shape and dtype of `products`.
    """
    scores = shares_of_keys(products, mask, bias)
    return ops.matmul(scores, value), scores


def shares_of_keys(products, mask=None, bias=None):
    """The scores of `read_values`: the share that each query gives to each key."""
    dtype = products.dtype
    if bias is not None:
        # In half precision a large bias would swallow the products.
        products = ops.cast(products, "float32") + ops.cast(bias, "float32")
    return ops.cast(masked_softmax(products, mask), dtype)


def join_masks(*masks):
    """True where every mask that is given is; None where none is given."""
    joined = None
    for mask in masks:
        if mask is not None:
            mask = ops.cast(mask, "bool")
            joined = mask if joined is None else ops.logical_and(joined, mask)
    return joined


def visible_keys(
    query, value, query_mask=None, value_mask=None, key_mask=None, use_causal_mask=False
):
    """Joins the masks of a call, but for the attention mask.

    Args:
        query: Tensor of shape `(batch, query_length, hidden_dim)`.
        value: Tensor of shape `(batch, key_length, hidden_dim)`.
        query_mask: Boolean tensor of shape `(batch, query_length)`.
        value_mask: Boolean tensor of shape `(batch, key_length)`.
        key_mask: Boolean tensor of shape `(batch, key_length)`.
        use_causal_mask: Whether queries attend only to keys at their own
            position and before; positions start together.

    Returns:
        A boolean tensor that broadcasts to `(batch, query_length, key_length)`,
        or None where no mask is given.
    """
    causal = None
    if use_causal_mask:
        positions = ops.arange(ops.shape(query)[1])
        causal = positions[None, :, None] >= ops.arange(ops.shape(value)[1])
    return join_masks(
        None if query_mask is None else query_mask[:, :, None],
        None if value_mask is None else value_mask[:, None, :],
        None if key_mask is None else key_mask[:, None, :],
        causal,
    )


def split_heads(states, num_heads: int):
    """(batch, length, heads * dim) -> (batch, heads, length, dim)."""
    batch, length, width = ops.shape(states)
    if states.shape[1] == 1:  # a step of decoding: nothing changes places
        return ops.reshape(states, (batch, num_heads, 1, width // num_heads))
    states = ops.reshape(states, (batch, length, num_heads, width // num_heads))
    return ops.transpose(states, (0, 2, 1, 3))


def merge_heads(states):
    """(batch, heads, length, dim) -> (batch, length, heads * dim)."""
    batch, num_heads, length, dim = ops.shape(states)
    if states.shape[2] != 1:
        states = ops.transpose(states, (0, 2, 1, 3))
    return ops.reshape(states, (batch, length, num_heads * dim))
