"""What encoder and decoder, their blocks and stacks, have in common."""

import inspect

import keras

from keras_transformer.checks import check_positive_integers
from keras_transformer.kernels.dropout import Dropout
from keras_transformer.kernels.layer_norm import LayerNormalization
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.layer_arguments import layer_config
from keras_transformer.layers.multi_head import MultiHeadAttention
from keras_transformer.layers.positions import (
    acts_on_inputs,
    attention_positions,
    merge_positions_at,
    position_layer,
)
from keras_transformer.layers.residual import Residual


class TransformerPart(keras.layers.Layer):
    """What encoder and decoder, their blocks and stacks have in common.

    A base class, not for use by itself: the settings of a block, under the
    names that `get_config` returns.
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

    def _attention(self, name, *shapes, positions=None):
        hidden_dim = shapes[0][-1]
        if hidden_dim % self.num_heads:
            raise ValueError(
                "`num_heads` must divide the width of the inputs. "
                f"Received: num_heads={self.num_heads}, hidden_dim={hidden_dim}."
            )
        layer = MultiHeadAttention(
            self.num_heads,
            hidden_dim // self.num_heads,
            positions=positions,
            name=name,
            dtype=self.dtype_policy,
        )
        layer.build(*shapes)
        return layer

    def _feed_forward(self, shape):
        layer = FeedForward(
            self.intermediate_dim,
            self.activation,
            name="feed_forward",
            dtype=self.dtype_policy,
        )
        layer.build(shape)
        return layer

    def _residual(self, name, shape):
        layer = Residual(
            self.dropout,
            self.normalize_first,
            self.epsilon,
            name=name,
            dtype=self.dtype_policy,
        )
        layer.build(shape)
        return layer

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


class TransformerStack(TransformerPart):
    """What encoder and decoder have in common: blocks, one after the other.

    A base class, not for use by itself. Positions that act inside attention
    are handed on to the blocks; others are merged into the inputs, and the
    sums dropped out.
    """

    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        intermediate_dim: int,
        positions=None,
        **kwargs,
    ):
        super().__init__(num_heads, intermediate_dim, **kwargs)
        check_positive_integers(num_layers=num_layers)
        self.num_layers = num_layers
        self.positions = position_layer(positions, self.dtype_policy)
        self._is_merged = acts_on_inputs(self.positions)

    def _build_stack(self, block_class, inputs_shape, *other_shapes):
        settings = self._block_settings()
        if self._is_merged:
            settings["positions"] = None
            self.positions.build(inputs_shape)
            inputs_shape = self.positions.compute_output_shape(inputs_shape)
            self._dropout = Dropout(self.dropout, dtype=self.dtype_policy)
        self.blocks = [
            block_class(**settings, name=f"block_{i}", dtype=self.dtype_policy)
            for i in range(self.num_layers)
        ]
        for block in self.blocks:
            block.build(inputs_shape, *other_shapes)
        self._norm = self._final_norm(inputs_shape)

    def _final_norm(self, shape):
        """Pre-norm leaves the last sum unnormalised: the stack mends that."""
        if not self.normalize_first:
            return None
        layer = LayerNormalization(
            self.epsilon, name="final_norm", dtype=self.dtype_policy
        )
        layer.build(shape)
        return layer

    def _enter(self, inputs, training=None):
        if not self._is_merged:
            return inputs
        return self._dropout(self.positions(inputs), training=training)

    def _enter_step(self, inputs, index):
        return (
            merge_positions_at(self.positions, inputs, index)
            if self._is_merged
            else inputs
        )

    def _leave(self, states):
        return states if self._norm is None else self._norm(states)

    def _output_shape(self, inputs_shape):
        if not self._is_merged:
            return inputs_shape
        return self.positions.compute_output_shape(inputs_shape)

    def get_config(self):
        return {**super().get_config(), "num_layers": self.num_layers}
