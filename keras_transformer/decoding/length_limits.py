"""Processors that limit the length of sequences."""

import keras
import numpy as np
from keras import ops

from keras_transformer.checks import check_positive_integers
from keras_transformer.decoding.configurable import is_finite_number
from keras_transformer.decoding.processors import Processor, forbid, vocabulary_of


@keras.saving.register_keras_serializable(package="keras_transformer")
class MinimumLength(Processor):
    """Forbids all end tokens until a sequence has a minimum length.

    Args:
        length: Least number of tokens, the end token included.

    Raises:
        ValueError: If `length` is not a positive integer.
    """

    def __init__(self, length: int):
        check_positive_integers(length=length)
        self.length = int(length)

    def bind(self, model, inputs):
        def process(logits, ids, index):
            is_end = np.isin(vocabulary_of(logits), model.end_ids)
            return forbid(logits, ops.logical_and(is_end, index + 1 < self.length))

        return process


@keras.saving.register_keras_serializable(package="keras_transformer")
class MaximumLength(Processor):
    """Limits the length of every sequence by that of its source.

    A sequence has at most `ratio * source_length + extra` tokens, rounded
    down, and at least 1: at the last of them only end tokens are allowed.
    Both lengths count the end token. The search's `max_length` holds too.

    The source is the first tensor of the model's inputs; its length is the
    number of ids that are not the model's `pad_id`.

    Args:
        ratio: Tokens for each token of the source.
        extra: Further tokens, an integer that may be negative.

    Raises:
        ValueError: If `ratio` is negative or not finite, or `extra` is not an
            integer; when bound, if the source is not of shape `(batch, length)`.
    """

    def __init__(self, ratio: float, extra: int = 0):
        if not is_finite_number(ratio) or ratio < 0:
            raise ValueError(
                "`ratio` must be a finite number of at least 0. "
                f"Received: ratio={ratio!r}."
            )
        if not isinstance(extra, (int, np.integer)):
            raise ValueError(f"`extra` must be an integer. Received: extra={extra}.")
        self.ratio = float(ratio)
        self.extra = int(extra)

    def bind(self, model, inputs):
        source_ids = keras.tree.flatten(inputs)[0]
        if len(source_ids.shape) != 2:
            raise ValueError(
                "`MaximumLength` needs source ids of shape (batch, length) as the "
                f"first input. Received: a shape of {tuple(source_ids.shape)}."
            )
        is_token = ops.not_equal(source_ids, model.pad_id)
        source_lengths = ops.sum(ops.cast(is_token, "float32"), axis=1)
        # 1.05 * 60 is 62.999996 in float32. Integers end at 2 ** 31.
        limits = ops.floor(self.ratio * source_lengths + 1e-4) + self.extra
        limits = ops.cast(ops.clip(limits, 1, 2.0**30), "int32")[:, None, None]

        def process(logits, ids, index):
            others = ~np.isin(vocabulary_of(logits), model.end_ids)
            return forbid(logits, ops.logical_and(others, index + 1 >= limits))

        return process
