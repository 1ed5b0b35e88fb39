"""Dropout that draws one random byte for each element."""

import keras
from keras import ops

from keras_transformer.checks import check_fractions
from keras_transformer.kernels import target
from keras_transformer.kernels.graphs import shape_of
from keras_transformer.kernels.rematerialization import RematerializedMixin

LEVELS = 256  # of a byte


@keras.saving.register_keras_serializable(package="keras_transformer")
class Dropout(RematerializedMixin, keras.layers.Dropout):
    """`keras.layers.Dropout` with a quarter of the random numbers.

    On a CPU, dropout spends its time on random numbers. Here a random 32-bit integer
    decides on four elements. So `rate` is rounded to a multiple of 1/256, at least
    1/256 if above zero. Kept elements are scaled by the rounded rate, so that the
    expectation of every element is unchanged. With a `noise_shape`, Keras's own kernel
    is used.

    Example:
        >>> layer = Dropout(0.25, seed=7)
        >>> outputs = ops.convert_to_numpy(layer(ops.ones((3, 5)), training=True))
        >>> sorted({round(float(x), 4) for x in outputs.flat})
        [0.0, 1.3333]

    Reference:
        [Srivastava et al., 2014](https://jmlr.org/papers/v15/srivastava14a.html)
    """

    def __init__(
        self, rate: float, seed: int | None = None, noise_shape=None, **kwargs
    ):
        check_fractions(rate=rate)
        super().__init__(rate, noise_shape, seed, **kwargs)
        self._dropped_levels = max(1, round(rate * LEVELS)) if rate else 0

    def call(self, inputs, training=False):
        if not training or not self.rate:
            return inputs
        if self.noise_shape is not None:
            return super().call(inputs, training)
        if self._dropped_levels == LEVELS:
            return ops.zeros_like(inputs)
        keep = self._random_bytes(inputs) >= self._dropped_levels
        scale = LEVELS / (LEVELS - self._dropped_levels)
        return ops.where(keep, inputs * scale, ops.cast(0, inputs.dtype))

    def _random_bytes(self, inputs):
        def draw(*shape):
            limits = -(2**31), 2**31 - 1
            words = keras.random.randint(
                shape, *limits, "int32", seed=self.seed_generator
            )
            return _bytes_of(words, (*shape[:-1], 4 * shape[-1]))

        *others, width = shape = shape_of(inputs)
        if inputs.shape[-1] and width % 4 == 0:
            return draw(*others, width // 4)
        size = ops.size(inputs)
        bytes_ = ops.reshape(draw((size + 3) // 4, 1), (-1,))
        return ops.reshape(bytes_[:size], shape)


def _bytes_of(words, shape):
    """Views words as bytes, four times as many in the last axis."""
    if target.BACKEND != "tensorflow":
        return ops.view(words, "uint8")
    import tensorflow as tf

    # Keras's `view` takes eighteen operations where lengths are unknown.
    return tf.reshape(tf.bitcast(words, tf.uint8), shape)
