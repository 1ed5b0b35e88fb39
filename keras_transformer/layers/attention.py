"""Attention: every query reads a weighted sum of the values."""

import math

from keras import ops

from keras_transformer.kernels.dense import query_key_products
from keras_transformer.kernels.softmax import attention_weights


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
