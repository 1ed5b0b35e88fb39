"""Multi-head attention: several attentions at once, each in a space of its own."""

import keras
from keras import ops

from keras_transformer.checks import check_positive_integers, check_shape
from keras_transformer.kernels.attention import attend
from keras_transformer.kernels.dense import dense
from keras_transformer.kernels.dropout import Dropout
from keras_transformer.kernels.heads import merge_heads, project_to_heads
from keras_transformer.layers.attention import attend_by_products, scaled_products
from keras_transformer.layers.layer_arguments import copy_layer, layer_config
from keras_transformer.layers.masks import AttentionMasks, combine_masks
from keras_transformer.layers.positions import attention_positions
from keras_transformer.layers.score_functions import Attention


@keras.saving.register_keras_serializable(package="keras_transformer")
class MultiHeadAttention(keras.layers.Layer):
    """Attends several times at once, each head with projections of its own.

    Takes the call arguments of `keras.layers.MultiHeadAttention`, with one
    difference: a query that may attend to nothing gets zeros on every path. Keras
    masks of `query`, `value` and `key` are applied automatically. All heads share
    one score function, and its weights if it has any.

    If scores are not requested, they are never materialised: memory grows with the
    length of the inputs rather than with its square. That does not hold with a
    `score`, with `dropout` in training, and with `positions` that have weights.

    Args:
        num_heads: Number of heads.
        key_dim: Width of each head's queries and keys.
        value_dim: Width of each head's values; `key_dim` unless given.
        dropout: Fraction of the attention scores dropped in training.
        use_bias: Whether the projections add a bias.
        score: Score function: an attention layer such as
            `AdditiveAttention(units)`, which is copied. The scaled dot product
            unless given.
        positions: How positions enter attention, if queries and keys are of one
            sequence: `"rotary"`, `"linear_bias"`, or a layer such as
            `RotaryEmbedding()`, which is copied. None: not at all.
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
        key_mask: Like `value_mask`.
        attention_mask: Boolean tensor of shape
            `(batch, query_length, key_length)`, or with the heads as its
            second axis. A query attends to a key if all given masks allow it.
        use_causal_mask: Whether queries attend only to keys at their own
            position and before.
        return_attention_scores: Whether to return the scores too.
        training: Whether to apply dropout.
        query_positions: Positions of the queries, for the layer's `positions`: an
            integer tensor of shape `(query_length,)` or `(batch, query_length)`;
            counted from 0 unless given.
        key_positions: Positions of the keys, likewise.

    Returns:
        The outputs, of the shape of `query`, and on request the scores, of
        shape `(batch, num_heads, query_length, key_length)`.

    Raises:
        ValueError: If an input does not have three axes, a size is not
            positive, or `score` or `positions` is of another kind.

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
        score=None,
        positions=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_positive_integers(num_heads=num_heads, key_dim=key_dim)
        if value_dim is not None:
            check_positive_integers(value_dim=value_dim)
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
        self.positions = attention_positions(positions, self.dtype_policy)
        self.supports_masking = True

    def build(self, query_shape, value_shape, key_shape=None):
        key_shape = value_shape if key_shape is None else key_shape
        shapes = {"query": query_shape, "value": value_shape, "key": key_shape}
        for name, shape in shapes.items():
            check_shape(name, shape, "batch", "length", "hidden_dim")

        def projection(name, units, input_shape):
            settings = {"use_bias": self.use_bias, "dtype": self.dtype_policy}
            layer = keras.layers.Dense(units, name=name, **settings)
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
        self._dropout = Dropout(self.dropout, dtype=self.dtype_policy)
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
        # (batch, heads, length, dim)
        queries, keys, values = project_to_heads(
            self.num_heads,
            (query, self.query_projection),
            (key, self.key_projection),
            (value, self.value_projection),
        )
        keys = self._rotate(keys, key_positions)
        value_mask = combine_masks(value_mask, key_mask)
        masks = AttentionMasks(query_mask, value_mask, attention_mask, use_causal_mask)
        if return_attention_scores or self._needs_scores(training):
            keys, values = masks.zero_masked(keys, values)
            mask = masks.combined(ops.shape(queries)[2], ops.shape(keys)[2])
            positions = query_positions, key_positions
            outputs, scores = self._attend(
                queries, keys, values, mask, training, positions
            )
            return (outputs, scores) if return_attention_scores else outputs

        def bias_of(rows, keys):
            if query_positions is not None:  # rows beyond the last query get its bias
                last = ops.shape(query_positions)[-1] - 1
                rows = ops.take(query_positions, ops.minimum(rows, last), axis=-1)
            return self.positions.bias(
                rows, keys if key_positions is None else key_positions
            )

        queries = self._rotate(queries, query_positions)
        bias_of = None if self.positions is None else bias_of
        outputs = attend(queries, keys, values, masks, bias_of)
        return self.output_projection(merge_heads(outputs))

    def _needs_scores(self, training):
        has_learned_positions = self.positions is not None and self.positions.weights
        drops_scores = self.dropout and training
        return bool(self.score is not None or has_learned_positions or drops_scores)

    def project(self, value, key=None, positions=None):
        """Projects keys and values, once for any number of queries.

        Args:
            value: Float tensor of shape `(batch, key_length, hidden_dim)`.
            key: Float tensor of the same shape; `value` unless given.
            positions: Positions of the keys, for the layer's `positions`: an
                integer tensor of shape `()`, `(key_length,)` or
                `(batch, key_length)`; counted from 0 unless given.

        Returns:
            Keys `(batch, num_heads, key_length, key_dim)`, rotated to their
            positions, and values `(batch, num_heads, key_length, value_dim)`.
        """
        keys, values = project_to_heads(
            self.num_heads,
            (value if key is None else key, self.key_projection),
            (value, self.value_projection),
        )
        return self._rotate(keys, positions), values

    def attend(
        self,
        query,
        keys,
        values,
        mask=None,
        training=None,
        query_positions=None,
        key_positions=None,
    ):
        """Attends to keys and values that `project` has returned.

        Args:
            query: Float tensor of shape `(batch, query_length, hidden_dim)`.
            keys: Keys from `project`.
            values: Values from `project`.
            mask: Boolean tensor that broadcasts to
                `(batch, num_heads, query_length, key_length)`.
            training: Whether to apply dropout.
            query_positions: Positions of the queries, as in `project`.
            key_positions: Positions of the keys, likewise.

        Returns:
            Outputs `(batch, query_length, hidden_dim)` and scores
            `(batch, num_heads, query_length, key_length)`.
        """
        (queries,) = project_to_heads(self.num_heads, (query, self.query_projection))
        positions = query_positions, key_positions
        return self._attend(queries, keys, values, mask, training, positions)

    def _attend(self, queries, keys, values, mask, training, positions=(None, None)):
        bias = None
        if self.positions is not None:
            query_positions = _given_or_all(positions[0], queries)
            key_positions = _given_or_all(positions[1], keys)
            queries = self.positions.rotate(queries, query_positions)
            bias = self.positions.bias(query_positions, key_positions)
        if self.score is None:
            products = scaled_products(queries, keys)
        else:
            products = self.score.score(queries, keys)
        outputs, scores = attend_by_products(products, values, mask, bias)
        if self.dropout:
            outputs = ops.matmul(self._dropout(scores, training=training), values)
        return dense(self.output_projection, merge_heads(outputs)), scores

    def _rotate(self, states, positions=None):
        if self.positions is None:
            return states
        return self.positions.rotate(states, _given_or_all(positions, states))

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
        }


def _given_or_all(positions, states):
    """`positions`, or 0, 1, 2, ... for states of shape (batch, heads, length, dim)."""
    return ops.arange(ops.shape(states)[2]) if positions is None else positions
