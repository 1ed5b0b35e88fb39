"""Multi-head attention: several readings at once, each in a space of its own."""

import keras
from keras import ops

from keras_transformer.kernels.attention import Masks, attend_without_scores
from keras_transformer.kernels.dense import dense
from keras_transformer.kernels.dropout import Dropout
from keras_transformer.layers.attention import (
    join_masks,
    merge_heads,
    read_values,
    scaled_dot_product_attention,
    split_heads,
)
from keras_transformer.layers.layer_arguments import copy_layer, layer_config
from keras_transformer.layers.positions import attention_positions
from keras_transformer.layers.score_functions import Attention


@keras.saving.register_keras_serializable(package="keras_transformer")
class MultiHeadAttention(keras.layers.Layer):
    """Attends several times at once, each head in a space of its own.

    Called as `keras.layers.MultiHeadAttention` is, with one difference in
    meaning: a query that may attend to nothing reads zeros on every path.
    Keras masks of `query`, `value` and `key` are taken up by themselves.

    The heads differ in their projections; the score function is one for all,
    and so are its weights, if it has any.

    Where no scores are asked for, memory grows with the length of the inputs
    rather than with its square, unless there is a `score`, `dropout` in
    training, or `positions` with weights.

    Args:
        num_heads: Number of heads.
        key_dim: Width of each head's queries and keys.
        value_dim: Width of each head's values; `key_dim` unless given.
        dropout: Share of the attention scores dropped in training.
        use_bias: Whether the projections add a bias.
        score: How well a key matches a query: a layer of attention, such as
            `AdditiveAttention(units)`, taken as a pattern. The scaled dot
            product unless given.
        positions: How positions are told apart, where queries and keys are of
            one sequence: `"rotary"`, `"linear_bias"`, or a layer, such as
            `RotaryEmbedding()`, taken as a pattern. None: they are not.
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
        self.score = copy_layer(score, "score", self.dtype_policy)
        if not isinstance(self.score, Attention | None):
            raise ValueError(
                "`score` must be a layer of attention, such as "
                f"`AdditiveAttention(units)`. Received: score={score!r}."
            )
        self.positions = attention_positions(positions, self.dtype_policy)
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
        self._dropout = Dropout(self.dropout, dtype=self.dtype_policy)
        head_shape = (None, None, self.key_dim)
        if self.score is not None:
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
    ):
        kept = join_masks(value_mask, key_mask)
        if query is value and (key is None or key is value):
            queries, keys, values = self._project(
                query, self.query_projection, self.key_projection, self.value_projection
            )
            keys = self._rotate(keys)
        else:
            queries = self._project(query, self.query_projection)[0]
            keys, values = self.project(value, key)
        masks = Masks(query_mask, kept, attention_mask, use_causal_mask)
        if return_attention_scores or not self._can_do_without_scores(training):
            keys, values = masks.clear(keys, values)
            mask = masks.of(queries, keys)
            outputs, scores = self._read(queries, keys, values, mask, training)
            return (outputs, scores) if return_attention_scores else outputs
        outputs = attend_without_scores(
            self._rotate(queries),
            keys,
            values,
            masks,
            None if self.positions is None else self.positions.bias,
        )
        return self.output_projection(merge_heads(outputs))

    def _can_do_without_scores(self, training):
        is_learned = self.positions is not None and self.positions.weights
        is_dropped = self.dropout and training
        return self.score is None and not is_learned and not is_dropped

    def project(self, value, key=None, positions=None):
        """Projects what is attended to, once for any number of queries.

        Args:
            value: Float tensor of shape `(batch, key_length, hidden_dim)`.
            key: Float tensor of the same shape; `value` unless given.
            positions: Where the keys stand, an integer tensor of shape `()`,
                `(key_length,)` or `(batch, key_length)`; counted from 0 unless
                given. Without `self.positions` it makes no difference.

        Returns:
            Keys `(batch, num_heads, key_length, key_dim)`, told their
            positions, and values `(batch, num_heads, key_length, value_dim)`.
        """
        if key is None or key is value:
            keys, values = self._project(
                value, self.key_projection, self.value_projection
            )
        else:
            keys = self._project(key, self.key_projection)[0]
            values = self._project(value, self.value_projection)[0]
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
        """Reads projected keys and values, as `project` returns them.

        Args:
            query: Float tensor of shape `(batch, query_length, hidden_dim)`.
            keys: Float tensor of shape `(batch, num_heads, key_length, key_dim)`.
            values: Float tensor of shape
                `(batch, num_heads, key_length, value_dim)`.
            mask: Boolean tensor that broadcasts to
                `(batch, num_heads, query_length, key_length)`.
            training: Whether to drop out.
            query_positions: Where the queries stand, an integer tensor of shape
                `()`, `(query_length,)` or `(batch, query_length)`; counted from
                0 unless given.
            key_positions: Where the keys stand, likewise.

        Returns:
            Outputs `(batch, query_length, hidden_dim)` and scores
            `(batch, num_heads, query_length, key_length)`.
        """
        queries = self._project(query, self.query_projection)[0]
        return self._read(
            queries, keys, values, mask, training, query_positions, key_positions
        )

    def _read(
        self,
        queries,
        keys,
        values,
        mask,
        training,
        query_positions=None,
        key_positions=None,
    ):
        bias = None
        if self.positions is not None:
            queries = self._rotate(queries, query_positions)
            bias = self.positions.bias(
                _or_all(query_positions, queries), _or_all(key_positions, keys)
            )
        if self.score is None:
            outputs, scores = scaled_dot_product_attention(
                queries, keys, values, mask, bias
            )
        else:
            products = self.score.score(queries, keys)
            outputs, scores = read_values(products, values, mask, bias)
        if self.dropout:
            outputs = ops.matmul(self._dropout(scores, training=training), values)
        return dense(self.output_projection, merge_heads(outputs)), scores

    def _rotate(self, states, positions=None):
        if self.positions is None:
            return states
        return self.positions.rotate(states, _or_all(positions, states))

    def _project(self, states, *projections):
        """What each projection makes of `states`, `(batch, heads, length, dim)`.

        One wide product and one transpose in place of several narrow ones.
        """
        fused = len({layer.units for layer in projections}) == 1 and not any(
            layer.quantization_mode for layer in projections
        )
        # To join kernels for a step of decoding costs more than it saves.
        if len(projections) == 1 or not fused or states.shape[1] == 1:
            return [
                split_heads(dense(layer, states), self.num_heads)
                for layer in projections
            ]
        dtype = self.compute_dtype
        states = ops.cast(states, dtype)
        batch, length, width = ops.shape(states)
        kernel = ops.concatenate(
            [ops.cast(layer.kernel, dtype) for layer in projections], axis=-1
        )
        wide = ops.matmul(ops.reshape(states, (-1, width)), kernel)
        if self.use_bias:
            bias = [ops.cast(layer.bias, dtype) for layer in projections]
            # Rather than `+`: of TensorFlow's two sums, that with a quicker gradient.
            wide = ops.add(wide, ops.concatenate(bias, axis=0))
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
            "score": layer_config(self.score),
            "positions": layer_config(self.positions),
        }


def _or_all(positions, states):
    """`positions`, or those of `states`, (batch, heads, length, dim), from 0."""
    return ops.arange(ops.shape(states)[2]) if positions is None else positions
