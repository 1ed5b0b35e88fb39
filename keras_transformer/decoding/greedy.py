"""Greedy search: the likeliest token at every step."""

from collections.abc import Iterable

import keras

from keras_transformer.decoding.processors import Processor
from keras_transformer.decoding.sampling import Sampling


@keras.saving.register_keras_serializable(package="keras_transformer")
class GreedySearch(Sampling):
    """Takes the likeliest token at every step: sampling at a temperature of 0.

    Of equally likely tokens it takes the one with the lowest id. The score is
    the log-probability of the sequence, the end token included, without a
    length penalty.

    Args:
        processors: Sequence of `Processor`, applied in this order.
        end_ids: Id or ids that end a sequence, whichever comes first; by default
            the model's `end_id`.

    Example:
        >>> kt.decoding.GreedySearch([kt.decoding.BannedIds([1])]).processors
        (BannedIds(ids=(1,)),)
    """

    def __init__(
        self,
        processors: Iterable[Processor] = (),
        end_ids: int | Iterable[int] | None = None,
    ):
        super().__init__(temperature=0.0, processors=processors, end_ids=end_ids)
