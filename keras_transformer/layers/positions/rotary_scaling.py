"""Scaling of rotary positions, for inputs longer than those of training."""

import math

import keras
import numpy as np

from keras_transformer.checks import check_positive_integers


class RotaryScaling:
    """Base class of the scalings of `RotaryEmbedding`.

    Subclasses override `scale`.

    Args:
        factor: How many times as long as in training inputs may be, at least 1.

    Attributes:
        attention_factor: What rotated queries and keys are multiplied by.

    Raises:
        ValueError: If `factor` is below 1.
    """

    attention_factor = 1.0

    def __init__(self, factor: float):
        if factor < 1:
            raise ValueError(f"`factor` must be at least 1. Received: factor={factor}.")
        self.factor = factor

    def scale(self, frequencies, max_wavelength: float):
        """The scaled frequencies, arrays of shape `(dim / 2,)`, highest first."""
        raise NotImplementedError

    def get_config(self):
        return {"factor": self.factor}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


@keras.saving.register_keras_serializable(package="keras_transformer")
class LinearRotaryScaling(RotaryScaling):
    """Divides all frequencies, and so all positions, by the factor.

    Args:
        factor: How many times as long as in training inputs may be, at least 1.

    Example:
        >>> scaling = kt.layers.LinearRotaryScaling(factor=4)
        >>> rotary = kt.layers.RotaryEmbedding(scaling=scaling)

    Reference:
        [Chen et al., 2023](https://arxiv.org/abs/2306.15595), equation 4
    """

    def scale(self, frequencies, max_wavelength: float):
        return frequencies / self.factor


@keras.saving.register_keras_serializable(package="keras_transformer")
class NTKRotaryScaling(RotaryScaling):
    """Raises `max_wavelength`, and leaves high frequencies as they are ("NTK-aware").

    `max_wavelength` is multiplied by `factor ** (dim / (dim - 2))`: the highest
    frequency stays, and the lowest is divided by the factor.

    Args:
        factor: How many times as long as in training inputs may be, at least 1.

    Example:
        >>> scaling = kt.layers.NTKRotaryScaling(factor=4)
        >>> rotary = kt.layers.RotaryEmbedding(scaling=scaling)

    Reference:
        bloc97, 2023; written down in
        [Peng et al., 2023](https://arxiv.org/abs/2309.00071), section 3.1
    """

    def scale(self, frequencies, max_wavelength: float):
        columns = np.arange(len(frequencies))
        return frequencies * self.factor ** -(columns / max(columns[-1], 1))


@keras.saving.register_keras_serializable(package="keras_transformer")
class YarnRotaryScaling(RotaryScaling):
    """Divides low frequencies alone, and sharpens attention (YaRN).

    Frequencies of more than `beta_fast` rotations in the length of training stay, those
    of fewer than `beta_slow` are divided by the factor, and those between are
    interpolated by their column, as in the paper's code, with which the published
    models were trained, rather than by their number of rotations, as in its equation
    18. Rotated queries and keys are multiplied by
    `0.1 * log(factor) + 1`.

    Args:
        factor: How many times as long as in training inputs may be, at least 1.
        original_length: Length of the inputs in training.
        beta_fast: Rotations above which frequencies stay.
        beta_slow: Rotations below which frequencies are divided.

    Raises:
        ValueError: If `original_length` is not a positive integer, or not
            `beta_fast > beta_slow > 0`.

    Example:
        >>> scaling = kt.layers.YarnRotaryScaling(factor=4, original_length=2048)
        >>> rotary = kt.layers.RotaryEmbedding(scaling=scaling)

    Reference:
        [Peng et al., 2023](https://arxiv.org/abs/2309.00071), sections 3.2 and 3.4
    """

    def __init__(
        self,
        factor: float,
        original_length: int,
        beta_fast: float = 32,
        beta_slow: float = 1,
    ):
        super().__init__(factor)
        check_positive_integers(original_length=original_length)
        if not beta_fast > beta_slow > 0:
            raise ValueError(
                "`beta_fast` must be above `beta_slow`, and both positive. "
                f"Received: beta_fast={beta_fast}, beta_slow={beta_slow}."
            )
        self.original_length = original_length
        self.beta_fast = beta_fast
        self.beta_slow = beta_slow

    @property
    def attention_factor(self):
        return 0.1 * math.log(self.factor) + 1

    def scale(self, frequencies, max_wavelength: float):
        count = len(frequencies)

        def column_of(rotations):
            wavelength = self.original_length / rotations
            return count * math.log(wavelength / (2 * math.pi), max_wavelength)

        first = max(math.floor(column_of(self.beta_fast)), 0)
        # The paper's code counts up to the last of `dim` columns, not of their half.
        last = min(math.ceil(column_of(self.beta_slow)), 2 * count - 1)
        ramp = (np.arange(count) - first) / max(last - first, 0.001)
        ramp = np.clip(ramp, 0, 1)
        return frequencies * (1 - ramp + ramp / self.factor)

    def get_config(self):
        return {
            **super().get_config(),
            "original_length": self.original_length,
            "beta_fast": self.beta_fast,
            "beta_slow": self.beta_slow,
        }
