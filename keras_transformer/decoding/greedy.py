"""The likeliest symbol, one after the other."""

import keras
from keras import ops

from keras_transformer.decoding.independent import IndependentSearch


@keras.saving.register_keras_serializable(package="keras_transformer")
class GreedySearch(IndependentSearch):
    """Takes the likeliest symbol at every step.

    Of symbols that are equally likely the lowest id is taken. The score is the
    log-probability of the sequence, end symbol included; no length penalty.

    Args:
        processors: `Processor`s, applied to the logits in this order.

    Example:
        >>> kt.decoding.GreedySearch(processors=[kt.decoding.BannedIds([1])])
        GreedySearch(processors=(BannedIds(ids=(1,)),))
    """

    def __init__(self, processors=()):
        super().__init__(num_hypotheses=1, processors=processors)

    def choose(self, logits, index, prepared):
        return likeliest(logits)


def likeliest(logits):
    """Returns the first largest logit's id, and the logit itself."""
    chosen = ops.cast(ops.argmax(logits, axis=-1), "int32")
    return chosen, ops.max(logits, axis=-1)
