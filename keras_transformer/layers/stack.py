"""The stacks of a Transformer: positions, a sequence of blocks, a final norm."""

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
)
from keras_transformer.layers.positions import AttentionPositions, check_position_range
from keras_transformer.layers.saving import Positions
from keras_transformer.layers.weights import sub_seed


class TransformerStack(BlockSettings):
    """Base class of stacks of a `block_class`, with the arguments of `Encoder`.

    Attributes:
        max_positions: Maximum number of positions of the layer of positions; None if
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
        """Calls all blocks; attention weights get the layers as their first axis."""
        settings["return_attention_scores"] = return_attention_scores
        states, all_weights = inputs, []
        if not self._merges_positions:
            settings["positions"] = positions
        elif positions is None:  # a layer of a user's may take no `positions`
            states = self.positions(inputs)
        else:
            states = self.positions(inputs, positions=positions)
        states = self._dropout(states, training=settings["training"])
        for block in self.blocks:
            outputs = block(states, *memory, **settings)
            states, *weights = outputs if return_attention_scores else (outputs,)
            all_weights.append(weights)
        states = states if self._norm is None else self._norm(states)
        if not return_attention_scores:
            return states
        return (states, *map(ops.stack, zip(*all_weights, strict=True)))

    def compute_output_shape(self, inputs_shape, memory_shape=None):
        if not self._merges_positions:
            return inputs_shape
        return self.positions.compute_output_shape(inputs_shape)

    def get_config(self):
        return {**super().get_config(), "num_layers": self.num_layers}


class CachedStack(TransformerStack):
    """Base class of stacks that decode step by step, over a cache."""

    def start(self, inputs, num_hypotheses: int, max_length: int, mask=None):
        """Prepares cached decoding: a list of contexts and one of caches.

        Takes the arguments of a block's `start`; each element is the result for one
        block.
        """
        check_position_range(self.max_positions, max_length)
        contexts, caches = [], []
        for block in self.blocks:
            started = block.start(inputs, num_hypotheses, max_length, mask)
            inputs, context, cache = started
            contexts.append(context)
            caches.append(cache)
        return contexts, caches

    def step(self, inputs, context, cache, index, visible, positions=None):
        """Decodes one position through all blocks; see `DecoderBlock.step`.

        Default of `positions`: the `index`; after prompts, counted from their end,
        including padding.
        """
        positions = index if positions is None else positions
        if self._merges_positions:
            batch, num_hypotheses, width = shape_of(inputs, for_reshape=True)
            start_index = ops.repeat(positions, num_hypotheses)
            states = ops.reshape(inputs, (-1, 1, width))
            states = self.positions(states, start_index=start_index)
            shape = (batch, num_hypotheses, states.shape[-1])
            inputs = ops.reshape(states, shape)
        states, new_cache = inputs, []
        for block, *one in zip(self.blocks, context, cache, strict=True):
            states, written = block.step(states, *one, index, visible, positions)
            new_cache.append(written)
        return states if self._norm is None else self._norm(states), new_cache


@keras.saving.register_keras_serializable(package="keras_transformer")
class Encoder(TransformerStack):
    """A stack of encoder blocks; pre-norm stacks end with a normalization.

    Positions that act inside attention are passed to the blocks. Other positions are
    merged into the inputs of the stack. `dropout` applies to the inputs after any
    positions are merged, as in the paper.

    It takes and returns what `EncoderBlock` does, with the layers as a new first axis
    of the weights.

    Args:
        num_layers: Number of blocks.
        num_heads: Number of attention heads; divides `hidden_dim`.
        intermediate_dim: Inner width of the feed-forward networks.
        positions: `"rotary"` or `"linear_bias"`, which act in self-attention;
            `"sinusoidal"`, which is added to the inputs; or a layer such as
            `LearnedPositionalEncoding(max_length=512)`, which is copied. None: no
            positions; the inputs may contain them.
        **kwargs: The other arguments of `EncoderBlock`.

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
class Decoder(CachedStack):
    """A stack of decoder blocks; pre-norm stacks end with a normalization.

    It takes the arguments of `Encoder` and the inputs of `DecoderBlock`, and returns
    what `DecoderBlock` does, with the layers as a new first axis of the weights.

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


@keras.saving.register_keras_serializable(package="keras_transformer")
class CausalDecoder(CachedStack, Encoder):
    """A stack of causal blocks; pre-norm stacks end with a normalization.

    The body of a decoder-only language model: without a memory, each position sees only
    the text before it.

    It takes and returns what `Encoder` does. Default of `use_causal_mask`: True.

    Example:
        >>> decoder = CausalDecoder(num_layers=2, num_heads=2, intermediate_dim=32)
        >>> decoder(keras.random.normal((2, 5, 16))).shape
        TensorShape([2, 5, 16])

    Reference:
        [Radford et al., 2018](https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf)
    """

    block_class = CausalBlock

    def start(self, inputs, num_hypotheses: int, max_length: int, mask=None):
        if inputs.shape[1] is not None:
            # The first step may read the last token of the prompts again.
            first = inputs.shape[1] - 1
            check_position_range(self.max_positions, first + max_length)
        states = self.positions(inputs) if self._merges_positions else inputs
        return super().start(states, num_hypotheses, max_length, mask)

    def step(self, inputs, context, cache, index, visible, positions=None):
        if positions is None:
            positions = shape_of(context[0].keys)[2] + index
        return super().step(inputs, context, cache, index, visible, positions)
