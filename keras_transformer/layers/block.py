"""What the blocks of encoders and decoders share: their settings and sub-layers."""

import inspect

import keras

from keras_transformer.checks import check_positive_integers
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.layer_arguments import layer_config
from keras_transformer.layers.multi_head import MultiHeadAttention
from keras_transformer.layers.positions import attention_positions
from keras_transformer.layers.residual import Residual


class TransformerBlock(keras.layers.Layer):
    """Base class of encoder and decoder blocks, and of their stacks.

    The arguments are those of `EncoderBlock`.
    """

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
        hidden_dim = shapes[0][-1]
        check_heads_divide(self.num_heads, hidden_dim)
        layer = MultiHeadAttention(
            self.num_heads,
            hidden_dim // self.num_heads,
            positions=positions,
            name=name,
            dtype=self.dtype_policy,
        )
        layer.build(*shapes)
        return layer

    def _build_feed_forward(self, shape):
        layer = FeedForward(
            self.intermediate_dim,
            self.activation,
            name="feed_forward",
            dtype=self.dtype_policy,
        )
        layer.build(shape)
        return layer

    def _build_residual(self, name, shape):
        layer = Residual(
            self.dropout,
            self.normalize_first,
            self.epsilon,
            name=name,
            dtype=self.dtype_policy,
        )
        layer.build(shape)
        return layer

    def _feed_forward(self, states, training=None):
        """The feed-forward sub-layer with its residual connection."""
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
