"""Attention pooling: from a sequence to one vector."""

import keras
from keras import ops

from keras_transformer.checks import check_positive_integers, check_shape
from keras_transformer.kernels.projections import merge_heads, split_heads
from keras_transformer.layers.attention import scaled_dot_product_attention
from keras_transformer.layers.block import check_heads_divide
from keras_transformer.layers.masks import zero_masked
from keras_transformer.layers.weights import WeightOptionsLayer


@keras.saving.register_keras_serializable(package="keras_transformer")
class AttentionPooling(WeightOptionsLayer):
    """Averages all positions, weighted by their match with a learned query.

    The query is a weight of the layer, initialized with zeros, so the result is at
    first the mean of the real positions. With several heads, each slice of the states
    has its own query. Masked positions get no weight, and an input without real
    positions gives zeros. The Keras mask is applied automatically.

    Args:
        num_heads: Number of heads; divides `hidden_dim`.
        **kwargs: Base `Layer` arguments, and the weight options `query_initializer`,
            `query_regularizer` and `query_constraint`; see `WeightOptionsLayer`.

    Call arguments:
        inputs: Float tensor of shape `(batch, length, hidden_dim)`.
        mask: Boolean tensor of shape `(batch, length)`, False at padding.
        return_attention_scores: Whether to also return the attention weights.

    Returns:
        The outputs, of shape `(batch, hidden_dim)`, and, if requested, the weights of
        the positions, averaged over the heads, of shape `(batch, length)`.

    Raises:
        ValueError: If `inputs` do not have three axes, or `num_heads` does not
            divide `hidden_dim`.

    Example:
        >>> states = keras.random.normal((2, 5, 16))
        >>> AttentionPooling()(states).shape
        TensorShape([2, 16])

    Reference:
        [Yang et al., 2016](https://aclanthology.org/N16-1174), section 2.2, with
        scaled products ([Vaswani et al., 2017](https://arxiv.org/abs/1706.03762))
    """

    weight_kinds = ("query",)

    def __init__(self, num_heads: int = 1, **kwargs):
        super().__init__(**kwargs)
        check_positive_integers(num_heads=num_heads)
        self.num_heads = num_heads
        self.supports_masking = True

    def build(self, input_shape):
        check_shape("inputs", input_shape, "batch", "length", "hidden_dim")
        hidden_dim = input_shape[-1]
        check_heads_divide(self.num_heads, hidden_dim)
        shape = (self.num_heads, hidden_dim // self.num_heads)
        self.query = self.add_weight_with_options("query", shape, "zeros")

    def call(self, inputs, mask=None, return_attention_scores=False):
        if mask is not None:
            mask = ops.cast(mask, "bool")
            check_shape("mask", mask.shape, "batch", "length")
            inputs = zero_masked(inputs, mask)
            mask = ops.expand_dims(mask, (1, 2))
        states = split_heads(inputs, self.num_heads)
        # (batch, heads, 1, dim) and (batch, heads, 1, length)
        outputs, weights = scaled_dot_product_attention(
            ops.cast(self.query, states.dtype)[None, :, None, :], states, states, mask
        )
        outputs = merge_heads(outputs)[:, 0]
        if return_attention_scores:
            return outputs, ops.mean(weights, axis=(1, 2))
        return outputs

    def compute_output_shape(self, input_shape):
        return (input_shape[0], input_shape[-1])

    def compute_output_spec(self, inputs, mask=None, return_attention_scores=False):
        outputs = keras.KerasTensor(
            self.compute_output_shape(inputs.shape), self.compute_dtype
        )
        if return_attention_scores:
            return outputs, keras.KerasTensor(inputs.shape[:2], self.compute_dtype)
        return outputs

    def compute_mask(self, inputs, previous_mask=None):
        return None

    def get_config(self):
        return {**super().get_config(), "num_heads": self.num_heads}
