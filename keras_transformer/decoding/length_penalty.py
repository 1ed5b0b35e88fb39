"""How beam search weighs hypotheses of different lengths against each other."""

import keras
import numpy as np

from keras_transformer.decoding.configurable import Configurable, is_finite_number


class LengthPenalty(Configurable):
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

    def bases(self, lengths):
        """Returns what is raised to the power of `exponent`, for an array of lengths.

        Lengths count the end token.
        """
        raise NotImplementedError

    def divisors(self, max_length: int):
        """Returns the divisors of lengths 1 to `max_length`, a float32 array."""
        bases = self.bases(np.arange(1, max_length + 1))
        return (bases**self.exponent).astype("float32")


@keras.saving.register_keras_serializable(package="keras_transformer")
class WuLengthPenalty(LengthPenalty):
    """Divides by `((5 + length) / 6) ** exponent`.

    Args:
        exponent: The larger, the longer the sequences; 0 leaves scores as they are.

    Reference:
        [Wu et al., 2016](https://arxiv.org/abs/1609.08144), section 7
    """

    def bases(self, lengths):
        return (5 + lengths) / 6


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

    def bases(self, lengths):
        return lengths.astype("float64")


def length_penalty_of(length_penalty) -> LengthPenalty:
    """Returns a penalty as it is, and `WuLengthPenalty` for an exponent."""
    if isinstance(length_penalty, LengthPenalty):
        return length_penalty
    return WuLengthPenalty(length_penalty)
