"""Processors: composable changes to the logits that control a search."""

import operator
from collections.abc import Iterable

import keras
import numpy as np
from keras import ops

from keras_transformer.checks import check_positive_integers, is_finite_number
from keras_transformer.decoding.config import ConfigObject


class Processor(ConfigObject):
    """Base class of the `processors` of a search.

    A processor lowers logits, to minus infinity to forbid a token, and never raises
    one: this lets a search stop early. A forbidden token does not change the scores of
    the others. If processors together forbid every token, a hypothesis stops, with a
    score of minus infinity.

    To write one, implement `bind`, and register the class with
    `keras.saving.register_keras_serializable`.
    """

    def bind(self, model, inputs, end_ids: tuple[int, ...]):
        """Returns a function that changes the logits at every step.

        It is called again, with the inputs of new sentences, when these replace
        sentences that have ended.

        Args:
            model: The model that is searched, with its `pad_id`.
            inputs: The model's inputs: a limit may depend on the source.
            end_ids: The ids that end a sequence in this search.

        Returns:
            A function of `(logits, ids, index)` that returns new logits.
            `logits` are float32, of shape `(batch, hypotheses, vocabulary)`;
            `ids` int32, of shape `(batch, hypotheses, max_length)`: the
            tokens so far, without the start token, and `pad_id` from
            position `index` on; `index` is the position of the token that the
            logits are for, int32 of shape `(batch, 1, 1)`.
        """
        raise NotImplementedError

    def named_ids(self) -> Iterable[int]:
        """Returns the ids that the vocabulary must have for this processor."""
        return ()

    def table(self, num_sentences: int):
        """Returns the processor's own settings for each sentence, if it has any.

        `model.generate` passes them to the compiled search as an input, so the same
        program serves any values.

        Returns:
            An integer array with a row for each sentence, or None.
        """

    def with_table(self, table):
        """Returns the processor with another table, or without one for None."""
        return self


def forbid(logits, forbidden):
    """Lowers logits to minus infinity where `forbidden` is True."""
    # A minimum is one pass; `ops.where` of logits with a broadcast mask is slow.
    return ops.minimum(logits, ops.where(forbidden, -np.inf, np.inf))


def vocabulary_of(logits):
    """Returns the ids of the vocabulary that logits are for, a NumPy array."""
    return np.arange(logits.shape[-1], dtype="int32")


@keras.saving.register_keras_serializable(package="keras_transformer")
class BannedIds(Processor):
    """Forbids tokens at every position.

    Args:
        ids: The ids to forbid, a sequence of integers.

    Raises:
        ValueError: If there are no ids, or any is negative or not an integer.
    """

    def __init__(self, ids: Iterable[int]):
        try:
            self.ids = tuple(map(operator.index, ids))
        except TypeError:  # not integers, or no sequence
            self.ids = ()
        if not self.ids or min(self.ids) < 0:
            raise ValueError(
                "`ids` must be a sequence of one or more ids of the vocabulary. "
                f"Received: ids={ids!r}."
            )

    def bind(self, model, inputs, end_ids: tuple[int, ...]):
        def process(logits, ids, index):
            return forbid(logits, np.isin(vocabulary_of(logits), self.ids))

        return process

    def named_ids(self):
        return self.ids


@keras.saving.register_keras_serializable(package="keras_transformer")
class MinimumLength(Processor):
    """Forbids all end tokens until a sequence has a minimum length.

    Args:
        length: Minimum number of tokens, including the end token.

    Raises:
        ValueError: If `length` is not a positive integer.
    """

    def __init__(self, length: int):
        check_positive_integers(length=length)
        self.length = int(length)

    def bind(self, model, inputs, end_ids: tuple[int, ...]):
        def process(logits, ids, index):
            is_end = np.isin(vocabulary_of(logits), end_ids)
            return forbid(logits, ops.logical_and(is_end, index + 1 < self.length))

        return process


@keras.saving.register_keras_serializable(package="keras_transformer")
class MaximumLength(Processor):
    """Limits the length of every sequence relative to its source.

    A sequence has at most `ratio * source_length + extra` tokens, rounded down, and at
    least 1: as the last of them only end tokens are allowed. Both lengths count the end
    token. The search's `max_length` also applies.

    The source is the first tensor of the model's inputs; its length is the
    number of ids that are not the model's `pad_id`.

    Args:
        ratio: Number of tokens for each source token.
        extra: Number of additional tokens, an integer that may be negative.

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

    def bind(self, model, inputs, end_ids: tuple[int, ...]):
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
            others = ~np.isin(vocabulary_of(logits), end_ids)
            return forbid(logits, ops.logical_and(others, index + 1 >= limits))

        return process


@keras.saving.register_keras_serializable(package="keras_transformer")
class NoRepeatNgram(Processor):
    """Forbids tokens that would repeat an n-gram of the sequence.

    The prompt of a `LanguageModel` does not count.

    Args:
        size: Number of tokens in an n-gram; 1 forbids any token to occur twice.

    Raises:
        ValueError: If `size` is not a positive integer.

    Reference:
        [Paulus et al., 2018](https://arxiv.org/abs/1705.04304), section 2.5
    """

    def __init__(self, size: int):
        check_positive_integers(size=size)
        self.size = int(size)

    def bind(self, model, inputs, end_ids: tuple[int, ...]):
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
    """Lowers the probability of tokens that the sequence already contains.

    Their logits are divided by `penalty` where positive, and multiplied by it
    where negative. Scores include the penalty. The prompt of a `LanguageModel` does
    not count as part of the sequence.

    An `Ensemble` has log-probabilities in place of logits. They are never positive, so
    a penalty acts differently than on one model: tune it again.

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

    def bind(self, model, inputs, end_ids: tuple[int, ...]):
        return self.process

    def process(self, logits, ids, index):
        is_past = ops.arange(ids.shape[-1], dtype="int32") < index
        lowered = ops.minimum(logits / self.penalty, logits * self.penalty)
        return ops.where(occurring(ids, is_past, logits), lowered, logits)


def occurring(ids, is_counted, logits):
    """Finds the tokens that occur at the counted positions of ids.

    The int32 `ids` have the shape `(batch, hypotheses, length)`, to which the boolean
    `is_counted` broadcasts. Returns a boolean tensor of the shape of `logits`, `(batch,
    hypotheses, vocabulary)`.
    """
    hypotheses, size = logits.shape[1:]
    length = ids.shape[-1]
    num_rows = ops.shape(ids)[0] * hypotheses
    rows = ops.repeat(ops.arange(num_rows, dtype="int32"), length)
    ids = ops.where(ids < 0, 0, ids)  # negative ids are not counted
    indices = ops.stack([rows, ops.reshape(ids, (-1,))], axis=1)
    is_counted = ops.broadcast_to(is_counted, ops.shape(ids))
    is_counted = ops.reshape(ops.cast(is_counted, "float32"), (-1,))
    counts = ops.scatter(indices, is_counted, (num_rows, size))
    return ops.reshape(counts, (-1, hypotheses, size)) > 0
