"""What may be produced: small changes to the logits that compose."""

import keras
import numpy as np
from keras import ops

from keras_transformer.decoding.configurable import Configurable


class Processor(Configurable):
    """Base of the objects that a search takes as `processors`.

    A processor only ever lowers logits, down to minus infinity where a symbol
    is forbidden. The searches subtract the normalizer of the model's own
    logits from what comes out, so forbidding leaves the log-probabilities of
    all other symbols as the model gave them.

    Where processors together forbid every symbol, a hypothesis stops with a
    score of minus infinity. Lengths count the end symbol.

    To write one, offer `bind` and `get_config`, and register the class with
    `keras.saving.register_keras_serializable`.
    """

    def bind(self, model, inputs):
        """Reads what the processor needs to know, before the first step.

        Args:
            model: The model that is searched, for its `end_id` and `pad_id`.
            inputs: What the model is given, to make limits depend on it.

        Returns:
            A function of `(logits, ids, index)` that returns new logits:
            `logits` is a float32 tensor of shape
            `(batch, hypotheses, vocabulary)`; `ids` an int32 tensor of shape
            `(batch, hypotheses, max_length)` that holds the symbols so far,
            without the start symbol, and `pad_id` from position `index` on;
            `index` the scalar position of the symbol to come.
        """
        raise NotImplementedError


def forbid(logits, forbidden):
    """Gives logits of minus infinity where `forbidden` is True."""
    return ops.where(forbidden, -np.inf, logits)


def symbols(logits):
    """Returns all ids of the vocabulary, of shape `(vocabulary,)`."""
    return np.arange(logits.shape[-1], dtype="int32")


@keras.saving.register_keras_serializable(package="keras_transformer")
class BannedIds(Processor):
    """Forbids symbols everywhere.

    Args:
        ids: The ids to forbid.

    Raises:
        ValueError: If there is a negative id, or no id.
    """

    def __init__(self, ids):
        ids = tuple(int(one) for one in ids)
        if not ids or min(ids) < 0:
            raise ValueError(
                f"`ids` must be one or more ids of the vocabulary. Received: ids={ids}."
            )
        self.ids = ids

    def bind(self, model, inputs):
        def process(logits, ids, index):
            return forbid(logits, np.isin(symbols(logits), self.ids))

        return process

    def get_config(self):
        return {"ids": list(self.ids)}
