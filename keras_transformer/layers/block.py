"""What the blocks of encoders and decoders share: their settings and sub-layers."""

import inspect

import keras

from keras_transformer.checks import check_positive_integers
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.layer_arguments import layer_config
from keras_transformer.layers.multi_head import MultiHeadAttention
from keras_transformer.layers.positions import attention_positions, input_positions
from keras_transformer.layers.residual import Residual


class TransformerBlock(keras.layers.Layer):
    """Base class of blocks and stacks, with the arguments of `EncoderBlock`."""

    def __init__(
        self,
        num_heads: int,
        intermediate_dim: int,
        dropout: float = 0.0,
        normalize_first: bool = False,
        activation="relu",
        epsilon: float = 1e-6,
        positions=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_positive_integers(num_heads=num_heads)
        self.num_heads = num_heads
        self.intermediate_dim = intermediate_dim
        self.dropout = dropout
        self.normalize_first = normalize_first
        self.activation = keras.activations.get(activation)
        self.epsilon = epsilon
        self.positions = attention_positions(positions, self.dtype_policy)
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
        }

    def _build_attention(self, name, *shapes, positions=None):
        """An attention sub-layer and its residual connection."""
        hidden_dim = shapes[0][-1]
        check_heads_divide(self.num_heads, hidden_dim)
        sizes = self.num_heads, hidden_dim // self.num_heads
        layer = MultiHeadAttention(
            *sizes, positions=positions, name=name, dtype=self.dtype_policy
        )
        layer.build(*shapes)
        return layer, self._build_residual(name, shapes[0])

    def _build_feed_forward(self, shape):
        settings = {"name": "feed_forward", "dtype": self.dtype_policy}
        self._transform = FeedForward(
            self.intermediate_dim, self.activation, **settings
        )
        self._transform.build(shape)
        self._transform_residual = self._build_residual("feed_forward", shape)

    def _build_residual(self, name, shape):
        settings = {"name": f"{name}_residual", "dtype": self.dtype_policy}
        layer = Residual(self.dropout, self.normalize_first, self.epsilon, **settings)
        layer.build(shape)
        return layer

    def _attend(
        self, attention, residual, inputs, memory=None, positions=None, **settings
    ):
        """Attention, to the inputs unless to a memory; the states and any scores."""
        if positions is not None:
            positions = self._input_positions(inputs, positions)
            settings |= {"query_positions": positions, "key_positions": positions}
        queries = residual.prepare(inputs)
        attended = attention(queries, queries if memory is None else memory, **settings)
        has_scores = settings["return_attention_scores"]
        outputs, *scores = attended if has_scores else (attended,)
        return residual.add(inputs, outputs, settings["training"]), *scores

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
        return residual.add(states, self._transform(residual.prepare(states)), training)

    def compute_output_spec(self, inputs, *args, **kwargs):
        # Keras would trace `call`, which takes a second for every few blocks.
        given = inspect.signature(self.call).bind(inputs, *args, **kwargs).arguments
        if given.get("return_attention_scores"):
            return super().compute_output_spec(inputs, *args, **kwargs)
        return keras.KerasTensor(self._output_shape(inputs.shape), self.compute_dtype)

    def _output_shape(self, inputs_shape):
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
