"""From a sequence to one vector, by reading where it matters."""

import keras
from keras import ops

from keras_transformer.layers.attention import (
    merge_heads,
    scaled_dot_product_attention,
    split_heads,
)


@keras.saving.register_keras_serializable(package="keras_transformer")
class AttentionPooling(keras.layers.Layer):
    """Mixes all positions into one vector; a learned query weighs them.

    The query is a weight of the layer, the same for every input: what a
    document is asked. At first it is zero, and the result the mean of the real
    positions. With several heads each slice of the states has a query of its
    own. Positions that the mask hides have no share, and an input without any
    real position gives zeros. The Keras mask is taken up by itself.

    Args:
        num_heads: Number of heads; divides `hidden_dim`.
        **kwargs: Base `Layer` arguments, such as `name` and `dtype`.

    Call arguments:
        inputs: Float tensor of shape `(batch, length, hidden_dim)`.
        mask: Boolean tensor of shape `(batch, length)`, False at padding.
        return_attention_scores: Whether to return the scores too.

    Returns:
        The outputs, of shape `(batch, hidden_dim)`, and on request the scores,
        the share that each position has in them, averaged over the heads, of
        shape `(batch, length)`.

    Raises:
        ValueError: If `inputs` do not have three axes, or `num_heads` does not
            divide `hidden_dim`.

    Example:
        >>> states = keras.random.normal((2, 5, 16))
        >>> AttentionPooling()(states).shape
        TensorShape([2, 16])

    Reference:
        [Yang et al., 2016](https://aclanthology.org/N16-1174), section 2.2,
        with the scaled products of
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
    """

    def __init__(self, num_heads: int = 1, **kwargs):
        super().__init__(**kwargs)
        if num_heads < 1:
            raise ValueError(
                "`num_heads` must be a positive integer. "
                f"Received: num_heads={num_heads}."
            )
        self.num_heads = num_heads
        self.supports_masking = True

    def build(self, input_shape):
        if len(input_shape) != 3:
            raise ValueError(
                "`inputs` must have the shape (batch, length, hidden_dim). "
                f"Received: inputs of shape {tuple(input_shape)}."
            )
        hidden_dim = input_shape[-1]
        if hidden_dim % self.num_heads:
            raise ValueError(
                "`num_heads` must divide the width of the inputs. "
                f"Received: num_heads={self.num_heads}, hidden_dim={hidden_dim}."
            )
        shape = (self.num_heads, hidden_dim // self.num_heads)
        self.query = self.add_weight(shape=shape, initializer="zeros", name="query")

    def call(self, inputs, mask=None, return_attention_scores=False):
        if mask is not None:
            mask = ops.cast(mask, "bool")
            # What is masked must stay finite: a score of zero leaves it out.
            inputs = ops.where(mask[..., None], inputs, 0)
            mask = mask[:, None, None, :]
        states = split_heads(inputs, self.num_heads)
        # (batch, heads, 1, dim) and (batch, heads, 1, length)
        outputs, scores = scaled_dot_product_attention(
            ops.cast(self.query, states.dtype)[None, :, None, :], states, states, mask
        )
        outputs = merge_heads(outputs)[:, 0]
        if return_attention_scores:
            return outputs, ops.mean(scores, axis=(1, 2))
        return outputs

    def compute_mask(self, inputs, previous_mask=None):
        return None

    def get_config(self):
        return {**super().get_config(), "num_heads": self.num_heads}
