"""The position-wise feed-forward network."""

import keras

from keras_transformer.checks import check_positive_integers
from keras_transformer.kernels.dense import dense


@keras.saving.register_keras_serializable(package="keras_transformer")
class FeedForward(keras.layers.Layer):
    """Transforms every position with the same two-layer network.

    A dense layer widens the states to `intermediate_dim` and applies `activation`;
    another one brings them back to their width. Masks pass through unchanged.

    Args:
        intermediate_dim: Width of the inner projection.
        activation: Inner activation, a name or a callable.
        **kwargs: Base `Layer` arguments, such as `name` and `dtype`.

    Call arguments:
        inputs: Float tensor of shape `(batch, length, hidden_dim)`.

    Returns:
        A tensor of the same shape as `inputs`.

    Raises:
        ValueError: If `intermediate_dim` is not positive or `activation` is
            unknown.

    Example:
        >>> layer = FeedForward(intermediate_dim=64)
        >>> layer(ops.ones((2, 5, 16))).shape
        TensorShape([2, 5, 16])

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.3
    """

    def __init__(self, intermediate_dim: int, activation="relu", **kwargs):
        super().__init__(**kwargs)
        check_positive_integers(intermediate_dim=intermediate_dim)
        self.intermediate_dim = intermediate_dim
        self.activation = keras.activations.get(activation)
        self.supports_masking = True

    def build(self, input_shape):
        dtype = self.dtype_policy
        self._widen = keras.layers.Dense(
            self.intermediate_dim, self.activation, name="widen", dtype=dtype
        )
        self._narrow = keras.layers.Dense(input_shape[-1], name="narrow", dtype=dtype)
        self._widen.build(input_shape)
        self._narrow.build((*input_shape[:-1], self.intermediate_dim))

    def call(self, inputs):
        return dense(self._narrow, dense(self._widen, inputs))

    def get_config(self):
        return {
            **super().get_config(),
            "intermediate_dim": self.intermediate_dim,
            "activation": keras.activations.serialize(self.activation),
        }
