"""Layer normalization with a gradient that takes fewer passes over memory."""

import keras
from keras import ops

from keras_transformer.kernels.graphs import with_gradient
from keras_transformer.kernels.rematerialization import RematerializedMixin


@keras.saving.register_keras_serializable(package="keras_transformer")
class LayerNormalization(RematerializedMixin, keras.layers.LayerNormalization):
    """`keras.layers.LayerNormalization` in fewer passes.

    The numbers are the same. The gradient is written out: it reads and writes arrays
    of the size of the states less often than one that a backend derives. Over other
    axes than the last, and without `center` or `scale`, Keras's own kernel is used.

    Reference:
        [Ba et al., 2016](https://arxiv.org/abs/1607.06450)
    """

    def call(self, inputs):
        is_last = self.axis in ([-1], [len(inputs.shape) - 1])
        if not is_last or self.gamma is None or self.beta is None:
            return super().call(inputs)
        dtype = keras.backend.result_type(inputs.dtype, "float32")
        tensors = [ops.cast(x, dtype) for x in (inputs, self.gamma, self.beta)]
        epsilon = self.epsilon  # the gradient must not keep the layer alive

        def normalized(inputs, gamma, beta):
            centered = inputs - ops.mean(inputs, axis=-1, keepdims=True)
            variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
            scale = ops.rsqrt(variance + epsilon)
            normal = centered * scale

            def gradient(upstream):
                product = upstream * normal
                # No matrix-vector products: XLA would recompute them at every use.
                of_normal = upstream * gamma
                mean = ops.mean(of_normal, axis=-1, keepdims=True)
                projection = ops.mean(product * gamma, axis=-1, keepdims=True)
                of_inputs = (of_normal - mean - normal * projection) * scale
                axes = tuple(range(len(inputs.shape) - 1))
                return of_inputs, ops.sum(product, axes), ops.sum(upstream, axes)

            return normal * gamma + beta, gradient

        return ops.cast(with_gradient(normalized, *tensors), self.compute_dtype)
