"""Layer normalisation with a gradient of few passes."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_transformer")
class LayerNormalization(keras.layers.LayerNormalization):
    """`keras.layers.LayerNormalization` over the last axis, of fewer operations.

    The numbers are the same. The gradient is written out, so that it goes over
    arrays of the size of the states less often than the one that a backend
    derives; sums over all positions are matrix products.

    Args:
        epsilon: Added to the variance before its root is taken.
        **kwargs: Base `Layer` arguments, such as `name` and `dtype`.

    Call arguments:
        inputs: Float tensor of shape `(..., hidden_dim)`.

    Returns:
        A tensor of the same shape as `inputs`.

    Example:
        >>> layer = LayerNormalization()
        >>> layer(ops.ones((2, 5, 16))).shape
        TensorShape([2, 5, 16])

    Reference:
        [Ba et al., 2016](https://arxiv.org/abs/1607.06450)
    """

    def __init__(self, epsilon: float = 1e-6, **kwargs):
        super().__init__(epsilon=epsilon, **kwargs)

    def call(self, inputs):
        outputs = normalize(
            ops.cast(inputs, "float32"),
            ops.cast(self.gamma, "float32"),
            ops.cast(self.beta, "float32"),
            self.epsilon,
        )
        return ops.cast(outputs, self.compute_dtype)

    def get_config(self):
        base = keras.layers.Layer.get_config(self)
        return {**base, "epsilon": self.epsilon}


def normalize(inputs, gamma, beta, epsilon):
    """Brings the last axis to mean `beta` and standard deviation `gamma`.

    Args:
        inputs: Float32 tensor of shape `(..., hidden_dim)`.
        gamma: Float32 tensor of shape `(hidden_dim,)`.
        beta: Float32 tensor of the same shape.
        epsilon: Added to the variance before its root is taken.
    """

    @ops.custom_gradient
    def normalized(inputs, gamma, beta):
        hidden_dim = inputs.shape[-1]
        centered = inputs - ops.mean(inputs, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
        scale = ops.rsqrt(variance + epsilon)
        normal = centered * scale

        def gradient(*args, upstream=None):
            upstream = args[0] if upstream is None else upstream
            product = upstream * normal
            column = ops.reshape(gamma, (-1, 1)) / hidden_dim
            # The means of upstream * gamma, and of that times `normal`.
            mean = ops.matmul(upstream, column)
            slope = ops.matmul(product, column)
            of_inputs = (upstream * gamma - mean - normal * slope) * scale
            return of_inputs, _sum_rows(product), _sum_rows(upstream)

        return normal * gamma + beta, gradient

    return normalized(inputs, gamma, beta)


def _sum_rows(states):
    """(..., width) -> (width,), as a product with ones."""
    rows = ops.reshape(states, (-1, states.shape[-1]))
    ones = ops.ones((1, ops.shape(rows)[0]), rows.dtype)
    return ops.matmul(ones, rows)[0]
