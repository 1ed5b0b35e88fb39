"""Attention: every query reads a weighted sum of the values."""

import math

from keras import ops

from keras_transformer.kernels.projections import query_key_products


def scaled_dot_product_attention(query, key, value, mask=None, bias=None):
    """Computes `softmax(query key^T / sqrt(key_dim) + bias) value`.

    Args:
        query: Float tensor of shape `(..., query_length, key_dim)`.
        key: Float tensor of shape `(..., key_length, key_dim)`.
        value: Float tensor of shape `(..., key_length, value_dim)`.
        mask: Boolean tensor that broadcasts to
            `(..., query_length, key_length)`, True where the query may attend
            to the key. A query that may attend to nothing gets zeros.
        bias: Float tensor that broadcasts to the same shape, added to the
            scaled products.

    Returns:
        The outputs, of shape `(..., query_length, value_dim)`, and the attention
        scores after the softmax, of shape `(..., query_length, key_length)`.

    Example:
        >>> states = keras.random.normal((2, 5, 16))
        >>> outputs, scores = scaled_dot_product_attention(states, states, states)
        >>> scores.shape
        TensorShape([2, 5, 5])

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.2.1
    """
    return attend_by_products(scaled_products(query, key), value, mask, bias)


def scaled_products(query, key):
    """Computes `query key^T / sqrt(key_dim)`."""
    return query_key_products(query * (1 / math.sqrt(query.shape[-1])), key)


def attend_by_products(products, value, mask=None, bias=None):
    """Computes `softmax(products + bias) value`, the bias added in float32.

    `products` are how well each key matches each query, of shape `(..., query_length,
    key_length)`. The rest is as in `scaled_dot_product_attention`.
    """
    scores = attention_weights(products, mask, bias)
    return ops.matmul(scores, value), scores


def attention_weights(products, mask=None, bias=None):
    """Computes `masked_softmax(products + bias)`, the attention weights.

    The bias is added in float32: in half precision a large one would round the products
    away.
    """
    dtype = products.dtype
    if bias is not None:
        products = ops.cast(products, "float32") + ops.cast(bias, "float32")
    return ops.cast(masked_softmax(products, mask), dtype)


def masked_softmax(scores, mask=None):
    """Softmax over the last axis that gives masked positions exactly zero.

    A row in which everything is masked becomes zeros, where a softmax over large
    negative numbers would spread evenly over what is masked. Exponentials are
    computed in float32; the result has the dtype of `scores`.

    Args:
        scores: Float tensor of shape `(..., query, key)`.
        mask: Boolean tensor that broadcasts to the shape of `scores`, True
            where the query may attend to the key.

    Returns:
        A tensor of the shape and dtype of `scores`.
    """
    dtype = scores.dtype
    scores = ops.cast(scores, "float32")
    if mask is not None:
        scores = ops.where(mask, scores, -1e30)
    # Keras warns about a softmax over an axis of length one, which is all ones.
    weights = ops.ones_like(scores) if scores.shape[-1] == 1 else ops.softmax(scores)
    if mask is not None:
        weights = ops.where(mask, weights, 0.0)
    return ops.cast(weights, dtype)
