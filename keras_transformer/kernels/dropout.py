"""Dropout that spends one random byte on each element."""

import keras
from keras import ops

LEVELS = 256  # of a byte


@keras.saving.register_keras_serializable(package="keras_transformer")
class Dropout(keras.layers.Dropout):
    """`keras.layers.Dropout` with a quarter of the random numbers.

    Where there is no accelerator, random numbers are what dropout costs. A
    random integer of 32 bits decides here on four elements, a byte on each, so
    the share that is dropped is `rate` to the nearest 256th, and at least one
    256th of a `rate` above zero. What is kept is scaled by just that share, so
    the expectation of every element stays as it was.

    Args:
        rate: Share of the elements to set to zero in training.
        seed: Seed of the random numbers.
        **kwargs: Base `Layer` arguments, such as `name` and `dtype`.

    Call arguments:
        inputs: Float tensor of any shape.
        training: Whether to drop out.

    Returns:
        A tensor of the shape of `inputs`.

    Raises:
        ValueError: If `rate` is not between 0 and 1.

    Example:
        >>> layer = Dropout(0.25, seed=7)
        >>> outputs = ops.convert_to_numpy(layer(ops.ones((3, 5)), training=True))
        >>> sorted({round(float(x), 4) for x in outputs.flat})
        [0.0, 1.3333]

    Reference:
        [Srivastava et al., 2014](https://jmlr.org/papers/v15/srivastava14a.html)
    """

    def __init__(self, rate: float, seed: int | None = None, **kwargs):
        super().__init__(rate, seed=seed, **kwargs)
        self._dropped_levels = max(1, round(rate * LEVELS)) if rate else 0

    def call(self, inputs, training=False):
        if not training or not self.rate:
            return inputs
        if self._dropped_levels == LEVELS:
            return ops.zeros_like(inputs)
        keep = self._random_bytes(inputs) >= self._dropped_levels
        scale = LEVELS / (LEVELS - self._dropped_levels)
        return ops.where(keep, inputs * scale, ops.cast(0, inputs.dtype))

    def _random_bytes(self, inputs):
        size = ops.size(inputs)
        # A last axis of one: `ops.view` widens only one that is known.
        shape = ((size + 3) // 4, 1)
        words = keras.random.randint(
            shape, -(2**31), 2**31 - 1, "int32", seed=self.seed_generator
        )
        bytes_ = ops.reshape(ops.view(words, "uint8"), (-1,))
        return ops.reshape(bytes_[:size], ops.shape(inputs))

    def get_config(self):
        base = keras.layers.Layer.get_config(self)
        return {**base, "rate": self.rate, "seed": self.seed}
