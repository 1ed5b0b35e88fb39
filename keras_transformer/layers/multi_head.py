"""Multi-head attention: several attentions in parallel, on different projections."""

import keras
from keras import ops

from keras_transformer.checks import check_shape
from keras_transformer.kernels.shapes import shape_of
from keras_transformer.layers.attention_axes import (
    AttentionAxes,
    check_attention_shapes,
)
from keras_transformer.layers.head_attention import HeadAttention
from keras_transformer.layers.masks import AttentionMasks, combine_masks
from keras_transformer.layers.positions import given_positions


@keras.saving.register_keras_serializable(package="keras_transformer")
class MultiHeadAttention(HeadAttention):
    """Attends several times in parallel, each head with its own projections.

    Takes the call arguments of `keras.layers.MultiHeadAttention`, with one
    difference: a query that may attend to nothing gets zeros on every path. Keras
    masks of `query`, `value` and `key` are applied automatically. All heads share
    one score function, and its weights if it has any.

    If scores are not requested, those of more than 1,024 positions are not
    materialised: memory grows with the length of the inputs rather than with its
    square. That does not hold with a `score`, a `soft_cap`, with `dropout` in training,
    and with `positions` that have weights.

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
        output_shape: Shape of each output, an integer or a tuple; the width of the
            query unless given.
        attention_axes: Axes to attend over, for inputs with more than three; all but
            the first and the last unless given.
        num_key_value_heads: Number of heads of keys and values, each of which serves
            `num_heads / num_key_value_heads` heads of queries (grouped-query
            attention); `num_heads` unless given.
        sliding_window: Queries attend only to keys less than so many positions away.
        soft_cap: Largest size of the products of queries and keys: they become
            `soft_cap * tanh(products / soft_cap)`.
        use_gate: Whether a sigmoid of a projection of the query multiplies what the
            heads return.
        seed: Seed of the dropout.
        **kwargs: Initializers, regularizers and constraints of the projections, see
            `WeightOptionsLayer`; base `Layer` arguments, such as `name` and `dtype`.

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
            `(batch, query_length, key_length)`, with the heads as its second
            axis or without the batch. A query attends to a key if all given masks
            allow it.
        use_causal_mask: Whether queries attend only to keys at their own
            position and before.
        return_attention_scores: Whether to return the scores too.
        training: Whether to apply dropout.
        query_positions: Positions of the queries, for the layer's `positions`: an
            integer tensor of shape `(query_length,)` or `(batch, query_length)`;
            counted from 0 unless given.
        key_positions: Positions of the keys. Unless given, those of the queries if
            there are as many keys as queries, else counted from 0.

    Inputs may have more than three axes, `(batch, ..., hidden_dim)`. The masks of
    query, value and key then have all axes of their input but the last.
    `attention_mask` has the batch, then the attended axes of the query, then those of
    the key. Positions count along the attended axes, flattened. Scores have the batch
    and the axes not attended over, then the heads, then the attended axes of query and
    key.

    Returns:
        The outputs, of the shape of `query`, and on request the scores, of
        shape `(batch, num_heads, query_length, key_length)`.

    Raises:
        ValueError: If shapes do not fit each other, a size is not positive, or
            `score` or `positions` is of another kind.

    Example:
        >>> layer = MultiHeadAttention(num_heads=2, key_dim=8)
        >>> states = keras.random.normal((2, 5, 16))
        >>> layer(states, states, use_causal_mask=True).shape
        TensorShape([2, 5, 16])

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.2.2;
        grouped queries: [Ainslie et al., 2023](https://arxiv.org/abs/2305.13245);
        sliding window: [Beltagy et al., 2020](https://arxiv.org/abs/2004.05150);
        soft cap: [Gemma 2, 2024](https://arxiv.org/abs/2408.00118), section 2;
        gate: [Qiu et al., 2025](https://arxiv.org/abs/2505.06708)
    """

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
        check_attention_shapes(query.shape, value.shape, key.shape)
        query_mask = combine_masks(query_mask)
        value_mask = combine_masks(value_mask, key_mask)
        inputs, axes = (query, key, value), self._axes
        if axes is not None:
            attention_mask = axes.fold_attention_mask(attention_mask, query, key)
            query_mask = axes.fold_mask(query_mask, query)
            value_mask = axes.fold_mask(value_mask, value)
            inputs = [axes.fold(x) for x in inputs]
        for name, mask in (("query_mask", query_mask), ("value_mask", value_mask)):
            if mask is not None:
                check_shape(name, mask.shape, "batch", "length")
        masks = AttentionMasks(
            query_mask, value_mask, attention_mask, use_causal_mask, self.sliding_window
        )
        positions = None, None
        if self.positions is not None:
            lengths = inputs[0].shape[1], inputs[1].shape[1]
            query_positions = given_positions(
                "query_positions", query_positions, lengths[0]
            )
            key_positions = given_positions("key_positions", key_positions, lengths[1])
            if axes is not None:
                query_positions = axes.fold_positions(query_positions, query)
                key_positions = axes.fold_positions(key_positions, key)
            if key_positions is None:
                key_positions = _positions_of_keys(query_positions, *inputs[:2])
            positions = query_positions, key_positions
        outputs, scores = self._attend_to_inputs(
            *inputs, masks, positions, return_attention_scores, training
        )
        if axes is not None:
            outputs = axes.unfold(outputs, query)
        if self._output_shape:
            shape = (*ops.shape(outputs)[:-1], *self._output_shape)
            outputs = ops.reshape(outputs, shape)
        if not return_attention_scores:
            return outputs
        if axes is not None:
            scores = axes.unfold_scores(scores, query, key)
        return outputs, scores

    def compute_output_shape(self, query_shape, value_shape, key_shape=None):
        check_attention_shapes(query_shape, value_shape, key_shape or value_shape)
        return (*query_shape[:-1], *(self._output_shape or query_shape[-1:]))

    def compute_output_spec(
        self, query, value, key=None, *args, return_attention_scores=False, **kwargs
    ):
        # Keras would trace `call`.
        key = value if key is None else key
        shape = self.compute_output_shape(query.shape, value.shape, key.shape)
        outputs = keras.KerasTensor(shape, self.compute_dtype)
        if not return_attention_scores:
            return outputs
        axes = AttentionAxes(self.attention_axes, len(query.shape))
        shape = axes.scores_shape(self.num_heads, query.shape, key.shape)
        return outputs, keras.KerasTensor(shape, self.compute_dtype)


def _positions_of_keys(query_positions, query, key):
    """Those of the queries if there are as many keys, else None: counted from 0."""
    if query_positions is None:
        return None
    # Not `key is query`: Keras converts and casts each argument by itself.
    num_queries, num_keys = shape_of(query)[1], shape_of(key)[1]
    are_as_many = num_queries == num_keys
    if not ops.is_tensor(are_as_many):
        return query_positions if are_as_many else None
    counted = ops.arange(num_keys)
    given = ops.take(query_positions, ops.minimum(counted, num_queries - 1), axis=-1)
    return ops.where(are_as_many, given, counted)
