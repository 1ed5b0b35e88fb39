"""How beam search weighs hypotheses of different lengths against each other."""

import keras
import numpy as np

from keras_transformer.checks import is_finite_number
from keras_transformer.decoding.config import ConfigObject


class LengthPenalty(ConfigObject):
    """Base of length penalties: a divisor of the log-probability for every length.

    Args:
        exponent: The larger it is, the longer the results. 0 leaves log-probabilities
            unchanged.

    Raises:
        ValueError: If `exponent` is not a finite number.
    """

    def __init__(self, exponent: float):
        if not is_finite_number(exponent):
            raise ValueError(
                "`exponent` of a length penalty must be a finite number. "
                f"Received: exponent={exponent!r}."
            )
        self.exponent = float(exponent)

    def divisors(self, max_length: int):
        """Returns the divisors of lengths 1 to `max_length`, a float32 array.

        Lengths count the end token.
        """
        raise NotImplementedError


@keras.saving.register_keras_serializable(package="keras_transformer")
class WuLengthPenalty(LengthPenalty):
    """Divides by `((5 + length) / 6) ** exponent`.

    Args:
        exponent: The larger, the longer the sequences; 0 leaves scores as they are.

    Reference:
        [Wu et al., 2016](https://arxiv.org/abs/1609.08144), section 7
    """

    def divisors(self, max_length: int):
        lengths = np.arange(1, max_length + 1)
        return (((5 + lengths) / 6) ** self.exponent).astype("float32")


@keras.saving.register_keras_serializable(package="keras_transformer")
class PowerLengthPenalty(LengthPenalty):
    """Divides by `length ** exponent`; by default, by the length itself.

    As in Marian, fairseq, CTranslate2 and Hugging Face's transformers, where the
    exponent is called the length penalty.

    Args:
        exponent: The larger, the longer the sequences; 0 leaves scores as they are.
    """

    def __init__(self, exponent: float = 1.0):
        super().__init__(exponent)

    def divisors(self, max_length: int):
        lengths = np.arange(1.0, max_length + 1)
        return (lengths**self.exponent).astype("float32")
