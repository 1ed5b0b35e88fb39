"""The blocks of encoders and decoders: attention and a feed-forward network."""

import keras
from keras import ops

from keras_transformer.checks import check_fractions, check_positive_integers
from keras_transformer.kernels.graphs import shape_of
from keras_transformer.layers.cache import (
    cache_entries,
    cache_positions,
    empty_cache,
    write_step,
)
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.masks import combined_mask, zero_masked
from keras_transformer.layers.multi_head import MultiHeadAttention
from keras_transformer.layers.positions import input_positions, position_layer_of
from keras_transformer.layers.residual import Residual
from keras_transformer.layers.saving import Activation, Positions, layer_config
from keras_transformer.layers.weights import WeightOptionsLayer, sub_seed


class BlockSettings(WeightOptionsLayer):
    """Base class of blocks, and of the stacks that have blocks: their arguments."""

    takes_encodings = False  # as `positions`, beside those that act inside attention

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
        return {
            "num_heads": self.num_heads,
            "intermediate_dim": self.intermediate_dim,
            "dropout": self.dropout,
            "normalize_first": self.normalize_first,
            "activation": self.activation,
            "epsilon": self.epsilon,
            "positions": self.positions,
            "attention_dropout": self.attention_dropout,
            "activation_dropout": self.activation_dropout,
            "seed": self.seed,
        }

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

    def _attend(
        self, attention, residual, inputs, memory=None, positions=None, **settings
    ):
        """Attends to the inputs, or to a memory; returns the states and any scores."""
        if positions is not None:
            if self.positions is None:
                raise ValueError(
                    "`positions` must be given only to a layer that uses them: build "
                    "it with `positions='rotary'`, for example. "
                    f"Received: positions={positions!r}."
                )
            positions = input_positions(inputs.shape[1], positions=positions)
            settings |= {"query_positions": positions, "key_positions": positions}
        queries = residual.prepare(inputs)
        attended = attention(queries, queries if memory is None else memory, **settings)
        has_scores = settings["return_attention_scores"]
        outputs, *scores = attended if has_scores else (attended,)
        return residual.add(inputs, outputs, settings["training"]), *scores

    def _self_attention_step(self, inputs, cache, index, mask, positions, prompt=None):
        """Self-attention of one position, in the cache and in a prompt if given.

        `positions` holds the positions of queries and keys. Returns states and cache.
        """
        attention, residual = self._self_attention, self._self_attention_residual
        queries = residual.prepare(inputs)
        new = attention.project(queries, positions=positions[0])
        cache = write_step(cache, index, *new)
        keys, values = cache_entries(cache, inputs.shape[1])
        if prompt is not None:
            keys = ops.concatenate([prompt["keys"], keys], axis=2)
            values = ops.concatenate([prompt["values"], values], axis=2)
        outputs, _ = attention.attend(queries, keys, values, mask, None, *positions)
        return residual.add(inputs, outputs), cache

    def _feed_forward(self, states, training=None):
        residual = self._transform_residual
        outputs = self._transform(residual.prepare(states), training=training)
        return residual.add(states, outputs, training)


@keras.saving.register_keras_serializable(package="keras_transformer")
class EncoderBlock(TransformerBlock):
    """Self-attention and the feed-forward network, each with a residual connection.

    Args:
        num_heads: Number of attention heads; divides `hidden_dim`.
        intermediate_dim: Inner width of the feed-forward network.
        dropout: Fraction of each sub-layer's outputs dropped in training.
        normalize_first: Whether to normalise the inputs of each sub-layer
            (pre-norm) rather than the sum after it (the paper's post-norm).
        activation: Inner activation of the feed-forward network.
        epsilon: Added to the variance in the normalisation.
        positions: How self-attention uses positions: `"rotary"`,
            `"linear_bias"`, or a layer such as `RotaryEmbedding()`, which is
            copied. None: not at all; the inputs may contain them.
        attention_dropout: Fraction of the attention scores dropped in training. If
            not zero, training materialises the scores; see `MultiHeadAttention`.
        activation_dropout: Fraction of the activations dropped inside the
            feed-forward network in training.
        seed: Seed of all dropout.
        **kwargs: Base `Layer` arguments, and weight options such as
            `kernel_initializer`; see `WeightOptionsLayer`.

    Call arguments:
        inputs: Float tensor of shape `(batch, length, hidden_dim)`.
        mask: Boolean tensor of shape `(batch, length)`, False at padding, to which
            nothing attends. Default: the Keras mask of `inputs`. Padding itself attends
            to the rest with `mask`, and to nothing with a Keras mask: its outputs
            differ, those of the rest do not.
        attention_mask: Boolean tensor of shape `(batch, length, length)`, which
            key each query may attend to, in addition to the other masks.
        use_causal_mask: Whether positions attend only to themselves and to positions
            before them. Default: False.
        return_attention_scores: Whether to return the scores too.
        training: Whether to apply dropout.
        positions: Positions of the inputs in any order, for the layer's `positions`:
            an integer tensor of shape `(length,)` or `(batch, length)`. Default: 0, 1,
            2, ... A causal mask goes by the order of the inputs.

    Returns:
        The outputs, of the shape of `inputs`, and on request the scores, of
        shape `(batch, num_heads, length, length)`.

    Raises:
        ValueError: If `num_heads` does not divide `hidden_dim`, a dropout is not a
            fraction, or `positions` are given to a layer without.

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
        if use_causal_mask is None:
            use_causal_mask = self.is_causal
        states, *scores = self._attend(
            self._self_attention,
            self._self_attention_residual,
            inputs,
            positions=positions,
            value_mask=mask,
            attention_mask=attention_mask,
            use_causal_mask=use_causal_mask,
            return_attention_scores=return_attention_scores,
            training=training,
        )
        states = self._feed_forward(states, training)
        return (states, *scores) if return_attention_scores else states


@keras.saving.register_keras_serializable(package="keras_transformer")
class CausalBlock(EncoderBlock):
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
        queries = self._self_attention_residual.prepare(inputs)
        keys, values = self._self_attention.project(queries)
        if mask is not None:
            is_real = ops.expand_dims(mask, 1)
            keys, values = zero_masked(keys, is_real), zero_masked(values, is_real)
        mask = combined_mask(length, length, key_mask=mask, use_causal_mask=True)
        outputs, _ = self._self_attention.attend(queries, keys, values, mask)
        states = self._self_attention_residual.add(inputs, outputs)
        cache = empty_cache(keys, num_hypotheses, max_length)
        return self._feed_forward(states), {"keys": keys, "values": values}, cache

    def step(self, inputs, memory, memory_mask, cache, index, visible):
        """Decodes one position of every hypothesis, as `DecoderBlock.step` does.

        The memory is the prompt from `start`, which self-attention reads together
        with the cache; `index` counts from the end of the prompt.
        """
        batch, num_hypotheses, _ = shape_of(inputs)
        max_length = cache["keys"].shape[2]
        if memory_mask is None:
            memory_mask = whole_prompt_mask(memory)
        rows = (batch, 1, num_hypotheses)
        prompt_mask = ops.broadcast_to(
            ops.expand_dims(memory_mask, (1, 2)), (*rows, shape_of(memory_mask)[1])
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
class DecoderBlock(TransformerBlock):
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

    def start(self, memory, num_hypotheses: int, max_length: int, memory_mask=None):
        """Prepares cached decoding: what `step` needs besides the new states.

        Args:
            memory: Float tensor of shape `(batch, source_length, memory_dim)`.
            num_hypotheses: Number of hypotheses decoded for each sentence.
            max_length: Number of target positions that the cache can hold.
            memory_mask: The mask that `step` gets, if what it masks may be infinite or
                NaN.

        Returns:
            The projected memory (keys and values of the cross-attention) and an
            empty cache (keys and values of the self-attention).
        """
        keys, values = self._cross_attention.project(zero_masked(memory, memory_mask))
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
        batch, num_hypotheses, _ = shape_of(inputs, for_reshape=True)
        max_length = cache["keys"].shape[2]
        shape = (batch, 1, num_hypotheses, max_length * num_hypotheses)
        mask = ops.reshape(visible, shape)
        query_positions = ops.expand_dims(index, 1)
        positions = query_positions, cache_positions(max_length, num_hypotheses)
        states, cache = self._self_attention_step(inputs, cache, index, mask, positions)
        mask = None if memory_mask is None else ops.expand_dims(memory_mask, (1, 2))
        queries = self._cross_attention_residual.prepare(states)
        outputs, _ = self._cross_attention.attend(
            queries, memory["keys"], memory["values"], mask
        )
        states = self._cross_attention_residual.add(states, outputs)
        return self._feed_forward(states), cache


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


def whole_prompt_mask(memory):
    """Returns a mask of prompts without padding, from their keys and values."""
    batch, _, length, _ = shape_of(memory["keys"])
    return ops.ones((batch, length), "bool")


def prompt_lengths(mask):
    """Lengths `(batch,)` of prompts up to their last token, from their mask."""
    places = ops.cumsum(ops.ones_like(mask, "int32"), axis=1)
    return ops.max(ops.where(mask, places, 0), axis=1)
