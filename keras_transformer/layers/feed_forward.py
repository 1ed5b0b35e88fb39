"""The position-wise feed-forward network."""

import keras

from keras_transformer.checks import check_fractions, check_positive_integers
from keras_transformer.kernels.dropout import Dropout
from keras_transformer.kernels.projections import dense
from keras_transformer.layers.projection import Projection
from keras_transformer.layers.saving import Activation
from keras_transformer.layers.weights import WeightOptionsLayer


@keras.saving.register_keras_serializable(package="keras_transformer")
class FeedForward(WeightOptionsLayer):
    """Transforms every position with the same two-layer network.

    A dense layer widens the states to `intermediate_dim` and applies `activation`; a
    second one projects them back to their width. Masks pass through unchanged.

    Args:
        intermediate_dim: Width of the inner projection.
        activation: Inner activation, a name or a callable.
        dropout: Fraction of the activations dropped in training, after the inner
            activation.
        seed: Seed of the dropout.
        **kwargs: Base `Layer` arguments, and weight options such as
            `kernel_initializer`; see `WeightOptionsLayer`.

    Call arguments:
        inputs: Float tensor of shape `(batch, length, hidden_dim)`.
        training: Whether to apply dropout.

    Returns:
        A tensor of the same shape as `inputs`.

    Raises:
        ValueError: If `intermediate_dim` is not positive, `activation` is unknown or
            `dropout` is not a fraction.

    Example:
        >>> layer = FeedForward(intermediate_dim=64)
        >>> layer(ops.ones((2, 5, 16))).shape
        TensorShape([2, 5, 16])

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.3
    """

    def __init__(
        self,
        intermediate_dim: int,
        activation: Activation = "relu",
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_positive_integers(intermediate_dim=intermediate_dim)
        check_fractions(dropout=dropout)
        self.intermediate_dim = intermediate_dim
        self.activation = keras.activations.get(activation)
        self.dropout = dropout
        self.seed = seed
        self.supports_masking = True

    def build(self, input_shape):
        dtype = self.dtype_policy

        def projection(units, activation, name):
            options = self.weight_options.of(name=name)
            return Projection(units, activation, name=name, dtype=dtype, **options)

        self._widen = projection(self.intermediate_dim, self.activation, "widen")
        self._narrow = projection(input_shape[-1], None, "narrow")
        self._widen.build(input_shape)
        self._narrow.build((*input_shape[:-1], self.intermediate_dim))
        self._dropout = Dropout(self.dropout, self.seed, dtype=dtype)

    def call(self, inputs, training=None):
        states = self._dropout(dense(self._widen, inputs), training=training)
        return dense(self._narrow, states)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {
            **super().get_config(),
            "intermediate_dim": self.intermediate_dim,
            "activation": keras.activations.serialize(self.activation),
            "dropout": self.dropout,
            "seed": self.seed,
        }
