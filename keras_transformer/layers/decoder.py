"""The decoder: every position reads what was written, and the memory."""

import keras
from keras import ops

from keras_transformer.layers.block import TransformerPart, TransformerStack
from keras_transformer.layers.cache import (
    cache_entries,
    cache_positions,
    empty_cache,
    step_through,
    write_step,
)
from keras_transformer.layers.positions import check_position_range


@keras.saving.register_keras_serializable(package="keras_transformer")
class DecoderBlock(TransformerPart):
    """Masked self-attention, cross-attention and the feed-forward network.

    Args:
        num_heads: Number of attention heads; divides `hidden_dim`.
        intermediate_dim: Inner width of the feed-forward network.
        dropout: Share of each sub-layer's outputs dropped in training.
        normalize_first: Whether to normalise the inputs of each sub-layer
            (pre-norm) rather than the sum after it (the paper's post-norm).
        activation: Inner activation of the feed-forward network.
        epsilon: Added to the variance in the normalisation.
        positions: How self-attention tells positions apart: `"rotary"`,
            `"linear_bias"`, or a layer, such as `RotaryEmbedding()`, taken as a
            pattern. None: it does not, unless the inputs do.
        **kwargs: Base `Layer` arguments, such as `name` and `dtype`.

    Call arguments:
        inputs: Float tensor of shape `(batch, target_length, hidden_dim)`.
        memory: What the encoder made of the source, a float tensor of shape
            `(batch, source_length, memory_dim)`.
        inputs_mask: Boolean tensor of shape `(batch, target_length)`, False at
            padding; the Keras mask of `inputs` unless given.
        memory_mask: Boolean tensor of shape `(batch, source_length)`; the Keras
            mask of `memory` unless given.
        return_attention_scores: Whether to return the scores too.
        training: Whether to drop out.

    Returns:
        The outputs, of the shape of `inputs`, and on request the scores of
        self-attention, `(batch, num_heads, target_length, target_length)`, and
        of cross-attention, `(batch, num_heads, target_length, source_length)`.

    Raises:
        ValueError: If `num_heads` does not divide `hidden_dim`.

    Example:
        >>> block = DecoderBlock(num_heads=2, intermediate_dim=32)
        >>> memory = keras.random.normal((2, 7, 16))
        >>> block(keras.random.normal((2, 5, 16)), memory).shape
        TensorShape([2, 5, 16])

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.1
    """

    def build(self, inputs_shape, memory_shape):
        self._self_attention = self._attention(
            "self_attention", inputs_shape, inputs_shape, positions=self.positions
        )
        self._self_attention_residual = self._residual(
            "self_attention_residual", inputs_shape
        )
        self._cross_attention = self._attention(
            "cross_attention", inputs_shape, memory_shape
        )
        self._cross_attention_residual = self._residual(
            "cross_attention_residual", inputs_shape
        )
        self._transform = self._feed_forward(inputs_shape)
        self._transform_residual = self._residual("feed_forward_residual", inputs_shape)

    def call(
        self,
        inputs,
        memory,
        inputs_mask=None,
        memory_mask=None,
        return_attention_scores=False,
        training=None,
    ):
        def attend(states):
            return self._self_attention(
                states,
                states,
                value_mask=inputs_mask,
                use_causal_mask=True,
                return_attention_scores=return_attention_scores,
                training=training,
            )

        def attend_to_memory(states):
            return self._cross_attention(
                states,
                memory,
                value_mask=memory_mask,
                return_attention_scores=return_attention_scores,
                training=training,
            )

        outputs = self._self_attention_residual(
            inputs, sublayer=attend, training=training
        )
        states, *self_scores = outputs if return_attention_scores else (outputs,)
        outputs = self._cross_attention_residual(
            states, sublayer=attend_to_memory, training=training
        )
        states, *cross_scores = outputs if return_attention_scores else (outputs,)
        states = self._transform_residual(
            states, sublayer=self._transform, training=training
        )
        if return_attention_scores:
            return (states, *self_scores, *cross_scores)
        return states

    def start(self, memory, num_hypotheses, max_length):
        """Prepares cached decoding: what `step` needs besides the new states.

        Args:
            memory: Float tensor of shape `(batch, source_length, memory_dim)`.
            num_hypotheses: Number of hypotheses decoded for each sentence.
            max_length: Number of target positions that the cache has room for.

        Returns:
            The projected memory (keys and values of the cross-attention) and
            an empty cache (keys and values of the self-attention, each of
            shape `(batch, num_heads, max_length, num_hypotheses * dim)`).
        """
        keys, values = self._cross_attention.project(memory)
        cache = empty_cache(keys, num_hypotheses, max_length)
        return {"keys": keys, "values": values}, cache

    def step(self, inputs, memory, memory_mask, cache, index, visible):
        """Decodes one position of every hypothesis; equals `call` there.

        The hypotheses of a sentence are the queries of one attention over the
        whole cache, so that they share the memory and none is ever copied.

        Args:
            inputs: Float tensor of shape `(batch, num_hypotheses, hidden_dim)`.
            memory: Projected memory from `start`.
            memory_mask: Boolean tensor of shape `(batch, source_length)`.
            cache: Cache from `start` or the last `step`.
            index: Position that is decoded, an integer tensor.
            visible: Boolean tensor of shape `(batch, num_hypotheses,
                max_length, num_hypotheses)`: whether a hypothesis may see what
                slot j wrote at position t, in the order (hypothesis, t, j).

        Returns:
            The outputs, of the shape of `inputs`, and the new cache.
        """
        batch, num_hypotheses, _ = ops.shape(inputs)
        max_length = cache["keys"].shape[2]
        entries = max_length * num_hypotheses
        mask = ops.reshape(visible, (batch, 1, num_hypotheses, entries))
        written = {}

        def attend(states):
            projected = self._self_attention.project(states, positions=index)
            written.update(write_step(cache, index, *projected))
            return self._self_attention.attend(
                states,
                *cache_entries(written, num_hypotheses),
                mask,
                query_positions=index,
                key_positions=cache_positions(max_length, num_hypotheses),
            )[0]

        def attend_to_memory(states):
            mask = None if memory_mask is None else memory_mask[:, None, None, :]
            return self._cross_attention.attend(
                states, memory["keys"], memory["values"], mask
            )[0]

        states = self._self_attention_residual(inputs, sublayer=attend)
        states = self._cross_attention_residual(states, sublayer=attend_to_memory)
        states = self._transform_residual(states, sublayer=self._transform)
        return states, written


@keras.saving.register_keras_serializable(package="keras_transformer")
class Decoder(TransformerStack):
    """A stack of decoder blocks; pre-norm stacks end with a normalisation.

    Args:
        num_layers: Number of blocks.
        num_heads: Number of attention heads; divides `hidden_dim`.
        intermediate_dim: Inner width of the feed-forward networks.
        dropout: Share of each sub-layer's outputs dropped in training.
        normalize_first: Whether to normalise the inputs of each sub-layer
            (pre-norm) rather than the sum after it (the paper's post-norm).
        activation: Inner activation of the feed-forward networks.
        epsilon: Added to the variance in the normalisation.
        positions: How positions are told apart: `"sinusoidal"`, `"rotary"`,
            `"linear_bias"`, or a layer, such as
            `LearnedPositionalEncoding(max_length=512)`, taken as a pattern.
            None: they are not, unless in the inputs.
        **kwargs: Base `Layer` arguments, such as `name` and `dtype`.

    Call arguments:
        inputs: Float tensor of shape `(batch, target_length, hidden_dim)`.
        memory: What the encoder made of the source, a float tensor of shape
            `(batch, source_length, memory_dim)`.
        inputs_mask: Boolean tensor of shape `(batch, target_length)`, False at
            padding; the Keras mask of `inputs` unless given.
        memory_mask: Boolean tensor of shape `(batch, source_length)`; the Keras
            mask of `memory` unless given.
        return_attention_scores: Whether to return the scores too.
        training: Whether to drop out.

    Returns:
        The outputs, of the shape of `inputs`, and on request the scores of
        self-attention and of cross-attention, as in `DecoderBlock` with the
        layers as a new first axis.

    Raises:
        ValueError: If `num_layers` is not positive, or `num_heads` does not
            divide `hidden_dim`.

    Example:
        >>> decoder = Decoder(num_layers=2, num_heads=2, intermediate_dim=32)
        >>> memory = keras.random.normal((2, 7, 16))
        >>> decoder(keras.random.normal((2, 5, 16)), memory).shape
        TensorShape([2, 5, 16])

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.1
    """

    def build(self, inputs_shape, memory_shape):
        self._build_stack(DecoderBlock, inputs_shape, memory_shape)

    def call(
        self,
        inputs,
        memory,
        inputs_mask=None,
        memory_mask=None,
        return_attention_scores=False,
        training=None,
    ):
        states, all_scores = self._enter(inputs, training), []
        for block in self.blocks:
            outputs = block(
                states,
                memory,
                inputs_mask=inputs_mask,
                memory_mask=memory_mask,
                return_attention_scores=return_attention_scores,
                training=training,
            )
            states, *scores = outputs if return_attention_scores else (outputs,)
            all_scores.append(scores)
        states = self._leave(states)
        if return_attention_scores:
            return (states, *map(ops.stack, zip(*all_scores, strict=True)))
        return states

    def start(self, memory, num_hypotheses, max_length):
        """Prepares cached decoding: lists of what `DecoderBlock.start` gives."""
        if self._is_merged:
            check_position_range(self.positions, max_length)
        started = [b.start(memory, num_hypotheses, max_length) for b in self.blocks]
        memories, caches = zip(*started, strict=True)
        return list(memories), list(caches)

    def step(self, inputs, memory, memory_mask, cache, index, visible):
        """Decodes one position through all blocks, as `DecoderBlock.step`."""
        states, cache = step_through(
            self.blocks,
            self._enter_step(inputs, index),
            memory,
            memory_mask,
            cache,
            index,
            visible,
        )
        return self._leave(states), cache
