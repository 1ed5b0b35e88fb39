"""The decoder: every position attends to the target before it, and to the memory."""

import keras
from keras import ops

from keras_transformer.layers.block import TransformerBlock
from keras_transformer.layers.cache import cache_positions, empty_cache
from keras_transformer.layers.positions import check_position_range
from keras_transformer.layers.stack import TransformerStack


@keras.saving.register_keras_serializable(package="keras_transformer")
class DecoderBlock(TransformerBlock):
    """Causal self-attention, cross-attention and the feed-forward network.

    The arguments are those of `EncoderBlock`; `positions` are those of self-attention.

    Call arguments:
        inputs: Float tensor of shape `(batch, target_length, hidden_dim)`.
        memory: The encoder's outputs, a float tensor of shape
            `(batch, source_length, memory_dim)`.
        inputs_mask: Boolean tensor of shape `(batch, target_length)`, False at
            padding; the Keras mask of `inputs` unless given.
        memory_mask: Boolean tensor of shape `(batch, source_length)`; the Keras
            mask of `memory` unless given.
        return_attention_scores: Whether to return the scores too.
        training: Whether to apply dropout.
        positions: Positions of the inputs, as in `EncoderBlock`; cross-attention
            knows no positions.

    Returns:
        The outputs, of the shape of `inputs`, and on request the scores of
        self-attention, `(batch, num_heads, target_length, target_length)`, and
        of cross-attention, `(batch, num_heads, target_length, source_length)`.

    Example:
        >>> block = DecoderBlock(num_heads=2, intermediate_dim=32)
        >>> memory = keras.random.normal((2, 7, 16))
        >>> block(keras.random.normal((2, 5, 16)), memory).shape
        TensorShape([2, 5, 16])
    """

    def build(self, inputs_shape, memory_shape):
        self._self_attention, self._self_attention_residual = self._build_attention(
            "self_attention", inputs_shape, inputs_shape, positions=self.positions
        )
        self._cross_attention, self._cross_attention_residual = self._build_attention(
            "cross_attention", inputs_shape, memory_shape
        )
        self._build_feed_forward(inputs_shape)

    def call(
        self,
        inputs,
        memory,
        inputs_mask=None,
        memory_mask=None,
        return_attention_scores=False,
        training=None,
        positions=None,
    ):
        settings = {
            "return_attention_scores": return_attention_scores,
            "training": training,
        }
        states, *self_scores = self._attend(
            self._self_attention,
            self._self_attention_residual,
            inputs,
            positions=positions,
            value_mask=inputs_mask,
            use_causal_mask=True,
            **settings,
        )
        states, *cross_scores = self._attend(
            self._cross_attention,
            self._cross_attention_residual,
            states,
            memory,
            value_mask=memory_mask,
            **settings,
        )
        states = self._feed_forward(states, training)
        scores = (*self_scores, *cross_scores)
        return (states, *scores) if return_attention_scores else states

    def start(self, memory, num_hypotheses: int, max_length: int):
        """Prepares cached decoding: what `step` needs besides the new states.

        Args:
            memory: Float tensor of shape `(batch, source_length, memory_dim)`.
            num_hypotheses: Number of hypotheses decoded for each sentence.
            max_length: Number of target positions that the cache can hold.

        Returns:
            The projected memory (keys and values of the cross-attention) and an
            empty cache (keys and values of the self-attention).
        """
        keys, values = self._cross_attention.project(memory)
        cache = empty_cache(keys, num_hypotheses, max_length)
        return {"keys": keys, "values": values}, cache

    def step(self, inputs, memory, memory_mask, cache, index, visible):
        """Decodes one position of every hypothesis; equals `call` there.

        The hypotheses of a sentence are the queries of one attention over the
        whole cache: they share the memory, and no hypothesis is ever copied.

        Args:
            inputs: Float tensor of shape `(batch, num_hypotheses, hidden_dim)`.
            memory: Projected memory from `start`.
            memory_mask: Boolean tensor of shape `(batch, source_length)`, or None.
            cache: Cache from `start` or the last `step`.
            index: Position of each sentence that is decoded, int32 of shape
                `(batch,)`.
            visible: Boolean tensor of shape `(batch, num_hypotheses,
                max_length, num_hypotheses)`: `visible[b, i, t, j]` says whether
                hypothesis `i` may attend to what slot `j` wrote at position `t`.

        Returns:
            The outputs, of the shape of `inputs`, and the new cache.
        """
        batch, num_hypotheses, _ = ops.shape(inputs)
        max_length = cache["keys"].shape[2]
        shape = (batch, 1, num_hypotheses, max_length * num_hypotheses)
        mask = ops.reshape(visible, shape)
        query_positions = ops.expand_dims(index, 1)
        positions = query_positions, cache_positions(max_length, num_hypotheses)
        states, cache = self._self_attention_step(inputs, cache, index, mask, positions)
        mask = None if memory_mask is None else memory_mask[:, None, None, :]
        queries = self._cross_attention_residual.prepare(states)
        outputs, _ = self._cross_attention.attend(
            queries, memory["keys"], memory["values"], mask
        )
        states = self._cross_attention_residual.add(states, outputs)
        return self._feed_forward(states), cache


@keras.saving.register_keras_serializable(package="keras_transformer")
class Decoder(TransformerStack):
    """A stack of decoder blocks; pre-norm stacks end with a normalisation.

    The arguments are those of `Encoder`; inputs and outputs are those of
    `DecoderBlock`, the scores with the layers as a new first axis.

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
        positions=None,
    ):
        return self._call_blocks(
            inputs,
            memory,
            positions=positions,
            inputs_mask=inputs_mask,
            memory_mask=memory_mask,
            return_attention_scores=return_attention_scores,
            training=training,
        )

    def start(self, memory, num_hypotheses: int, max_length: int):
        """Prepares cached decoding: a list of memories and one of caches.

        Each element is what `DecoderBlock.start` returns for one block.
        """
        if self._merges_positions:
            check_position_range(self.positions, max_length)
        started = [b.start(memory, num_hypotheses, max_length) for b in self.blocks]
        memories, caches = zip(*started, strict=True)
        return list(memories), list(caches)

    def step(self, inputs, memory, memory_mask, cache, index, visible):
        """Decodes one position through all blocks; see `DecoderBlock.step`."""
        return self._step(index, inputs, memory, memory_mask, cache, index, visible)
