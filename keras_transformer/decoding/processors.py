"""Processors: composable changes to the logits that control a search."""

import operator
from collections.abc import Iterable

import keras
import numpy as np
from keras import ops

from keras_transformer.decoding.configurable import Configurable


class Processor(Configurable):
    """Base of what a search takes as `processors`.

    A processor lowers logits, down to minus infinity where a token is
    forbidden, and never raises one: that is what lets a search stop early.
    A forbidden token does not change the scores of the others. Where
    processors together forbid every token, a hypothesis stops, with a score
    of minus infinity.

    To write one, offer `bind`, and register the class with
    `keras.saving.register_keras_serializable`.
    """

    def bind(self, model, inputs):
        """Returns the function that changes the logits of every step.

        It is called again, with the inputs of other sentences, when these take the
        places of sentences that have ended.

        Args:
            model: The model that is searched, with its `pad_id`, and with the
                `end_ids` of the search, a tuple.
            inputs: The model's inputs: a limit may depend on the source.

        Returns:
            A function of `(logits, ids, index)` that returns new logits.
            `logits` are float32, of shape `(batch, hypotheses, vocabulary)`;
            `ids` int32, of shape `(batch, hypotheses, max_length)`: the
            tokens so far, without the start token, and `pad_id` from
            position `index` on; `index` is the position of the token that the
            logits are for, int32 of shape `(batch, 1, 1)`.
        """
        raise NotImplementedError

    def table(self, num_sentences: int):
        """Returns the processor's own settings for each sentence, if it has any.

        `model.generate` passes them to the compiled search as an input, so the same
        program serves other values.

        Returns:
            An integer array with a row for each sentence, or None.
        """

    def with_table(self, table):
        """Returns the processor with another table, or without one for None."""
        return self


def check_processors(processors) -> tuple[Processor, ...]:
    """Returns processors as a tuple; raises `ValueError` unless they are some."""
    is_listed = isinstance(processors, Iterable)
    listed = tuple(processors) if is_listed else (processors,)
    if not is_listed or not all(isinstance(one, Processor) for one in listed):
        raise ValueError(
            "`processors` must be a list of `Processor`s, such as `[BannedIds([1])]`. "
            f"Received: processors={listed if is_listed else processors!r}."
        )
    return listed


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
        ValueError: If there are no ids, negative ones or what is no integer.
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

    def bind(self, model, inputs):
        def process(logits, ids, index):
            return forbid(logits, np.isin(vocabulary_of(logits), self.ids))

        return process

    def get_config(self):
        return {"ids": list(self.ids)}
