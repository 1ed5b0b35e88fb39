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
        end_ids: Id or ids that end a sequence, whichever comes first; by default
            the model's `end_id`.

    Example:
        >>> kt.decoding.GreedySearch([kt.decoding.BannedIds([1])], end_ids=[3, 7])
        GreedySearch(processors=(BannedIds(ids=(1,)),), end_ids=(3, 7))
    """

    def __init__(self, processors=(), end_ids=None):
        super().__init__(processors=processors, end_ids=end_ids)

    def choose(self, model, symbols, index, random_numbers):
        logits, ids = symbols.likeliest()
        return ids, logits
