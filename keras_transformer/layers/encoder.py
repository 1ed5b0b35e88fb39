"""The encoder: every position reads every other."""

import keras
from keras import ops

from keras_transformer.layers.attention import MultiHeadAttention
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.normalization import LayerNormalization
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
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = check_positive("num_heads", num_heads)
        self.intermediate_dim = intermediate_dim
        self.dropout = dropout
        self.normalize_first = normalize_first
        self.activation = keras.activations.get(activation)
        self.epsilon = epsilon
        self.supports_masking = True

    def _block_settings(self):
        return {
            "num_heads": self.num_heads,
            "intermediate_dim": self.intermediate_dim,
            "dropout": self.dropout,
            "normalize_first": self.normalize_first,
            "activation": self.activation,
            "epsilon": self.epsilon,
        }

    def _attention(self, name, *shapes):
        hidden_dim = shapes[0][-1]
        if hidden_dim % self.num_heads:
            raise ValueError(
                "`num_heads` must divide the width of the inputs. "
                f"Received: num_heads={self.num_heads}, hidden_dim={hidden_dim}."
            )
        layer = MultiHeadAttention(
            self.num_heads,
            hidden_dim // self.num_heads,
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

    def _final_norm(self, shape):
        """Pre-norm leaves the last sum unnormalised: the stack mends that."""
        if not self.normalize_first:
            return None
        layer = LayerNormalization(
            self.epsilon, name="final_norm", dtype=self.dtype_policy
        )
        layer.build(shape)
        return layer

    def get_config(self):
        return {
            **super().get_config(),
            **self._block_settings(),
            "activation": keras.activations.serialize(self.activation),
        }


@keras.saving.register_keras_serializable(package="keras_transformer")
class EncoderBlock(TransformerPart):
    """Self-attention, then the feed-forward network, each with its residual.

    With `use_causal_mask` it is the block of a decoder-only language model.

    Args:
        num_heads: Number of attention heads; divides `hidden_dim`.
        intermediate_dim: Inner width of the feed-forward network.
        dropout: Share of each sub-layer's outputs dropped in training.
        normalize_first: Whether to normalise the inputs of each sub-layer
            (pre-norm) rather than the sum after it (the paper's post-norm).
        activation: Inner activation of the feed-forward network.
        epsilon: Added to the variance in the normalisation.
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
        >>> block = EncoderBlock(num_heads=2, intermediate_dim=32)
        >>> block(keras.random.normal((2, 5, 16))).shape
        TensorShape([2, 5, 16])

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.1
    """

    def build(self, input_shape):
        self._self_attention = self._attention(
            "self_attention", input_shape, input_shape
        )
        self._self_attention_residual = self._residual(
            "self_attention_residual", input_shape
        )
        self._transform = self._feed_forward(input_shape)
        self._transform_residual = self._residual("feed_forward_residual", input_shape)

    def call(
        self,
        inputs,
        mask=None,
        attention_mask=None,
        use_causal_mask=False,
        return_attention_scores=False,
        training=None,
    ):
        def attend(states):
            return self._self_attention(
                states,
                states,
                value_mask=mask,
                attention_mask=attention_mask,
                use_causal_mask=use_causal_mask,
                return_attention_scores=True,
                training=training,
            )

        states, scores = self._self_attention_residual(
            inputs, sublayer=attend, training=training
        )
        states = self._transform_residual(
            states, sublayer=self._transform, training=training
        )
        return (states, scores) if return_attention_scores else states


@keras.saving.register_keras_serializable(package="keras_transformer")
class Encoder(TransformerPart):
    """A stack of encoder blocks; pre-norm stacks end with a normalisation.

    Args:
        num_layers: Number of blocks.
        num_heads: Number of attention heads; divides `hidden_dim`.
        intermediate_dim: Inner width of the feed-forward networks.
        dropout: Share of each sub-layer's outputs dropped in training.
        normalize_first: Whether to normalise the inputs of each sub-layer
            (pre-norm) rather than the sum after it (the paper's post-norm).
        activation: Inner activation of the feed-forward networks.
        epsilon: Added to the variance in the normalisation.
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
        >>> encoder = Encoder(num_layers=2, num_heads=2, intermediate_dim=32)
        >>> encoder(keras.random.normal((2, 5, 16))).shape
        TensorShape([2, 5, 16])

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.1
    """

    def __init__(
        self, num_layers: int, num_heads: int, intermediate_dim: int, **kwargs
    ):
        super().__init__(num_heads, intermediate_dim, **kwargs)
        self.num_layers = check_positive("num_layers", num_layers)

    def build(self, input_shape):
        self.blocks = [
            EncoderBlock(
                **self._block_settings(), name=f"block_{i}", dtype=self.dtype_policy
            )
            for i in range(self.num_layers)
        ]
        for block in self.blocks:
            block.build(input_shape)
        self._norm = self._final_norm(input_shape)

    def call(
        self,
        inputs,
        mask=None,
        attention_mask=None,
        use_causal_mask=False,
        return_attention_scores=False,
        training=None,
    ):
        states, all_scores = inputs, []
        for block in self.blocks:
            states, scores = block(
                states,
                mask=mask,
                attention_mask=attention_mask,
                use_causal_mask=use_causal_mask,
                return_attention_scores=True,
                training=training,
            )
            all_scores.append(scores)
        if self._norm is not None:
            states = self._norm(states)
        return (states, ops.stack(all_scores)) if return_attention_scores else states

    def get_config(self):
        return {**super().get_config(), "num_layers": self.num_layers}


def check_positive(name, size):
    """Returns `size`, or raises `ValueError` unless it is positive."""
    if size < 1:
        raise ValueError(
            f"`{name}` must be a positive integer. Received: {name}={size}."
        )
    return size
