"""Greedy search: the likeliest symbol at every step."""

import keras

from keras_transformer.decoding.independent import IndependentSearch


@keras.saving.register_keras_serializable(package="keras_transformer")
class GreedySearch(IndependentSearch):
    """Takes the likeliest symbol at every step.

    Of equally likely symbols it takes the one with the lowest id. The score is
    the log-probability of the sequence, the end symbol included, without a
    length penalty.

    Args:
        processors: Sequence of `Processor`, applied in this order.

    Example:
        >>> kt.decoding.GreedySearch(processors=[kt.decoding.BannedIds([1])])
        GreedySearch(processors=(BannedIds(ids=(1,)),))
    """

    def __init__(self, processors=()):
        super().__init__(processors=processors)

    def choose(self, model, symbols, index, random_numbers):
        logits, ids = symbols.likeliest()
        return ids, logits
