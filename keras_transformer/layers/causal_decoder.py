"""The stack of a decoder-only model: nothing to read but what came before."""

import keras
from keras import ops

from keras_transformer.layers.cache import (
    cache_entries,
    cache_positions,
    empty_cache,
    step_through,
    write_step,
)
from keras_transformer.layers.encoder import Encoder, EncoderBlock
from keras_transformer.layers.masks import causal_mask
from keras_transformer.layers.positions import check_position_range


@keras.saving.register_keras_serializable(package="keras_transformer")
class CausalBlock(EncoderBlock):
    """An encoder block that sees no future, and can go on step by step.

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
        inputs: Float tensor of shape `(batch, length, hidden_dim)`.
        mask: Boolean tensor of shape `(batch, length)`, False at padding; the
            Keras mask of `inputs` unless given.
        attention_mask: Boolean tensor of shape `(batch, length, length)`, which
            key each query may attend to, beside the other masks.
        use_causal_mask: Whether positions attend only to those before them.
        return_attention_scores: Whether to return the scores too.
        training: Whether to drop out.

    Returns:
        The outputs, of the shape of `inputs`, and on request the scores, of
        shape `(batch, num_heads, length, length)`.

    Raises:
        ValueError: If `num_heads` does not divide `hidden_dim`.

    Example:
        >>> block = CausalBlock(num_heads=2, intermediate_dim=32)
        >>> block(keras.random.normal((2, 5, 16))).shape
        TensorShape([2, 5, 16])

    Reference:
        [Liu et al., 2018](https://arxiv.org/abs/1801.10198), section 4.2.3
    """

    def call(
        self,
        inputs,
        mask=None,
        attention_mask=None,
        use_causal_mask=True,
        return_attention_scores=False,
        training=None,
    ):
        return super().call(
            inputs,
            mask=mask,
            attention_mask=attention_mask,
            use_causal_mask=use_causal_mask,
            return_attention_scores=return_attention_scores,
            training=training,
        )

    def start(self, inputs, mask, num_hypotheses, max_length):
        """Reads the prompts, once for all hypotheses that continue them.

        Args:
            inputs: Float tensor of shape `(batch, prompt_length, hidden_dim)`.
            mask: Boolean tensor of shape `(batch, prompt_length)`.
            num_hypotheses: Number of hypotheses decoded for each prompt.
            max_length: Number of further positions that the cache has room for.

        Returns:
            The outputs, of the shape of `inputs`; the memory, keys and values
            of the prompts, each of shape
            `(batch, num_heads, prompt_length, dim)`; and an empty cache of
            keys and values, each of shape
            `(batch, num_heads, max_length, num_hypotheses * dim)`.
        """
        may_attend = causal_mask(ops.shape(inputs)[1]) & mask[:, None, :]
        memory = {}

        def attend(states):
            keys, values = self._self_attention.project(states)
            memory.update(keys=keys, values=values)
            return self._self_attention.attend(
                states, keys, values, may_attend[:, None]
            )[0]

        states = self._self_attention_residual(inputs, sublayer=attend)
        states = self._transform_residual(states, sublayer=self._transform)
        cache = empty_cache(memory["keys"], num_hypotheses, max_length)
        return states, memory, cache

    def step(self, inputs, memory, memory_mask, cache, index, visible):
        """Decodes one position of every hypothesis; equals `call` there.

        The hypotheses of a prompt are the queries of one attention over the
        prompt and the whole cache, so that none is ever copied.

        Args:
            inputs: Float tensor of shape `(batch, num_hypotheses, hidden_dim)`.
            memory: Keys and values of the prompts from `start`.
            memory_mask: Boolean tensor of shape `(batch, prompt_length)`.
            cache: Cache from `start` or the last `step`.
            index: Position that is decoded, counted from the end of the prompt,
                an integer tensor.
            visible: Boolean tensor of shape `(batch, num_hypotheses,
                max_length, num_hypotheses)`; see `DecoderBlock.step`.

        Returns:
            The outputs, of the shape of `inputs`, and the new cache.
        """
        batch, num_hypotheses, _ = ops.shape(inputs)
        prompt_length = ops.shape(memory_mask)[1]
        max_length = cache["keys"].shape[2]
        sees_prompt = ops.broadcast_to(
            memory_mask[:, None, None, :], (batch, 1, num_hypotheses, prompt_length)
        )
        entries = max_length * num_hypotheses
        sees_cache = ops.reshape(visible, (batch, 1, num_hypotheses, entries))
        mask = ops.concatenate([sees_prompt, sees_cache], axis=-1)
        here_stands, entries_stand = self._places(
            memory_mask, index, max_length, num_hypotheses
        )
        written = {}

        def attend(states):
            projected = self._self_attention.project(states, positions=here_stands)
            written.update(write_step(cache, index, *projected))
            of_prompt = (memory["keys"], memory["values"])
            of_cache = cache_entries(written, num_hypotheses)
            read = [
                ops.concatenate(parts, axis=2)
                for parts in zip(of_prompt, of_cache, strict=True)
            ]
            return self._self_attention.attend(
                states,
                *read,
                mask,
                query_positions=here_stands,
                key_positions=entries_stand,
            )[0]

        states = self._self_attention_residual(inputs, sublayer=attend)
        states = self._transform_residual(states, sublayer=self._transform)
        return states, written

    def _places(self, memory_mask, index, max_length, num_hypotheses):
        """Positions (batch, 1) of the queries, and (batch, keys) of all keys."""
        if self.positions is None:
            return None, None
        lengths = prompt_lengths(memory_mask)[:, None]
        of_prompt = ops.cumsum(ops.ones_like(memory_mask, "int32"), axis=1) - 1
        of_cache = ops.cast(cache_positions(max_length, num_hypotheses), "int32")
        entries = ops.concatenate([of_prompt, lengths + of_cache], axis=1)
        return lengths + ops.cast(index, "int32"), entries


@keras.saving.register_keras_serializable(package="keras_transformer")
class CausalDecoder(Encoder):
    """A stack of causal blocks; pre-norm stacks end with a normalisation.

    The body of a decoder-only language model: there is no memory to attend to,
    only what was written before.

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
        inputs: Float tensor of shape `(batch, length, hidden_dim)`.
        mask: Boolean tensor of shape `(batch, length)`, False at padding; the
            Keras mask of `inputs` unless given.
        attention_mask: Boolean tensor of shape `(batch, length, length)`, which
            key each query may attend to, beside the other masks.
        use_causal_mask: Whether positions attend only to those before them.
        return_attention_scores: Whether to return the scores too.
        training: Whether to drop out.

    Returns:
        The outputs, of the shape of `inputs`, and on request the scores, of
        shape `(num_layers, batch, num_heads, length, length)`.

    Raises:
        ValueError: If `num_layers` is not positive, or `num_heads` does not
            divide `hidden_dim`.

    Example:
        >>> decoder = CausalDecoder(num_layers=2, num_heads=2, intermediate_dim=32)
        >>> decoder(keras.random.normal((2, 5, 16))).shape
        TensorShape([2, 5, 16])

    Reference:
        [Radford et al., 2018](https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf)
    """

    def build(self, input_shape):
        self._build_stack(CausalBlock, input_shape)

    def call(
        self,
        inputs,
        mask=None,
        attention_mask=None,
        use_causal_mask=True,
        return_attention_scores=False,
        training=None,
    ):
        return super().call(
            inputs,
            mask=mask,
            attention_mask=attention_mask,
            use_causal_mask=use_causal_mask,
            return_attention_scores=return_attention_scores,
            training=training,
        )

    def start(self, inputs, mask, num_hypotheses, max_length):
        """Reads the prompts: lists of what `CausalBlock.start` gives."""
        if self._is_merged and inputs.shape[1] is not None:
            check_position_range(self.positions, inputs.shape[1] + max_length)
        states, memories, caches = self._enter(inputs), [], []
        for block in self.blocks:
            states, memory, cache = block.start(
                states, mask, num_hypotheses, max_length
            )
            memories.append(memory)
            caches.append(cache)
        return memories, caches

    def step(self, inputs, memory, memory_mask, cache, index, visible):
        """Decodes one position through all blocks, as `CausalBlock.step`."""
        states, cache = step_through(
            self.blocks,
            self._enter_step(
                inputs, prompt_lengths(memory_mask) + ops.cast(index, "int32")
            ),
            memory,
            memory_mask,
            cache,
            index,
            visible,
        )
        return self._leave(states), cache


def prompt_lengths(mask):
    """Lengths `(batch,)` of prompts padded on the right, from their mask."""
    return ops.sum(ops.cast(mask, "int32"), axis=1)
