"""Multi-head attention: several attentions in parallel, on different projections."""

import functools

import keras
from keras import ops

from keras_transformer.checks import check_fractions, check_positive_integers
from keras_transformer.kernels.attention import attend
from keras_transformer.kernels.dropout import Dropout
from keras_transformer.kernels.graphs import shape_of
from keras_transformer.kernels.projections import dense, merge_heads, split_heads
from keras_transformer.layers.attention import (
    Attention,
    masked_softmax,
    scaled_products,
)
from keras_transformer.layers.keys_values import KeyValues
from keras_transformer.layers.masks import (
    check_masks,
    combine_masks,
    combined_mask,
    zero_masked,
)
from keras_transformer.layers.positions import input_positions, position_layer_of
from keras_transformer.layers.projection import Projection
from keras_transformer.layers.saving import Positions, copy_layer, layer_config
from keras_transformer.layers.weights import WeightOptionsLayer


@keras.saving.register_keras_serializable(package="keras_transformer")
class MultiHeadAttention(WeightOptionsLayer):
    """Attends several times in parallel, each head with its own projections.

    Takes the call arguments of `keras.layers.MultiHeadAttention`, with one difference:
    a query that may attend to nothing gets zeros on every path. Keras masks of `query`,
    `value` and `key` are applied automatically. Add residuals with `keras.layers.Add`,
    which keeps the mask that `states + outputs` loses. All heads share one score
    function, and its weights if it has any.

    Unless attention weights are requested, they are never materialized for more than
    1,024 positions: memory grows linearly with the length of the inputs, not
    quadratically. Exceptions: a `score`, `dropout` in training, and `positions` that
    have weights.

    Args:
        num_heads: Number of heads.
        key_dim: Width of each head's queries and keys.
        value_dim: Width of each head's values. Default: `key_dim`.
        dropout: Fraction of the attention weights dropped in training.
        use_bias: Whether the projections add a bias.
        score: Score function: an attention layer such as
            `AdditiveAttention(units)`, which is copied. Default: the scaled dot
            product.
        positions: How attention uses positions, if queries and keys are from the same
            sequence: `"rotary"`, `"linear_bias"`, or a layer such as
            `RotaryEmbedding()`, which is copied. None: not at all.
        seed: Seed of the dropout.
        **kwargs: Initializers, regularizers and constraints of the projections, see
            `WeightOptionsLayer`; base `Layer` arguments, such as `name` and `dtype`.

    Call arguments:
        query: Float tensor of shape `(batch, query_length, hidden_dim)`.
        value: Float tensor of shape `(batch, key_length, hidden_dim)`.
        key: Float tensor of shape `(batch, key_length, hidden_dim)`. Default:
            `value`.
        query_mask: Boolean tensor of shape `(batch, query_length)`, False at
            queries that attend to nothing.
        value_mask: Boolean tensor of shape `(batch, key_length)`, False at values that
            may not be attended to.
        key_mask: Like `value_mask`.
        attention_mask: Boolean tensor of shape
            `(batch, query_length, key_length)`, with the heads as its second
            axis or without the batch. A query attends to a key if all given masks
            allow it.
        use_causal_mask: Whether queries attend only to keys at their own
            position and before.
        return_attention_scores: Whether to return the attention weights too.
        training: Whether to apply dropout.
        query_positions: Positions of the queries, for the layer's `positions`: an
            integer tensor of shape `(query_length,)` or `(batch, query_length)`.
            Default: 0, 1, 2, ...
        key_positions: Positions of the keys. Pass both, or neither.

    Returns:
        The outputs, of the shape of `query`, and, if requested, the attention weights,
        of shape `(batch, num_heads, query_length, key_length)`.

    Raises:
        ValueError: If shapes do not match, a size is not positive, or `score` or
            `positions` is of an unsupported type.

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
        score: Attention | dict | None = None,
        positions: Positions = None,
        seed: int | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        sizes = {} if value_dim is None else {"value_dim": value_dim}
        check_positive_integers(num_heads=num_heads, key_dim=key_dim, **sizes)
        check_fractions(dropout=dropout)
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_dim = value_dim
        self.dropout = dropout
        self.use_bias = use_bias
        self.score = copy_layer(score, "score", self.dtype_policy)
        if not isinstance(self.score, Attention | None):
            raise ValueError(
                "`score` must be an attention layer such as "
                f"`AdditiveAttention(units)`. Received: score={score!r}."
            )
        self.positions = position_layer_of(
            positions, self.dtype_policy, in_attention=True
        )
        self.seed = seed
        self.supports_masking = True

    def build(self, query_shape, value_shape, key_shape=None):
        key_shape = value_shape if key_shape is None else key_shape
        _check_shapes(query_shape, value_shape, key_shape)

        def projection(name, units, input_shape):
            layer = Projection(
                units,
                name=name,
                use_bias=self.use_bias,
                dtype=self.dtype_policy,
                **self.weight_options.of(name=name),
            )
            layer.build(input_shape)
            return layer

        key_width = self.num_heads * self.key_dim
        value_width = self.num_heads * (self.value_dim or self.key_dim)
        self.query_projection = projection("query", key_width, query_shape)
        self.key_projection = projection("key", key_width, key_shape)
        self.value_projection = projection("value", value_width, value_shape)
        heads_shape = (*query_shape[:-1], value_width)
        self.output_projection = projection("output", query_shape[-1], heads_shape)
        self._dropout = Dropout(self.dropout, self.seed, dtype=self.dtype_policy)
        if self.score is not None:
            head_shape = (None, None, self.key_dim)
            self.score.build(head_shape, head_shape)
        if self.positions is not None:
            self.positions.build((None, self.num_heads, None, self.key_dim))

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
        query_positions=None,
        key_positions=None,
    ):
        key = value if key is None else key
        _check_shapes(query.shape, value.shape, key.shape)
        check_masks(
            query.shape[1],
            key.shape[1],
            attention_mask,
            query_mask=query_mask,
            value_mask=value_mask,
            key_mask=key_mask,
        )
        if (query_positions is None) != (key_positions is None):
            raise ValueError(
                "`query_positions` and `key_positions` must be given together. "
                f"Received: query_positions={query_positions}, "
                f"key_positions={key_positions}."
            )
        value_mask = combine_masks(value_mask, key_mask)
        outputs, weights = self.attend(
            query,
            self.project(value, key, value_mask, key_positions),
            query_mask,
            attention_mask,
            use_causal_mask,
            return_attention_scores,
            training,
            query_positions,
        )
        return (outputs, weights) if return_attention_scores else outputs

    def project(self, value, key=None, mask=None, positions=None) -> KeyValues:
        """Projects keys and values, `KeyValues`, once for any number of queries.

        Args:
            value: Float tensor of shape `(batch, key_length, hidden_dim)`.
            key: Float tensor of the same shape. Default: `value`.
            mask: Boolean tensor of shape `(batch, key_length)`, False at values not to
                be attended to, which may hold anything. None: all may be.
            positions: Positions of the keys, as `key_positions` of a call.
        """
        keys = dense(self.key_projection, value if key is None else key)
        values = dense(self.value_projection, value)
        keys, values = (split_heads(x, self.num_heads) for x in (keys, values))
        if self.positions is None:
            positions = None
        else:
            length = shape_of(value)[1]
            positions = input_positions(length, 0, positions, "key_positions")
            keys = self.positions.rotate(keys, positions)
        if mask is not None:
            mask = ops.cast(mask, "bool")
            is_real = ops.expand_dims(mask, 1)
            keys, values = zero_masked(keys, is_real), zero_masked(values, is_real)
        return KeyValues(keys, values, mask, positions)

    def attend(
        self,
        query,
        read: KeyValues,
        query_mask=None,
        attention_mask=None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
        training: bool | None = None,
        positions=None,
    ):
        """Attends to projected keys and values.

        Args:
            query: Float tensor of shape `(batch, query_length, hidden_dim)`.
            read: What `project` returned.
            query_mask: Boolean tensor, as in a call.
            attention_mask: Boolean tensor, as in a call.
            use_causal_mask: As in a call.
            return_attention_scores: As in a call.
            training: As in a call.
            positions: Positions of the queries, as `query_positions` of a call.

        Returns:
            The outputs, of the shape of `query`, and the attention weights, of shape
            `(batch, num_heads, query_length, key_length)`; None if not requested.
        """
        queries = split_heads(dense(self.query_projection, query), self.num_heads)
        lengths = shape_of(queries)[2], shape_of(read.keys)[2]
        masks = query_mask, read.mask, attention_mask, use_causal_mask
        mask_of = functools.partial(combined_mask, *lengths, *masks)
        has_positions = self.positions is not None
        if has_positions:
            positions = input_positions(lengths[0], 0, positions, "query_positions")
            queries = self.positions.rotate(queries, positions)

        def bias_of(rows=None):
            of_rows = positions
            if rows is not None:  # they may exceed the last query
                rows = ops.minimum(rows, lengths[0] - 1)
                of_rows = ops.take(positions, rows, axis=-1)
            return self.positions.bias(of_rows, read.positions)

        has_learned_bias = has_positions and self.positions.weights
        is_dropped = self.dropout and training
        if return_attention_scores or self.score or has_learned_bias or is_dropped:
            score = scaled_products if self.score is None else self.score.score
            bias = bias_of() if has_positions else None
            weights = masked_softmax(score(queries, read.keys), mask_of(), bias)
            kept = self._dropout(weights, training=training)
            outputs = ops.matmul(kept, read.values)
        else:
            weights = None
            functions = masked_softmax, mask_of, bias_of if has_positions else None
            outputs = attend(queries, read.keys, read.values, *functions)
        return dense(self.output_projection, merge_heads(outputs)), weights

    def compute_output_shape(self, query_shape, value_shape, key_shape=None):
        _check_shapes(query_shape, value_shape, key_shape or value_shape)
        return query_shape

    def compute_output_spec(
        self, query, value, key=None, *args, return_attention_scores=False, **kwargs
    ):
        # Keras would trace `call`.
        key = value if key is None else key
        shape = self.compute_output_shape(query.shape, value.shape, key.shape)
        outputs = keras.KerasTensor(shape, self.compute_dtype)
        if not return_attention_scores:
            return outputs
        shape = (shape[0], self.num_heads, shape[1], key.shape[1])
        return outputs, keras.KerasTensor(shape, self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "score": layer_config(self.score),
            "positions": layer_config(self.positions),
            "seed": self.seed,
        }


def _check_shapes(query, value, key):
    """Raises `ValueError` unless the shapes of query, value and key fit each other."""
    for name, shape in (("query", query), ("value", value), ("key", key)):
        if len(shape) != 3:
            raise ValueError(
                f"`{name}` must have the shape (batch, length, hidden_dim). "
                f"Received: {name} of shape {tuple(shape)}."
            )
        if None not in (shape[0], query[0]) and shape[0] != query[0]:
            raise ValueError(
                "The batch sizes of query, value and key must be equal. "
                f"Received: query of shape {tuple(query)}, {name} of shape "
                f"{tuple(shape)}."
            )
    if None not in (key[1], value[1]) and key[1] != value[1]:
        raise ValueError(
            "The lengths of value and key must be equal. "
            f"Received: value of shape {tuple(value)}, key of shape {tuple(key)}."
        )
