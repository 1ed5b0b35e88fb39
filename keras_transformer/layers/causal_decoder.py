"""The stack of a decoder-only model: causal self-attention without a memory."""

import keras
from keras import ops

from keras_transformer.layers.cache import cache_positions, empty_cache
from keras_transformer.layers.encoder import Encoder, EncoderBlock
from keras_transformer.layers.masks import AttentionMasks
from keras_transformer.layers.positions import check_position_range


class _CausalByDefault:
    """Changes the default of one call argument: `use_causal_mask=True`."""

    def call(
        self,
        inputs,
        mask=None,
        attention_mask=None,
        use_causal_mask=True,
        return_attention_scores=False,
        training=None,
        positions=None,
    ):
        settings = use_causal_mask, return_attention_scores, training, positions
        return super().call(inputs, mask, attention_mask, *settings)


@keras.saving.register_keras_serializable(package="keras_transformer")
class CausalBlock(_CausalByDefault, EncoderBlock):
    """An encoder block with causal self-attention and cached decoding.

    The arguments, inputs and outputs are those of `EncoderBlock`, but `use_causal_mask`
    is True unless given.

    Example:
        >>> block = CausalBlock(num_heads=2, intermediate_dim=32)
        >>> block(keras.random.normal((2, 5, 16))).shape
        TensorShape([2, 5, 16])

    Reference:
        [Liu et al., 2018](https://arxiv.org/abs/1801.10198), section 4.2.3
    """

    def start(self, inputs, mask, num_hypotheses: int, max_length: int):
        """Reads the prompts, once for all hypotheses that continue them.

        Args:
            inputs: Float tensor of shape `(batch, prompt_length, hidden_dim)`.
            mask: Boolean tensor of shape `(batch, prompt_length)`.
            num_hypotheses: Number of hypotheses decoded for each prompt.
            max_length: Number of further positions that the cache can hold.

        Returns:
            The outputs, of the shape of `inputs`; the memory, which holds the keys
            and values of the prompts; and an empty cache.
        """
        length = ops.shape(inputs)[1]
        masks = AttentionMasks(key_mask=mask, use_causal_mask=True)
        queries = self._self_attention_residual.prepare(inputs)
        keys, values = self._self_attention.project(queries)
        outputs, _ = self._self_attention.attend(
            queries, keys, values, masks.combined(length, length)
        )
        states = self._self_attention_residual.add(inputs, outputs)
        cache = empty_cache(keys, num_hypotheses, max_length)
        return self._feed_forward(states), {"keys": keys, "values": values}, cache

    def step(self, inputs, memory, memory_mask, cache, index, visible):
        """Decodes one position of every hypothesis, as `DecoderBlock.step` does.

        The memory is the prompt from `start`, which self-attention reads together
        with the cache; `index` counts from the end of the prompt.
        """
        batch, num_hypotheses, _ = ops.shape(inputs)
        max_length = cache["keys"].shape[2]
        if memory_mask is None:
            prompt_length = ops.shape(memory["keys"])[2]
            memory_mask = ops.ones((batch, prompt_length), "bool")
        rows = (batch, 1, num_hypotheses)
        prompt_mask = ops.broadcast_to(
            memory_mask[:, None, None, :], (*rows, ops.shape(memory_mask)[1])
        )
        cache_mask = ops.reshape(visible, (*rows, max_length * num_hypotheses))
        mask = ops.concatenate([prompt_mask, cache_mask], axis=-1)
        positions = self._positions_of_step(
            memory_mask, index, max_length, num_hypotheses
        )
        states, cache = self._self_attention_step(
            inputs, cache, index, mask, positions, memory
        )
        return self._feed_forward(states), cache

    def _positions_of_step(self, memory_mask, index, max_length, num_hypotheses):
        """Positions (batch, 1) of the queries, and (batch, keys) of all keys."""
        if self.positions is None:
            return None, None
        lengths = prompt_lengths(memory_mask)[:, None]
        in_prompt = ops.cumsum(ops.ones_like(memory_mask, "int32"), axis=1) - 1
        in_cache = cache_positions(max_length, num_hypotheses)
        keys = ops.concatenate([in_prompt, lengths + in_cache], axis=1)
        return lengths + index[:, None], keys


@keras.saving.register_keras_serializable(package="keras_transformer")
class CausalDecoder(_CausalByDefault, Encoder):
    """A stack of causal blocks; pre-norm stacks end with a normalisation.

    The body of a decoder-only language model: there is no memory, only the text
    before each position.

    The arguments, inputs and outputs are those of `Encoder`, but `use_causal_mask` is
    True unless given.

    Example:
        >>> decoder = CausalDecoder(num_layers=2, num_heads=2, intermediate_dim=32)
        >>> decoder(keras.random.normal((2, 5, 16))).shape
        TensorShape([2, 5, 16])

    Reference:
        [Radford et al., 2018](https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf)
    """

    def build(self, input_shape):
        self._build_stack(CausalBlock, input_shape)

    def start(self, inputs, mask, num_hypotheses: int, max_length: int):
        """Reads the prompts; returns a list of memories and one of caches.

        Each element is what `CausalBlock.start` returns for one block.
        """
        if self._merges_positions and inputs.shape[1] is not None:
            check_position_range(self.positions, inputs.shape[1] + max_length)
        states, memories, caches = self._merge_positions(inputs), [], []
        for block in self.blocks:
            started = block.start(states, mask, num_hypotheses, max_length)
            states, memory, cache = started
            memories.append(memory)
            caches.append(cache)
        return memories, caches

    def step(self, inputs, memory, memory_mask, cache, index, visible):
        """Decodes one position through all blocks; see `CausalBlock.step`."""
        position = prompt_lengths(memory_mask) + index
        return self._step(position, inputs, memory, memory_mask, cache, index, visible)


def prompt_lengths(mask):
    """Lengths `(batch,)` of prompts up to their last token, from their mask."""
    places = ops.cumsum(ops.ones_like(mask, "int32"), axis=1)
    return ops.max(ops.where(mask, places, 0), axis=1)
