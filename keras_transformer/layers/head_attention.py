"""Attention of several heads, over inputs `(batch, length, dim)` and from a cache."""

import math

from keras import ops

from keras_transformer.checks import check_fractions, check_positive_integers
from keras_transformer.kernels.attention import attend
from keras_transformer.kernels.dense import dense
from keras_transformer.kernels.dropout import Dropout
from keras_transformer.kernels.heads import merge_heads, project_to_heads
from keras_transformer.layers.attention import attend_by_products, scaled_products
from keras_transformer.layers.attention_axes import (
    AttentionAxes,
    as_tuple,
    check_attention_shapes,
)
from keras_transformer.layers.attention_layer import Attention
from keras_transformer.layers.layer_arguments import Positions, copy_layer, layer_config
from keras_transformer.layers.positions import attention_positions
from keras_transformer.layers.projection import Projection
from keras_transformer.layers.weight_options import WeightOptionsLayer


class HeadAttention(WeightOptionsLayer):
    """Base class of `MultiHeadAttention`: projections, and attention once projected."""

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        score: Attention | dict | None = None,
        positions: Positions = None,
        output_shape: int | tuple[int, ...] | None = None,
        attention_axes: int | tuple[int, ...] | None = None,
        num_key_value_heads: int | None = None,
        sliding_window: int | None = None,
        soft_cap: float | None = None,
        use_gate: bool = False,
        seed: int | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        optional = {
            "value_dim": value_dim,
            "num_key_value_heads": num_key_value_heads,
            "sliding_window": sliding_window,
        }
        given = {name: x for name, x in optional.items() if x is not None}
        check_positive_integers(num_heads=num_heads, key_dim=key_dim, **given)
        check_fractions(dropout=dropout)
        if num_heads % (num_key_value_heads or num_heads):
            raise ValueError(
                "`num_key_value_heads` must divide `num_heads`. Received: "
                f"num_key_value_heads={num_key_value_heads}, num_heads={num_heads}."
            )
        if soft_cap is not None and not soft_cap > 0:
            raise ValueError(
                f"`soft_cap` must be above 0, or None. Received: soft_cap={soft_cap}."
            )
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
        # Not `output_shape`, an attribute that Keras's models read.
        self._output_shape = as_tuple("output_shape", output_shape)
        self.attention_axes = as_tuple("attention_axes", attention_axes)
        self.num_key_value_heads = num_key_value_heads
        self.sliding_window = sliding_window
        self.soft_cap = soft_cap
        self.use_gate = use_gate
        self.seed = seed
        self.supports_masking = True

    def build(self, query_shape, value_shape, key_shape=None):
        key_shape = value_shape if key_shape is None else key_shape
        shapes = {"query": query_shape, "value": value_shape, "key": key_shape}
        check_attention_shapes(**shapes)
        self._axes = None
        rank = len(query_shape)
        if rank > 3 or self.attention_axes is not None:
            self._axes = AttentionAxes(self.attention_axes, rank)

        def projection(name, units, input_shape, activation=None):
            layer = Projection(
                units,
                activation,
                name=name,
                use_bias=self.use_bias,
                dtype=self.dtype_policy,
                **self.weight_options,
            )
            layer.build(input_shape)
            return layer

        value_dim = self.value_dim or self.key_dim
        width = self.num_heads * value_dim
        self._num_kv_heads = self.num_key_value_heads or self.num_heads
        self.query_projection = projection(
            "query", self.num_heads * self.key_dim, query_shape
        )
        self.key_projection = projection(
            "key", self._num_kv_heads * self.key_dim, key_shape
        )
        self.gate_projection = None
        if self.use_gate:
            self.gate_projection = projection("gate", width, query_shape, "sigmoid")
        self.value_projection = projection(
            "value", self._num_kv_heads * value_dim, value_shape
        )
        output_dim = math.prod(self._output_shape or query_shape[-1:])
        self.output_projection = projection(
            "output", output_dim, (*query_shape[:-1], width)
        )
        self._dropout = Dropout(self.dropout, self.seed, dtype=self.dtype_policy)
        if self.score is not None:
            head_shape = (None, None, self.key_dim)
            self.score.build(head_shape, head_shape)
        if self.positions is not None:
            self.positions.build((None, self.num_heads, None, self.key_dim))

    def _attend_to_inputs(
        self, query, key, value, masks, positions, return_scores, training
    ):
        """Outputs (batch, length, dim), and scores or None if nothing needs them."""
        # (batch, heads, length, dim)
        queries, keys, values = project_to_heads(
            (query, self.query_projection, self.num_heads),
            (key, self.key_projection, self._num_kv_heads),
            (value, self.value_projection, self._num_kv_heads),
        )
        keys = self._rotate(keys, positions[1])
        if return_scores or self._needs_scores(training):
            keys, values = masks.zero_masked(keys, values)
            mask = masks.combined(ops.shape(queries)[2], ops.shape(keys)[2])
            return self._attend(query, queries, keys, values, mask, training, positions)
        queries = self._rotate(queries, positions[0])
        keys, values = self._repeat_heads(keys), self._repeat_heads(values)
        outputs = attend(queries, keys, values, masks, self._bias_of(positions))
        return self._project_outputs(outputs, query), None

    def _needs_scores(self, training):
        has_learned_positions = self.positions is not None and self.positions.weights
        drops_scores = self.dropout and training
        changes_products = self.score is not None or self.soft_cap is not None
        return bool(changes_products or has_learned_positions or drops_scores)

    def _bias_of(self, positions):
        """The function of `kernels.attention.attend` from rows and keys to a bias."""
        if self.positions is None:
            return None
        query_positions, key_positions = positions

        def bias_of(rows, keys):
            if query_positions is not None:  # rows beyond the last query get its bias
                last = ops.shape(query_positions)[-1] - 1
                rows = ops.take(query_positions, ops.clip(rows, 0, last), axis=-1)
            keys = keys if key_positions is None else key_positions
            return self.positions.bias(rows, keys)

        return bias_of

    def project(self, value, key=None, positions=None):
        """Projects keys and values, once for any number of queries.

        Args:
            value: Float tensor of shape `(batch, key_length, hidden_dim)`.
            key: Float tensor of the same shape; `value` unless given.
            positions: Positions of the keys, for the layer's `positions`: an
                integer tensor of shape `()`, `(key_length,)` or
                `(batch, key_length)`; counted from 0 unless given.

        Returns:
            Keys `(batch, num_key_value_heads, key_length, key_dim)`, rotated to their
            positions, and values `(batch, num_key_value_heads, key_length, value_dim)`.
        """
        keys, values = project_to_heads(
            (value if key is None else key, self.key_projection, self._num_kv_heads),
            (value, self.value_projection, self._num_kv_heads),
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
                `(batch, num_heads, query_length, key_length)`. No other mask is
                applied: it must be False outside of a `sliding_window`.
            training: Whether to apply dropout.
            query_positions: Positions of the queries, as in `project`.
            key_positions: Positions of the keys, likewise.

        Returns:
            Outputs `(batch, query_length, hidden_dim)` and scores
            `(batch, num_heads, query_length, key_length)`.
        """
        (queries,) = project_to_heads((query, self.query_projection, self.num_heads))
        positions = query_positions, key_positions
        return self._attend(query, queries, keys, values, mask, training, positions)

    def _repeat_heads(self, states):
        """Repeats each head of keys or values for the queries that share it."""
        if self._num_kv_heads == self.num_heads:
            return states
        return ops.repeat(states, self.num_heads // self._num_kv_heads, axis=1)

    def _project_outputs(self, outputs, query):
        states = merge_heads(outputs)
        if self.gate_projection is not None:
            states = states * dense(self.gate_projection, query)
        return dense(self.output_projection, states)

    def _attend(self, query, queries, keys, values, mask, training, positions):
        keys, values = self._repeat_heads(keys), self._repeat_heads(values)
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
        if self.soft_cap is not None:
            products = self.soft_cap * ops.tanh(products / self.soft_cap)
        outputs, scores = attend_by_products(products, values, mask, bias)
        if self.dropout:
            outputs = ops.matmul(self._dropout(scores, training=training), values)
        return self._project_outputs(outputs, query), scores

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
            "output_shape": self._output_shape,
            "attention_axes": self.attention_axes,
            "num_key_value_heads": self.num_key_value_heads,
            "sliding_window": self.sliding_window,
            "soft_cap": self.soft_cap,
            "use_gate": self.use_gate,
            "seed": self.seed,
        }


def _given_or_all(positions, states):
    """`positions`, or 0, 1, 2, ... for states of shape (batch, heads, length, dim)."""
    return ops.arange(ops.shape(states)[2]) if positions is None else positions
