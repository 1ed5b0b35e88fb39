"""Controls of what a search may produce: changes to the logits that compose."""

import keras
import numpy as np
from keras import ops

from keras_transformer.decoding.configurable import Configurable


class Processor(Configurable):
    """Base of what a search takes as `processors`.

    A processor lowers logits, down to minus infinity where a symbol is
    forbidden, and never raises one: that is what lets a search stop early.
    What is forbidden does not change what the other symbols score. Where
    processors together forbid every symbol, a hypothesis stops, with a score
    of minus infinity.

    To write one, offer `bind` and `get_config`, and register the class with
    `keras.saving.register_keras_serializable`.
    """

    def bind(self, model, inputs):
        """Reads what there is to know before the first step.

        It is called again when some sentences have ended and the others go on,
        with the inputs of these.

        Args:
            model: The model that is searched, with its `pad_id` and `end_id`.
            inputs: What it was given: a limit may depend on the source.

        Returns:
            A function of `(logits, ids, index)` that returns new logits.
            `logits` are float32, of shape `(batch, hypotheses, vocabulary)`;
            `ids` int32, of shape `(batch, hypotheses, max_length)`: the
            symbols so far, without the start symbol, and `pad_id` from
            position `index` on; `index` is the scalar position of the symbol
            that the logits are for.
        """
        raise NotImplementedError

    def table(self, num_sentences: int):
        """Returns what the processor itself says of each sentence, if anything.

        `model.generate` gives it to the compiled search as an input. So what
        it holds may change from call to call, and nothing is compiled anew.

        Returns:
            An integer array with a row for each sentence, or None.
        """

    def with_table(self, table):
        """Returns the processor with another table; with None, one without."""
        return self


def forbid(logits, forbidden):
    """Lowers logits to minus infinity where `forbidden` is True."""
    # The smaller of two is one pass; a choice that broadcasts is a slow one.
    return ops.minimum(logits, ops.where(forbidden, -np.inf, np.inf))


def vocabulary_of(logits):
    """Returns the ids that logits are for, of shape `(vocabulary,)`."""
    return np.arange(logits.shape[-1], dtype="int32")


@keras.saving.register_keras_serializable(package="keras_transformer")
class BannedIds(Processor):
    """Forbids symbols at every position.

    Args:
        ids: The ids to forbid, a sequence of integers.

    Raises:
        ValueError: If there are no ids or negative ones.
    """

    def __init__(self, ids):
        ids = tuple(int(symbol) for symbol in ids)
        if not ids or min(ids) < 0:
            raise ValueError(
                f"`ids` must be one or more ids of the vocabulary. Received: ids={ids}."
            )
        self.ids = ids

    def bind(self, model, inputs):
        def process(logits, ids, index):
            return forbid(logits, np.isin(vocabulary_of(logits), self.ids))

        return process

    def get_config(self):
        return {"ids": list(self.ids)}
