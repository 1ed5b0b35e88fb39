"""Against sequences that repeat themselves."""

import keras
import numpy as np
from keras import ops

from keras_transformer.decoding.processors import Processor, forbid


@keras.saving.register_keras_serializable(package="keras_transformer")
class NoRepeatNgram(Processor):
    """Forbids symbols that would complete an n-gram for the second time.

    Args:
        size: Symbols of an n-gram; 1 lets no symbol come twice.

    Raises:
        ValueError: If `size` is not a positive integer.

    Reference:
        [Paulus et al., 2018](https://arxiv.org/abs/1705.04304), section 2.5
    """

    def __init__(self, size: int):
        if not isinstance(size, int) or size < 1:
            raise ValueError(
                f"`size` must be a positive integer. Received: size={size}."
            )
        self.size = size

    def bind(self, model, inputs):
        return self.process

    def process(self, logits, ids, index):
        windows = ids.shape[-1] - self.size + 1
        if windows < 1:
            return logits
        # A window matches where all but its last symbol equal the newest ones.
        matches = ops.arange(windows, dtype="int32") + self.size <= index
        for offset in range(self.size - 1):
            newest = ops.take(ids, ops.maximum(index - self.size + 1 + offset, 0), -1)
            matches = matches & (
                ids[..., offset : offset + windows] == newest[..., None]
            )
        return forbid(logits, marked(ids[..., self.size - 1 :], matches, logits))

    def get_config(self):
        return {"size": self.size}


@keras.saving.register_keras_serializable(package="keras_transformer")
class RepetitionPenalty(Processor):
    """Makes symbols less likely that a sequence already has.

    Their logits are divided by `penalty` where positive, and multiplied by it
    where negative. Scores include the loss.

    Args:
        penalty: A number of at least 1, which changes nothing; 1.2 is usual.

    Raises:
        ValueError: If `penalty` is less than 1 or not finite.

    Reference:
        [Keskar et al., 2019](https://arxiv.org/abs/1909.05858), section 4.1
    """

    def __init__(self, penalty: float):
        if not 1 <= penalty < np.inf:
            raise ValueError(
                "`penalty` must be a finite number of at least 1. "
                f"Received: penalty={penalty}."
            )
        self.penalty = penalty

    def bind(self, model, inputs):
        return self.process

    def process(self, logits, ids, index):
        is_past = ops.arange(ids.shape[-1], dtype="int32") < index
        lowered = ops.minimum(logits / self.penalty, logits * self.penalty)
        return ops.where(marked(ids, is_past, logits), lowered, logits)

    def get_config(self):
        return {"penalty": self.penalty}


def marked(ids, counts, logits):
    """Marks the symbols that occur at the positions that count.

    Args:
        ids: Int32 tensor of shape `(batch, hypotheses, length)`.
        counts: Boolean tensor that broadcasts to the shape of `ids`.
        logits: Tensor of shape `(batch, hypotheses, vocabulary)`.

    Returns:
        A boolean tensor of the shape of `logits`.
    """
    hypotheses, size = logits.shape[1:]
    length = ids.shape[-1]
    num_rows = ops.shape(ids)[0] * hypotheses
    rows = ops.repeat(ops.arange(num_rows, dtype="int32"), length)
    places = ops.stack([rows, ops.reshape(ids, (-1,))], axis=1)
    counts = ops.broadcast_to(counts, ops.shape(ids))
    counts = ops.reshape(ops.cast(counts, "float32"), (-1,))
    hits = ops.scatter(places, counts, (num_rows, size))
    return ops.reshape(hits, (-1, hypotheses, size)) > 0
