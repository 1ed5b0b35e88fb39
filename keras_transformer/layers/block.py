"""The blocks of encoders and decoders: attention and a feed-forward network."""

import inspect

import keras
from keras import ops

from keras_transformer.checks import check_fractions, check_positive_integers
from keras_transformer.keras_private import get_mask
from keras_transformer.kernels.graphs import shape_of
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.keys_values import empty_cache
from keras_transformer.layers.masks import check_masks
from keras_transformer.layers.multi_head import MultiHeadAttention
from keras_transformer.layers.positions import input_positions, position_layer_of
from keras_transformer.layers.residual import Residual
from keras_transformer.layers.saving import Activation, Positions, layer_config
from keras_transformer.layers.weights import WeightOptionsLayer, sub_seed


class BlockSettings(WeightOptionsLayer):
    """Base class of blocks, and of stacks of blocks: their arguments."""

    takes_encodings = False  # as `positions`, besides layers that act inside attention

    def __init__(
        self,
        num_heads: int,
        intermediate_dim: int,
        dropout: float = 0.0,
        normalize_first: bool = False,
        activation: Activation = "relu",
        epsilon: float = 1e-6,
        positions: Positions = None,
        attention_dropout: float = 0.0,
        activation_dropout: float = 0.0,
        seed: int | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_positive_integers(num_heads=num_heads)
        check_fractions(
            dropout=dropout,
            attention_dropout=attention_dropout,
            activation_dropout=activation_dropout,
        )
        self.num_heads = num_heads
        self.intermediate_dim = intermediate_dim
        self.dropout = dropout
        self.normalize_first = normalize_first
        self.activation = keras.activations.get(activation)
        self.epsilon = epsilon
        self.positions = position_layer_of(
            positions, self.dtype_policy, in_attention=not self.takes_encodings
        )
        self.attention_dropout = attention_dropout
        self.activation_dropout = activation_dropout
        self.seed = seed
        self.supports_masking = True

    def _block_settings(self):
        names = inspect.signature(BlockSettings).parameters
        return {name: getattr(self, name) for name in names if name != "kwargs"}

    def compute_output_spec(
        self, inputs, *args, return_attention_scores=False, **kwargs
    ):
        if return_attention_scores:
            kwargs["return_attention_scores"] = True
            return keras.Operation.compute_output_spec(self, inputs, *args, **kwargs)
        # Keras would trace `call`, which takes a second for every few blocks.
        shape = self.compute_output_shape(inputs.shape)
        return keras.KerasTensor(shape, self.compute_dtype)

    def compute_output_shape(self, inputs_shape, memory_shape=None):
        return inputs_shape

    def get_config(self):
        return {
            **super().get_config(),
            **self._block_settings(),
            "activation": keras.activations.serialize(self.activation),
            "positions": layer_config(self.positions),
        }


class TransformerBlock(BlockSettings):
    """Base class of blocks: sub-layers, each with a residual connection."""

    def _build_sublayers(self, inputs_shape, memory_shape=None):
        check_states(inputs_shape)
        hidden_dim = inputs_shape[-1]
        check_heads_divide(self.num_heads, hidden_dim)
        heads = {
            "num_heads": self.num_heads,
            "key_dim": hidden_dim // self.num_heads,
            "dropout": self.attention_dropout,
        }
        self._self_attention, self._self_attention_residual = self._sublayer(
            MultiHeadAttention,
            "self_attention",
            (inputs_shape, inputs_shape),
            positions=self.positions,
            **heads,
        )
        if self.positions is not None:
            self.positions.built = True  # The attention has a copy; Keras checks both.
        self._cross_attention = None
        if memory_shape is not None:
            self._cross_attention, self._cross_attention_residual = self._sublayer(
                MultiHeadAttention,
                "cross_attention",
                (inputs_shape, memory_shape),
                **heads,
            )
        self._transform, self._transform_residual = self._sublayer(
            FeedForward,
            "feed_forward",
            (inputs_shape,),
            intermediate_dim=self.intermediate_dim,
            activation=self.activation,
            dropout=self.activation_dropout,
        )

    def _sublayer(self, layer_class, name, shapes, **settings):
        """Builds a sub-layer, and the residual connection around it."""
        layer = layer_class(
            **settings,
            seed=sub_seed(self.seed, name),
            name=name,
            dtype=self.dtype_policy,
            **self.weight_options.of(name=name),
        )
        layer.build(*shapes)
        name = f"{name}_residual"
        residual = Residual(
            self.dropout,
            self.normalize_first,
            self.epsilon,
            seed=sub_seed(self.seed, name),
            name=name,
            dtype=self.dtype_policy,
        )
        residual.build(shapes[0])
        return layer, residual

    def _compute(
        self,
        inputs,
        context=None,
        cache=None,
        index=None,
        mask=None,
        attention_mask=None,
        use_causal_mask=False,
        return_attention_scores=False,
        training=None,
        positions=None,
    ):
        """Computes the block, for whole sequences or for a step of cached decoding.

        Self-attention reads the inputs; in a step, the cache with the inputs written at
        `index`. Cross-attention reads the context, the memory; without a
        cross-attention, the context is a prompt, which self-attention reads before the
        cache.

        Returns:
            The outputs; the `KeyValues` of the inputs, in a step the new cache; and
            the attention weights of each attention, None if not requested.
        """
        if positions is not None:
            if self.positions is None:
                raise ValueError(
                    "`positions` must be given only to a layer that uses them: build "
                    "it with `positions='rotary'`, for example. "
                    f"Received: positions={positions!r}."
                )
            positions = input_positions(inputs.shape[1], positions=positions)
        # A step asks for weights: its few queries are computed as a whole.
        with_weights = return_attention_scores or cache is not None
        settings = {"return_attention_scores": with_weights, "training": training}
        queries = self._self_attention_residual.prepare(inputs)
        own = self._self_attention.project(queries, mask=mask, positions=positions)
        read = own
        if cache is not None:
            own = cache.write(index, own)
            read = own.entries(inputs.shape[1])
        if context is not None and self._cross_attention is None:
            read = context.join(read)
        outputs, *weights = self._self_attention.attend(
            queries,
            read,
            mask,
            attention_mask,
            use_causal_mask,
            positions=positions,
            **settings,
        )
        states = self._self_attention_residual.add(inputs, outputs, training)
        if self._cross_attention is not None:
            queries = self._cross_attention_residual.prepare(states)
            attended = self._cross_attention.attend(queries, context, mask, **settings)
            outputs, cross_weights = attended
            weights.append(cross_weights)
            states = self._cross_attention_residual.add(states, outputs, training)
        inputs = self._transform_residual.prepare(states)
        outputs = self._transform(inputs, training=training)
        return self._transform_residual.add(states, outputs, training), own, weights


class CachedBlock(TransformerBlock):
    """Base class of blocks that decode step by step, over a cache."""

    def start(self, inputs, num_hypotheses: int, max_length: int, mask=None):
        """Reads the encoder's outputs or the prompts, `(batch, length, width)`, once.

        The cache can hold `max_length` positions of `num_hypotheses` for each sentence.
        `mask`, `(batch, length)`, is False at padding.

        Returns what the next block reads, the encoder's outputs or the states of the
        prompts; its `KeyValues`, the context of `step`; and an empty cache.
        """
        positions = None
        if self.positions is not None:
            batch, length, _ = shape_of(inputs)
            positions = ops.arange(length, dtype="int32")
            positions = ops.broadcast_to(positions, (batch, length))
        if self._cross_attention is None:
            inputs, context, _ = self._compute(
                inputs, mask=mask, use_causal_mask=True, positions=positions
            )
        else:
            context = self._cross_attention.project(inputs, mask=mask)
        has_positions = positions is not None
        cache = empty_cache(context, num_hypotheses, max_length, has_positions)
        return inputs, context, cache

    def step(self, inputs, context, cache, index, visible, positions):
        """Decodes one position of every hypothesis, as `call` would.

        The hypotheses of a sentence are the queries of one attention over the whole
        cache: they share the context, and no hypothesis is ever copied. Inputs and
        outputs have the shape `(batch, num_hypotheses, hidden_dim)`.

        `context` and `cache` are from `start`, the cache later from the last `step`.
        `index` is where each sentence is in the cache, and `positions` are those of the
        inputs, both int32 of shape `(batch,)`. `visible[b, i, t, j]`, boolean of shape
        `(batch, num_hypotheses, max_length, num_hypotheses)`, says whether hypothesis
        `i` may attend to what slot `j` wrote at `t`. Returns the outputs and the new
        cache.
        """
        batch, num_hypotheses, _ = shape_of(inputs, for_reshape=True)
        entries = visible.shape[2] * num_hypotheses
        mask = ops.reshape(visible, (batch, 1, num_hypotheses, entries))
        batch = shape_of(inputs)[0]
        if self._cross_attention is None:
            in_prompt = (batch, 1, num_hypotheses, shape_of(context.keys)[2])
            mask = ops.concatenate([ops.ones(in_prompt, "bool"), mask], axis=-1)
        here = None
        if self.positions is not None:
            here = ops.expand_dims(positions, 1)
            here = ops.broadcast_to(here, (batch, num_hypotheses))
        states, cache, _ = self._compute(
            inputs, context, cache, index, attention_mask=mask, positions=here
        )
        return states, cache


@keras.saving.register_keras_serializable(package="keras_transformer")
class EncoderBlock(TransformerBlock):
    """Self-attention and the feed-forward network, each with a residual connection.

    Args:
        num_heads: Number of attention heads; divides `hidden_dim`.
        intermediate_dim: Inner width of the feed-forward network.
        dropout: Fraction of each sub-layer's outputs dropped in training.
        normalize_first: Whether to normalize the inputs of each sub-layer (pre-norm)
            rather than the sum after it (the paper's post-norm).
        activation: Inner activation of the feed-forward network.
        epsilon: Added to the variance in the normalization.
        positions: How self-attention uses positions: `"rotary"`,
            `"linear_bias"`, or a layer such as `RotaryEmbedding()`, which is
            copied. None: not at all; the inputs may contain them.
        attention_dropout: Fraction of the attention weights dropped in training. If not
            zero, training materializes them; see `MultiHeadAttention`.
        activation_dropout: Fraction of the activations dropped inside the
            feed-forward network in training.
        seed: Seed of all dropout.
        **kwargs: Base `Layer` arguments, and weight options such as
            `kernel_initializer`; see `WeightOptionsLayer`.

    Call arguments:
        inputs: Float tensor of shape `(batch, length, hidden_dim)`.
        mask: Boolean tensor of shape `(batch, length)`, False at padding, which neither
            attends nor is attended to. Default: the Keras mask of `inputs`.
        attention_mask: Boolean tensor of shape `(batch, length, length)`, which
            key each query may attend to, in addition to the other masks.
        use_causal_mask: Whether positions attend only to themselves and to positions
            before them. Default: False.
        return_attention_scores: Whether to return the attention weights too.
        training: Whether to apply dropout.
        positions: Positions of the inputs in any order, for the layer's `positions`: an
            integer tensor of shape `(length,)` or `(batch, length)`. Default: 0, 1, 2,
            ... A causal mask follows the order of the inputs.

    Returns:
        The outputs, of the shape of `inputs`, and, if requested, the attention weights,
        of shape `(batch, num_heads, length, length)`.

    Raises:
        ValueError: If `num_heads` does not divide `hidden_dim`, a dropout is not a
            fraction, or `positions` are given to a layer without positions.

    Example:
        >>> block = EncoderBlock(num_heads=2, intermediate_dim=32)
        >>> block(keras.random.normal((2, 5, 16))).shape
        TensorShape([2, 5, 16])
    """

    is_causal = False  # the default of `use_causal_mask`

    def build(self, input_shape):
        self._build_sublayers(input_shape)

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
        mask = get_mask(inputs) if mask is None else mask
        check_masks(inputs.shape[1], inputs.shape[1], attention_mask, mask=mask)
        if use_causal_mask is None:
            use_causal_mask = self.is_causal
        states, _, weights = self._compute(
            inputs,
            mask=mask,
            attention_mask=attention_mask,
            use_causal_mask=use_causal_mask,
            return_attention_scores=return_attention_scores,
            training=training,
            positions=positions,
        )
        return (states, *weights) if return_attention_scores else states


@keras.saving.register_keras_serializable(package="keras_transformer")
class CausalBlock(CachedBlock, EncoderBlock):
    """An encoder block with causal self-attention and cached decoding.

    It takes and returns what `EncoderBlock` does. Default of `use_causal_mask`: True.

    Example:
        >>> block = CausalBlock(num_heads=2, intermediate_dim=32)
        >>> block(keras.random.normal((2, 5, 16))).shape
        TensorShape([2, 5, 16])

    Reference:
        [Liu et al., 2018](https://arxiv.org/abs/1801.10198), section 4.2.3
    """

    is_causal = True


@keras.saving.register_keras_serializable(package="keras_transformer")
class DecoderBlock(CachedBlock):
    """Causal self-attention, cross-attention and the feed-forward network.

    It takes the arguments of `EncoderBlock`; `positions` act in self-attention.

    Call arguments:
        inputs: Float tensor of shape `(batch, target_length, hidden_dim)`.
        memory: The encoder's outputs, a float tensor of shape
            `(batch, source_length, memory_dim)`.
        inputs_mask: Boolean tensor of shape `(batch, target_length)`, False at
            padding. Default: the Keras mask of `inputs`.
        memory_mask: Boolean tensor of shape `(batch, source_length)`. Default: the
            Keras mask of `memory`.
        return_attention_scores: Whether to return the attention weights too.
        training: Whether to apply dropout.
        positions: Positions of the inputs, as in `EncoderBlock`; cross-attention does
            not use positions.

    Returns:
        The outputs, of the shape of `inputs`, and, if requested, the attention weights
        of self-attention, `(batch, num_heads, target_length, target_length)`, and of
        cross-attention, `(batch, num_heads, target_length, source_length)`.

    Example:
        >>> block = DecoderBlock(num_heads=2, intermediate_dim=32)
        >>> memory = keras.random.normal((2, 7, 16))
        >>> block(keras.random.normal((2, 5, 16)), memory).shape
        TensorShape([2, 5, 16])
    """

    def build(self, inputs_shape, memory_shape):
        self._build_sublayers(inputs_shape, memory_shape)

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
        check_masks(None, inputs.shape[1], inputs_mask=inputs_mask)
        check_masks(None, memory.shape[1], memory_mask=memory_mask)
        states, _, weights = self._compute(
            inputs,
            self._cross_attention.project(memory, mask=memory_mask),
            mask=inputs_mask,
            use_causal_mask=True,
            return_attention_scores=return_attention_scores,
            training=training,
            positions=positions,
        )
        return (states, *weights) if return_attention_scores else states


def check_states(shape) -> None:
    """Raises `ValueError` unless inputs have the shape of states."""
    if len(shape) != 3:
        raise ValueError(
            "`inputs` must have the shape (batch, length, hidden_dim). Embed ids "
            "first, by `TokenEmbedding`. "
            f"Received: inputs of shape {tuple(shape)}."
        )


def check_heads_divide(num_heads: int, hidden_dim: int) -> None:
    """Raises `ValueError` unless `num_heads` divides `hidden_dim`."""
    if hidden_dim % num_heads:
        raise ValueError(
            "`num_heads` must divide the width of the inputs. "
            f"Received: num_heads={num_heads}, hidden_dim={hidden_dim}."
        )
