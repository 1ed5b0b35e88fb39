"""The encoder: every position attends to every other."""

import keras

from keras_transformer.layers.block import TransformerBlock
from keras_transformer.layers.stack import TransformerStack


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
        mask: Boolean tensor of shape `(batch, length)`, False at padding; the
            Keras mask of `inputs` unless given.
        attention_mask: Boolean tensor of shape `(batch, length, length)`, which
            key each query may attend to, in addition to the other masks.
        use_causal_mask: Whether positions attend only to themselves and to those
            before them.
        return_attention_scores: Whether to return the scores too.
        training: Whether to apply dropout.
        positions: Positions of the inputs in any order, for the layer's `positions`:
            an integer tensor of shape `(length,)` or `(batch, length)`; counted from
            0 unless given. A causal mask goes by the order of the inputs.

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

    def build(self, input_shape):
        self._self_attention, self._self_attention_residual = self._build_attention(
            "self_attention", input_shape, input_shape, positions=self.positions
        )
        self._build_feed_forward(input_shape)

    def call(
        self,
        inputs,
        mask=None,
        attention_mask=None,
        use_causal_mask=False,
        return_attention_scores=False,
        training=None,
        positions=None,
    ):
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
class Encoder(TransformerStack):
    """A stack of encoder blocks; pre-norm stacks end with a normalisation.

    Positions that act inside attention are passed to the blocks. Other positions
    are merged into the inputs of the stack, with dropout after that.

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

    def build(self, input_shape):
        self._build_stack(EncoderBlock, input_shape)

    def call(
        self,
        inputs,
        mask=None,
        attention_mask=None,
        use_causal_mask=False,
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
