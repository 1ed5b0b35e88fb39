"""The stacks of a Transformer: positions, blocks one after the other, a final norm."""

import keras
from keras import ops

from keras_transformer.checks import check_positive_integers
from keras_transformer.kernels.dropout import Dropout
from keras_transformer.kernels.graphs import shape_of
from keras_transformer.kernels.layer_norm import LayerNormalization
from keras_transformer.layers.block import (
    BlockSettings,
    CausalBlock,
    DecoderBlock,
    EncoderBlock,
    TransformerBlock,
    check_states,
    prompt_lengths,
    whole_prompt_mask,
)
from keras_transformer.layers.positions import (
    AttentionPositions,
    check_position_range,
)
from keras_transformer.layers.saving import Positions
from keras_transformer.layers.weights import sub_seed


class TransformerStack(BlockSettings):
    """Base class of stacks of a `block_class`, with the arguments of `Encoder`.

    Attributes:
        max_positions: The most positions that the layer of positions has; None if
            unlimited.
    """

    block_class: type[TransformerBlock]
    takes_encodings = True
    is_remat_unit = False

    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        intermediate_dim: int,
        positions: Positions = None,
        **kwargs,
    ):
        super().__init__(num_heads, intermediate_dim, positions=positions, **kwargs)
        check_positive_integers(num_layers=num_layers)
        self.num_layers = num_layers
        self._merges_positions = not isinstance(
            self.positions, AttentionPositions | None
        )
        self.max_positions: int | None = getattr(self.positions, "max_length", None)

    def _build_blocks(self, inputs_shape, *memory_shape):
        check_states(inputs_shape)
        settings, dtype = self._block_settings(), self.dtype_policy
        if self._merges_positions:
            settings["positions"] = None
            self.positions.build(inputs_shape)
            inputs_shape = self.positions.compute_output_shape(inputs_shape)
        seed = sub_seed(self.seed, "dropout")
        self._dropout = Dropout(self.dropout, seed, dtype=dtype)
        self.blocks = [
            self.block_class(
                **{**settings, "seed": sub_seed(self.seed, name)},
                name=name,
                dtype=dtype,
                **self.weight_options.of(name=name),
            )
            for name in (f"block_{i}" for i in range(self.num_layers))
        ]
        for block in self.blocks:
            block.build(inputs_shape, *memory_shape)
        if self.positions is not None:
            self.positions.built = True  # The blocks have copies; Keras checks all.
        self._norm = None
        if self.normalize_first:  # the last block leaves its sum unnormalised
            self._norm = LayerNormalization(
                epsilon=self.epsilon, name="final_norm", dtype=dtype
            )
            self._norm.build(inputs_shape)

    def _call_blocks(
        self, inputs, *memory, positions, return_attention_scores, **settings
    ):
        """Calls all blocks; scores get the layers as their first axis."""
        settings["return_attention_scores"] = return_attention_scores
        states, all_scores = inputs, []
        if not self._merges_positions:
            settings["positions"] = positions
        elif positions is None:  # a layer of a user's may take no `positions`
            states = self.positions(inputs)
        else:
            states = self.positions(inputs, positions=positions)
        states = self._dropout(states, training=settings["training"])
        for block in self.blocks:
            outputs = block(states, *memory, **settings)
            states, *scores = outputs if return_attention_scores else (outputs,)
            all_scores.append(scores)
        states = states if self._norm is None else self._norm(states)
        if not return_attention_scores:
            return states
        return (states, *map(ops.stack, zip(*all_scores, strict=True)))

    def _step(self, position, states, memories, memory_mask, caches, index, visible):
        """Merges the `position` of the step, and calls the `step` of every block.

        States have the shape `(batch, num_hypotheses, hidden_dim)`, and `position` has
        the shape `(batch,)`.
        """
        if self._merges_positions:
            batch, num_hypotheses, width = shape_of(states, for_reshape=True)
            states = ops.reshape(states, (-1, 1, width))
            start_index = ops.repeat(position, num_hypotheses)
            states = self.positions(states, start_index=start_index)
            states = ops.reshape(states, (batch, num_hypotheses, states.shape[-1]))
        new_cache, blocks = [], zip(self.blocks, memories, caches, strict=True)
        for block, memory, cache in blocks:
            states, cache = block.step(
                states, memory, memory_mask, cache, index, visible
            )
            new_cache.append(cache)
        return states if self._norm is None else self._norm(states), new_cache

    def compute_output_shape(self, inputs_shape, memory_shape=None):
        if not self._merges_positions:
            return inputs_shape
        return self.positions.compute_output_shape(inputs_shape)

    def get_config(self):
        return {**super().get_config(), "num_layers": self.num_layers}


@keras.saving.register_keras_serializable(package="keras_transformer")
class Encoder(TransformerStack):
    """A stack of encoder blocks; pre-norm stacks end with a normalisation.

    Positions that act inside attention are passed to the blocks. Other positions are
    merged into the inputs of the stack. `dropout` applies to the inputs with their
    positions, as in the paper, and to the inputs as they are if nothing is merged.

    Args:
        num_layers: Number of blocks.
        num_heads: Number of attention heads; divides `hidden_dim`.
        intermediate_dim: Inner width of the feed-forward networks.
        positions: As in `EncoderBlock`; or `"sinusoidal"`, or a layer such as
            `LearnedPositionalEncoding(max_length=512)`, which is copied.
        **kwargs: The other arguments of `EncoderBlock`.

    Call arguments:
        As in `EncoderBlock`.

    Returns:
        As in `EncoderBlock`, the scores with the layers as a new first axis.

    Raises:
        ValueError: If `num_layers` is not positive; see `EncoderBlock`.

    Example:
        >>> encoder = Encoder(num_layers=2, num_heads=2, intermediate_dim=32)
        >>> encoder(keras.random.normal((2, 5, 16))).shape
        TensorShape([2, 5, 16])

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.1
    """

    block_class: type[TransformerBlock] = EncoderBlock

    def build(self, input_shape):
        self._build_blocks(input_shape)

    def call(
        self,
        inputs,
        mask=None,
        attention_mask=None,
        use_causal_mask=None,
        return_attention_scores=False,
        training=None,
        positions=None,
    ):
        return self._call_blocks(
            inputs,
            positions=positions,
            mask=mask,
            attention_mask=attention_mask,
            use_causal_mask=use_causal_mask,
            return_attention_scores=return_attention_scores,
            training=training,
        )


@keras.saving.register_keras_serializable(package="keras_transformer")
class Decoder(TransformerStack):
    """A stack of decoder blocks; pre-norm stacks end with a normalisation.

    It takes the arguments of `Encoder` and the inputs of `DecoderBlock`, and returns
    what the latter does, the scores with the layers as a new first axis.

    Example:
        >>> decoder = Decoder(num_layers=2, num_heads=2, intermediate_dim=32)
        >>> memory = keras.random.normal((2, 7, 16))
        >>> decoder(keras.random.normal((2, 5, 16)), memory).shape
        TensorShape([2, 5, 16])

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.1
    """

    block_class = DecoderBlock

    def build(self, inputs_shape, memory_shape):
        self._build_blocks(inputs_shape, memory_shape)

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

    def start(self, memory, num_hypotheses: int, max_length: int, memory_mask=None):
        """Prepares cached decoding: a list of memories and one of caches.

        Each element is what `DecoderBlock.start` returns for one block.
        """
        check_position_range(self.max_positions, max_length)
        settings = num_hypotheses, max_length, memory_mask
        started = [block.start(memory, *settings) for block in self.blocks]
        memories, caches = zip(*started, strict=True)
        return list(memories), list(caches)

    def step(self, inputs, memory, memory_mask, cache, index, visible):
        """Decodes one position through all blocks; see `DecoderBlock.step`."""
        return self._step(index, inputs, memory, memory_mask, cache, index, visible)


@keras.saving.register_keras_serializable(package="keras_transformer")
class CausalDecoder(Encoder):
    """A stack of causal blocks; pre-norm stacks end with a normalisation.

    The body of a decoder-only language model: there is no memory, only the text
    before each position.

    It takes and returns what `Encoder` does. Default of `use_causal_mask`: True.

    Example:
        >>> decoder = CausalDecoder(num_layers=2, num_heads=2, intermediate_dim=32)
        >>> decoder(keras.random.normal((2, 5, 16))).shape
        TensorShape([2, 5, 16])

    Reference:
        [Radford et al., 2018](https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf)
    """

    block_class = CausalBlock

    def start(
        self,
        inputs,
        mask,
        num_hypotheses: int,
        max_length: int,
        repeats_last: bool = False,
    ):
        """Reads the prompts; returns a list of memories and one of caches.

        Each element is what `CausalBlock.start` returns for one block. With
        `repeats_last`, the first step takes the last input again.
        """
        if inputs.shape[1] is not None:
            first_step = inputs.shape[1] - repeats_last
            check_position_range(self.max_positions, first_step + max_length)
        states = self.positions(inputs) if self._merges_positions else inputs
        memories, caches = [], []
        for block in self.blocks:
            started = block.start(states, mask, num_hypotheses, max_length)
            states, memory, cache = started
            memories.append(memory)
            caches.append(cache)
        return memories, caches

    def step(self, inputs, memory, memory_mask, cache, index, visible):
        """Decodes one position through all blocks; see `CausalBlock.step`."""
        if memory_mask is None:
            memory_mask = whole_prompt_mask(memory[0])
        position = prompt_lengths(memory_mask) + index
        return self._step(position, inputs, memory, memory_mask, cache, index, visible)
