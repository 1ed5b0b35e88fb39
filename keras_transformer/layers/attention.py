"""Attention: every query reads a weighted sum of the values."""

import math

import keras
from keras import ops

from keras_transformer.checks import check_fractions, check_shape
from keras_transformer.kernels.dropout import Dropout
from keras_transformer.kernels.projections import query_key_products
from keras_transformer.layers.masks import (
    check_masks,
    combine_masks,
    combined_mask,
    zero_masked,
)
from keras_transformer.layers.weights import WeightOptionsLayer


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
        weights, of shape `(..., query_length, key_length)`.

    Example:
        >>> states = keras.random.normal((2, 5, 16))
        >>> outputs, weights = scaled_dot_product_attention(states, states, states)
        >>> weights.shape
        TensorShape([2, 5, 5])

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.2.1
    """
    weights = masked_softmax(scaled_products(query, key), mask, bias)
    return ops.matmul(weights, value), weights


def scaled_products(query, key):
    """Computes `query key^T / sqrt(key_dim)`."""
    return query_key_products(query * (1 / math.sqrt(query.shape[-1])), key)


def masked_softmax(products, mask=None, bias=None):
    """Computes `softmax(products + bias)`, exactly zero where a key is masked.

    A fully masked row becomes zeros; a softmax over large negative numbers would spread
    evenly over the masked keys. The bias and the exponentials are computed in float32:
    in half precision, a large bias would round the products away.

    Args:
        products: Float tensor of shape `(..., query, key)`.
        mask: Boolean tensor that broadcasts to the shape of `products`, True
            where the query may attend to the key.
        bias: Float tensor that broadcasts to that shape.

    Returns:
        The attention weights, of the shape and dtype of `products`.
    """
    dtype = products.dtype
    products = ops.cast(products, "float32")
    if bias is not None:
        products = products + ops.cast(bias, "float32")
    if mask is not None:
        products = ops.where(mask, products, -1e30)
    # Keras warns about a softmax over an axis of length one, which is all ones.
    is_one = products.shape[-1] == 1
    weights = ops.ones_like(products) if is_one else ops.softmax(products)
    if mask is not None:
        weights = ops.where(mask, weights, 0.0)
    return ops.cast(weights, dtype)


class Attention(WeightOptionsLayer):
    """Base class of attention layers without heads.

    Subclasses define `score`, how well each key matches each query. A softmax over the
    keys turns scores into weights of the values. Keras masks of `query`, `value` and
    `key` are applied automatically. Each layer can also be the `score` of
    `MultiHeadAttention`, whose own `dropout` then applies.

    Unlike `keras.layers.Attention`, the layer returns the attention weights without
    dropout, and zero weights and outputs for a masked query.

    Args:
        dropout: Fraction of the attention weights dropped in training.
        seed: Seed of the dropout.
        **kwargs: Base `Layer` arguments, and weight options of layers with weights.

    Call arguments:
        query: Float tensor of shape `(batch, query_length, query_dim)`.
        value: Float tensor of shape `(batch, key_length, value_dim)`.
        key: Float tensor of shape `(batch, key_length, key_dim)`. Default: `value`.
        query_mask: Boolean tensor of shape `(batch, query_length)`. Default: the Keras
            mask of `query`.
        value_mask: Boolean tensor of shape `(batch, key_length)`, False at padding.
            Default: the Keras mask of `value`.
        key_mask: The same for `key`. A position must be True in both masks.
        attention_mask: Boolean tensor of shape `(batch, query_length, key_length)`,
            which key each query may attend to.
        use_causal_mask: Whether queries attend only to keys at or before them.
        return_attention_scores: Whether to also return the attention weights.
        training: Whether to apply dropout.

    Returns:
        The outputs, of shape `(batch, query_length, value_dim)`, zeros for a query that
        may attend to nothing; and, if requested, the attention weights, of shape
        `(batch, query_length, key_length)`.

    Raises:
        ValueError: If an input does not have three axes.
    """

    weight_kinds: tuple[str, ...] = ()

    def __init__(self, dropout: float = 0.0, seed: int | None = None, **kwargs):
        super().__init__(**kwargs)
        check_fractions(dropout=dropout)
        self.dropout = dropout
        self.seed = seed
        self.supports_masking = True

    def build(self, query_shape, value_shape, key_shape=None):
        key_shape = value_shape if key_shape is None else key_shape
        shapes = {"query": query_shape, "value": value_shape, "key": key_shape}
        for name, shape in shapes.items():
            check_shape(name, shape, "batch", "length", "hidden_dim")
        self._dropout = Dropout(self.dropout, self.seed, dtype=self.dtype_policy)
        self.build_score(query_shape[-1], key_shape[-1])

    def build_score(self, query_dim: int, key_dim: int):
        """Creates the weights of `score`, if it has any."""

    def score(self, query, key):
        """Computes how well each key matches each query: the higher the better.

        Args:
            query: Float tensor of shape `(..., query_length, query_dim)`.
            key: Float tensor of shape `(..., key_length, key_dim)`.

        Returns:
            A tensor of shape `(..., query_length, key_length)`.
        """
        raise NotImplementedError

    def call(
        self,
        query,
        value,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        use_causal_mask=False,
        return_attention_scores=False,
        training=None,
    ):
        key = value if key is None else key
        check_masks(
            query.shape[1],
            key.shape[1],
            attention_mask,
            query_mask=query_mask,
            value_mask=value_mask,
            key_mask=key_mask,
        )
        query_mask = combine_masks(query_mask)
        value_mask = combine_masks(value_mask, key_mask)
        key, value = zero_masked(key, value_mask), zero_masked(value, value_mask)
        lengths = ops.shape(query)[1], ops.shape(value)[1]
        masks = query_mask, value_mask, attention_mask, use_causal_mask
        mask = combined_mask(*lengths, *masks)
        mask = None if mask is None else mask[:, 0]  # there are no heads
        weights = masked_softmax(self.score(query, key), mask)
        outputs = ops.matmul(self._dropout(weights, training=training), value)
        return (outputs, weights) if return_attention_scores else outputs

    def compute_output_shape(self, query_shape, value_shape, key_shape=None):
        return (*query_shape[:-1], value_shape[-1])

    def compute_output_spec(
        self, query, value, key=None, *args, return_attention_scores=False, **kwargs
    ):
        shape = self.compute_output_shape(query.shape, value.shape)
        outputs = keras.KerasTensor(shape, self.compute_dtype)
        if not return_attention_scores:
            return outputs
        shape = (*query.shape[:-1], value.shape[1])
        return outputs, keras.KerasTensor(shape, self.compute_dtype)

    def get_config(self):
        return {**super().get_config(), "dropout": self.dropout, "seed": self.seed}
