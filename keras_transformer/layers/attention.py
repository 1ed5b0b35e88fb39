"""Attention: every query reads a mixture of the values whose keys match it."""

import math

import keras
from keras import ops


def masked_softmax(scores, mask=None):
    """Softmax over the last axis that gives masked positions exactly nothing.

    A row that may attend to nothing comes out as zeros rather than as an
    even mixture of what it must not see. The exponentials are taken in
    float32 whatever the dtype of `scores`.

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
    # Keras warns of a softmax over a single position, whose share is all.
    weights = ops.ones_like(scores) if scores.shape[-1] == 1 else ops.softmax(scores)
    if mask is not None:
        weights = ops.where(mask, weights, 0.0)
    return ops.cast(weights, dtype)


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
    products = ops.matmul(query, ops.swapaxes(key, -1, -2))
    if bias is not None:
        products = products + ops.cast(bias, products.dtype)
    scores = masked_softmax(products, mask)
    return ops.matmul(scores, value), scores


def split_heads(states, num_heads: int):
    """(batch, length, heads * dim) -> (batch, heads, length, dim)."""
    batch, length, width = ops.shape(states)
    states = ops.reshape(states, (batch, length, num_heads, width // num_heads))
    return ops.transpose(states, (0, 2, 1, 3))


def merge_heads(states):
    """(batch, heads, length, dim) -> (batch, length, heads * dim)."""
    batch, num_heads, length, dim = ops.shape(states)
    states = ops.transpose(states, (0, 2, 1, 3))
    return ops.reshape(states, (batch, length, num_heads * dim))


@keras.saving.register_keras_serializable(package="keras_transformer")
class MultiHeadAttention(keras.layers.Layer):
    """Attends several times at once, each head in a space of its own.

    Called as `keras.layers.MultiHeadAttention` is, with one difference in
    meaning: a query that may attend to nothing reads zeros on every path.
    Keras masks of `query`, `value` and `key` are taken up by themselves.

    Args:
        num_heads: Number of heads.
        key_dim: Width of each head's queries and keys.
        value_dim: Width of each head's values; `key_dim` unless given.
        dropout: Share of the attention scores dropped in training.
        use_bias: Whether the projections add a bias.
        **kwargs: Base `Layer` arguments, such as `name` and `dtype`.

    Call arguments:
        query: Float tensor of shape `(batch, query_length, hidden_dim)`.
        value: Float tensor of shape `(batch, key_length, hidden_dim)`.
        key: Float tensor of shape `(batch, key_length, hidden_dim)`; `value`
            unless given.
        query_mask: Boolean tensor of shape `(batch, query_length)`, False at
            queries that attend to nothing.
        value_mask: Boolean tensor of shape `(batch, key_length)`, False at
            values not to be attended to.
        key_mask: Boolean tensor of shape `(batch, key_length)`, like
            `value_mask`.
        attention_mask: Boolean tensor of shape
            `(batch, query_length, key_length)`, or with the heads as its
            second axis. All masks that are given hold together.
        use_causal_mask: Whether queries attend only to keys at their own
            position and before.
        return_attention_scores: Whether to return the scores too.
        training: Whether to drop out.

    Returns:
        The outputs, of shape `(batch, query_length, hidden_dim)`, and on
        request the scores, of shape
        `(batch, num_heads, query_length, key_length)`.

    Raises:
        ValueError: If an input does not have three axes.

    Example:
        >>> layer = MultiHeadAttention(num_heads=2, key_dim=8)
        >>> states = keras.random.normal((2, 5, 16))
        >>> layer(states, states, use_causal_mask=True).shape
        TensorShape([2, 5, 16])

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.2.2
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        for name, size in (
            ("num_heads", num_heads),
            ("key_dim", key_dim),
            ("value_dim", key_dim if value_dim is None else value_dim),
        ):
            if size < 1:
                raise ValueError(
                    f"`{name}` must be a positive integer. Received: {name}={size}."
                )
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_dim = value_dim
        self.dropout = dropout
        self.use_bias = use_bias
        self.supports_masking = True

    def build(self, query_shape, value_shape, key_shape=None):
        key_shape = value_shape if key_shape is None else key_shape
        for name, shape in (
            ("query", query_shape),
            ("value", value_shape),
            ("key", key_shape),
        ):
            if len(shape) != 3:
                raise ValueError(
                    f"`{name}` must have the shape (batch, length, hidden_dim). "
                    f"Received: {name} of shape {tuple(shape)}."
                )

        def projection(name, units, input_shape):
            layer = keras.layers.Dense(
                units, use_bias=self.use_bias, name=name, dtype=self.dtype_policy
            )
            layer.build(input_shape)
            return layer

        key_width = self.num_heads * self.key_dim
        value_width = self.num_heads * (self.value_dim or self.key_dim)
        self.query_projection = projection("query", key_width, query_shape)
        self.key_projection = projection("key", key_width, key_shape)
        self.value_projection = projection("value", value_width, value_shape)
        self.output_projection = projection(
            "output", query_shape[-1], (*query_shape[:-1], value_width)
        )
        self._dropout = keras.layers.Dropout(self.dropout, dtype=self.dtype_policy)

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
        mask = attention_mask
        if mask is not None:
            mask = ops.cast(mask, "bool")
            # (..., query, key) -> (batch, heads, query, key)
            mask = mask[:, None] if len(mask.shape) == 3 else mask
        for part in (
            None if query_mask is None else query_mask[:, None, :, None],
            None if value_mask is None else value_mask[:, None, None, :],
            None if key_mask is None else key_mask[:, None, None, :],
            _causal_mask(query, value) if use_causal_mask else None,
        ):
            if part is not None:
                part = ops.cast(part, "bool")
                mask = part if mask is None else ops.logical_and(mask, part)
        # What is masked must stay finite: a score of zero takes it out after that.
        kept = None
        for part in (value_mask, key_mask):
            if part is not None:
                part = ops.cast(part, "bool")
                kept = part if kept is None else ops.logical_and(kept, part)
        if query is value and key in (None, value):
            queries, keys, values = self._project(
                query, self.query_projection, self.key_projection, self.value_projection
            )
        else:
            queries = self._project(query, self.query_projection)[0]
            keys, values = self.project(value, key)
        if kept is not None:
            keys, values = (
                ops.where(kept[:, None, :, None], x, 0) for x in (keys, values)
            )
        outputs, scores = self._read(queries, keys, values, mask, training)
        return (outputs, scores) if return_attention_scores else outputs

    def project(self, value, key=None):
        """Projects what is attended to, once for any number of queries.

        Args:
            value: Float tensor of shape `(batch, key_length, hidden_dim)`.
            key: Float tensor of the same shape; `value` unless given.

        Returns:
            Keys `(batch, num_heads, key_length, key_dim)` and values
            `(batch, num_heads, key_length, value_dim)`.
        """
        if key is None or key is value:
            return self._project(value, self.key_projection, self.value_projection)
        keys = self._project(key, self.key_projection)[0]
        return keys, self._project(value, self.value_projection)[0]

    def attend(self, query, keys, values, mask=None, training=None):
        """Reads projected keys and values, as `project` returns them.

        Args:
            query: Float tensor of shape `(batch, query_length, hidden_dim)`.
            keys: Float tensor of shape `(batch, num_heads, key_length, key_dim)`.
            values: Float tensor of shape
                `(batch, num_heads, key_length, value_dim)`.
            mask: Boolean tensor that broadcasts to
                `(batch, num_heads, query_length, key_length)`.
            training: Whether to drop out.

        Returns:
            Outputs `(batch, query_length, hidden_dim)` and scores
            `(batch, num_heads, query_length, key_length)`.
        """
        queries = self._project(query, self.query_projection)[0]
        return self._read(queries, keys, values, mask, training)

    def _read(self, queries, keys, values, mask, training):
        outputs, scores = scaled_dot_product_attention(queries, keys, values, mask)
        if self.dropout:
            outputs = ops.matmul(self._dropout(scores, training=training), values)
        return self.output_projection(merge_heads(outputs)), scores

    def _project(self, states, *projections):
        """What each projection makes of `states`, `(batch, heads, length, dim)`.

        One wide product and one transpose in place of several narrow ones.
        """
        fused = len({layer.units for layer in projections}) == 1 and not any(
            layer.quantization_mode for layer in projections
        )
        if len(projections) == 1 or not fused:
            return [split_heads(layer(states), self.num_heads) for layer in projections]
        dtype = self.compute_dtype
        states = ops.cast(states, dtype)
        batch, length, width = ops.shape(states)
        kernel = ops.concatenate(
            [ops.cast(layer.kernel, dtype) for layer in projections], axis=-1
        )
        wide = ops.matmul(ops.reshape(states, (-1, width)), kernel)
        if self.use_bias:
            wide = wide + ops.concatenate(
                [ops.cast(layer.bias, dtype) for layer in projections], axis=0
            )
        head_dim = projections[0].units // self.num_heads
        shape = (batch, length, len(projections), self.num_heads, head_dim)
        wide = ops.reshape(wide, shape)
        return ops.unstack(ops.transpose(wide, (2, 0, 3, 1, 4)))

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "dropout": self.dropout,
            "use_bias": self.use_bias,
        }


def _causal_mask(query, value):
    """(1, 1, query, key): lengths may differ, positions start together."""
    positions = ops.arange(ops.shape(query)[1])
    return positions[None, None, :, None] >= ops.arange(ops.shape(value)[1])
