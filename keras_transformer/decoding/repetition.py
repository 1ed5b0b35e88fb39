"""Processors against repetition."""

import keras
from keras import ops

from keras_transformer.checks import check_positive_integers
from keras_transformer.decoding.configurable import is_finite_number
from keras_transformer.decoding.processors import Processor, forbid


@keras.saving.register_keras_serializable(package="keras_transformer")
class NoRepeatNgram(Processor):
    """Forbids tokens that would repeat an n-gram of the sequence.

    The prompt of a `LanguageModel` does not count as part of it.

    Args:
        size: Tokens of an n-gram; 1 forbids any token to occur twice.

    Raises:
        ValueError: If `size` is not a positive integer.

    Reference:
        [Paulus et al., 2018](https://arxiv.org/abs/1705.04304), section 2.5
    """

    def __init__(self, size: int):
        check_positive_integers(size=size)
        self.size = int(size)

    def bind(self, model, inputs):
        return self.process

    def process(self, logits, ids, index):
        num_windows = ids.shape[-1] - self.size + 1
        if num_windows < 1:
            return logits
        positions = ops.arange(ids.shape[-1], dtype="int32")
        # A window matches where all but its last token equal the newest ones.
        matches = ops.arange(num_windows, dtype="int32") + self.size <= index
        for offset in range(self.size - 1):
            is_newest = positions == index - self.size + 1 + offset
            newest = ops.sum(ops.where(is_newest, ids, 0), axis=-1, keepdims=True)
            tokens = ids[..., offset : offset + num_windows]
            matches = matches & (tokens == newest)
        last_ids = ids[..., self.size - 1 :]
        return forbid(logits, occurring(last_ids, matches, logits))


@keras.saving.register_keras_serializable(package="keras_transformer")
class RepetitionPenalty(Processor):
    """Lowers the probability of tokens that the sequence already has.

    Their logits are divided by `penalty` where positive, and multiplied by it
    where negative. Scores include the penalty. The prompt of a `LanguageModel` does
    not count as part of the sequence.

    An `Ensemble` has log-probabilities in place of logits. None of them is positive, so
    the same penalty acts differently than on one model: choose it anew.

    Args:
        penalty: A number of at least 1; 1 changes nothing, 1.2 is usual.

    Raises:
        ValueError: If `penalty` is less than 1 or not finite.

    Reference:
        [Keskar et al., 2019](https://arxiv.org/abs/1909.05858), section 4.1
    """

    def __init__(self, penalty: float):
        if not is_finite_number(penalty) or penalty < 1:
            raise ValueError(
                "`penalty` must be a finite number of at least 1. "
                f"Received: penalty={penalty!r}."
            )
        self.penalty = float(penalty)

    def bind(self, model, inputs):
        return self.process

    def process(self, logits, ids, index):
        is_past = ops.arange(ids.shape[-1], dtype="int32") < index
        lowered = ops.minimum(logits / self.penalty, logits * self.penalty)
        return ops.where(occurring(ids, is_past, logits), lowered, logits)


def occurring(ids, is_counted, logits):
    """Finds the tokens that occur at the counted positions.

    Args:
        ids: Int32 tensor of shape `(batch, hypotheses, length)`.
        is_counted: Boolean tensor that broadcasts to the shape of `ids`.
        logits: Tensor of shape `(batch, hypotheses, vocabulary)`.

    Returns:
        A boolean tensor of the shape of `logits`.
    """
    hypotheses, size = logits.shape[1:]
    length = ids.shape[-1]
    num_rows = ops.shape(ids)[0] * hypotheses
    rows = ops.repeat(ops.arange(num_rows, dtype="int32"), length)
    indices = ops.stack([rows, ops.reshape(ids, (-1,))], axis=1)
    is_counted = ops.broadcast_to(is_counted, ops.shape(ids))
    is_counted = ops.reshape(ops.cast(is_counted, "float32"), (-1,))
    counts = ops.scatter(indices, is_counted, (num_rows, size))
    return ops.reshape(counts, (-1, hypotheses, size)) > 0
