"""What the blocks of encoders and decoders share: their settings and sub-layers."""

import keras
from keras import ops

from keras_transformer.checks import check_fractions, check_positive_integers
from keras_transformer.layers.cache import cache_entries, write_step
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.layer_arguments import Activation, Positions, layer_config
from keras_transformer.layers.multi_head import MultiHeadAttention
from keras_transformer.layers.positions import attention_positions, input_positions
from keras_transformer.layers.residual import Residual
from keras_transformer.layers.weight_options import WeightOptionsLayer, sub_seed


class TransformerBlock(WeightOptionsLayer):
    """Base class of blocks and stacks, with the arguments of `EncoderBlock`."""

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
        self.positions = attention_positions(positions, self.dtype_policy)
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

    def _sublayer_settings(self, name):
        return {
            "seed": sub_seed(self.seed, name),
            "name": name,
            "dtype": self.dtype_policy,
        }

    def _build_attention(self, name, *shapes, positions=None):
        """An attention sub-layer and its residual connection."""
        hidden_dim = shapes[0][-1]
        check_heads_divide(self.num_heads, hidden_dim)
        sizes = self.num_heads, hidden_dim // self.num_heads
        layer = MultiHeadAttention(
            *sizes,
            dropout=self.attention_dropout,
            positions=positions,
            **self._sublayer_settings(name),
            **self.weight_options,
        )
        layer.build(*shapes)
        if positions is not None:
            positions.built = True  # The attention has a copy; Keras checks both.
        return layer, self._build_residual(name, shapes[0])

    def _build_feed_forward(self, shape):
        self._transform = FeedForward(
            self.intermediate_dim,
            self.activation,
            self.activation_dropout,
            **self._sublayer_settings("feed_forward"),
            **self.weight_options,
        )
        self._transform.build(shape)
        self._transform_residual = self._build_residual("feed_forward", shape)

    def _build_residual(self, name, shape):
        settings = self._sublayer_settings(f"{name}_residual")
        layer = Residual(self.dropout, self.normalize_first, self.epsilon, **settings)
        layer.build(shape)
        return layer

    def _attend(
        self, attention, residual, inputs, memory=None, positions=None, **settings
    ):
        """Attends to the inputs, or to a memory; returns the states and any scores."""
        if positions is not None:
            positions = self._input_positions(inputs, positions)
            settings |= {"query_positions": positions, "key_positions": positions}
        queries = residual.prepare(inputs)
        attended = attention(queries, queries if memory is None else memory, **settings)
        has_scores = settings["return_attention_scores"]
        outputs, *scores = attended if has_scores else (attended,)
        return residual.add(inputs, outputs, settings["training"]), *scores

    def _self_attention_step(self, inputs, cache, index, mask, positions, prompt=None):
        """Self-attention of one position, in the cache and in a prompt if given.

        `positions` are those of queries and of keys. Returns the states and the cache.
        """
        attention, residual = self._self_attention, self._self_attention_residual
        queries = residual.prepare(inputs)
        new = attention.project(queries, positions=positions[0])
        cache = write_step(cache, index, *new)
        keys, values = cache_entries(cache, ops.shape(inputs)[1])
        if prompt is not None:
            keys = ops.concatenate([prompt["keys"], keys], axis=2)
            values = ops.concatenate([prompt["values"], values], axis=2)
        outputs, _ = attention.attend(queries, keys, values, mask, None, *positions)
        return residual.add(inputs, outputs), cache

    def _input_positions(self, inputs, positions):
        """The positions given, as integers; `ValueError` if nothing uses them."""
        if self.positions is None:
            raise ValueError(
                "`positions` must be given only to a layer that uses them: build it "
                "with `positions='rotary'`, for example. "
                f"Received: positions={positions!r}."
            )
        return input_positions(inputs.shape[1], positions=positions)

    def _feed_forward(self, states, training=None):
        residual = self._transform_residual
        outputs = self._transform(residual.prepare(states), training=training)
        return residual.add(states, outputs, training)

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


def check_heads_divide(num_heads: int, hidden_dim: int) -> None:
    """Raises `ValueError` unless `num_heads` divides `hidden_dim`."""
    if hidden_dim % num_heads:
        raise ValueError(
            "`num_heads` must divide the width of the inputs. "
            f"Received: num_heads={num_heads}, hidden_dim={hidden_dim}."
        )
