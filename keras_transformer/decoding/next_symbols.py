"""One step of a model, seen from a search: what may come next."""

from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_transformer.decoding.cache import visible_entries
from keras_transformer.kernels.gather import pick
from keras_transformer.kernels.top_k import largest


class NextSymbols(NamedTuple):
    """What may come next, for every hypothesis.

    Attributes:
        best_logits: The largest of `logits` in falling order, of shape
            `(batch, hypotheses, choices)`; one of them, that of the padding
            symbol if it is there, else the last, is minus infinity.
        best_ids: Their symbols, int32, of the same shape.
        normalizer: What to subtract from logits to have log-probabilities, of
            shape `(batch, hypotheses, 1)`: that of the model's own logits, so
            that what processors forbid leaves the others as they were.
        logits: Processed logits, of shape `(batch, hypotheses, vocabulary)`.
    """

    best_logits: object
    best_ids: object
    normalizer: object
    logits: object

    # XLA has a fast top-k for those only of which nobody takes a slice, so
    # code here and in the searches reads `best_*` in other ways.

    def likeliest(self):
        """Returns the best logit and its id, of shape `(batch, hypotheses)`."""
        hypotheses, choices = self.best_logits.shape[1:]
        logits = ops.reshape(self.best_logits, (-1, choices))
        ids = ops.reshape(self.best_ids, (-1, choices))
        return tuple(ops.reshape(one, (-1, hypotheses)) for one in first(logits, ids))


def stepper(model, inputs, memory, cache_length: int, processors, count: int):
    """Joins a model's step with processors and with the choice of the best.

    Args:
        model: A model that offers the cached step.
        inputs: What the model was given to start with.
        memory: What its `start` returned.
        cache_length: Positions that its cache holds.
        processors: Sequence of `Processor`.
        count: Best symbols to find; fewer where the vocabulary has fewer.

    Returns:
        A function of `(token_ids, ids, lineage, index, cache)` that returns
        `(NextSymbols, cache)`.
    """
    bound = [one.bind(model, inputs) for one in processors]
    sentences = keras.tree.flatten(inputs)[0].shape[0]
    # What a model prepares for all steps is not worth it for a sentence or two.
    prepares = hasattr(model, "prepared_step") and (sentences is None or sentences >= 8)
    take_step = model.prepared_step() if prepares else model.step

    def step(token_ids, ids, lineage, index, cache):
        visible = visible_entries(lineage[..., :cache_length], index)
        logits, cache = take_step(token_ids, memory, cache, index, visible)
        logits = ops.cast(logits, "float32")
        hypotheses, size = logits.shape[1:]
        # One more than asked for: the padding symbol may be among them.
        choices = min(count + 1, size)
        rows = ops.reshape(logits, (-1, size))
        best_logits, best_ids = largest(rows, choices)
        normalizer = log_normalizer(rows, *first(best_logits, best_ids))
        if bound:
            for process in bound:
                logits = process(logits, ids, index)
            best_logits, best_ids = largest(ops.reshape(logits, (-1, size)), choices)
        is_symbol = best_ids != model.pad_id
        is_asked = ops.cumsum(ops.cast(is_symbol, "int32"), axis=-1) <= count
        best_logits = ops.where(is_symbol & is_asked, best_logits, -np.inf)
        symbols = NextSymbols(
            best_logits=ops.reshape(best_logits, (-1, hypotheses, choices)),
            best_ids=ops.reshape(best_ids, (-1, hypotheses, choices)),
            normalizer=ops.reshape(normalizer, (-1, hypotheses, 1)),
            logits=logits,
        )
        return symbols, cache

    return step


def first(logits, ids):
    """Returns the first of the largest logits, and its id, of each row."""
    place = ops.cast(ops.argmax(logits, axis=-1), "int32")
    return ops.max(logits, axis=-1), pick(ids, place)


def log_normalizer(logits, largest_logit, largest_id):
    """Returns the logarithm of the sum of exponentials of each row.

    The largest probability tells it: a softmax is one fused pass where
    `ops.logsumexp` takes several, and the largest of its values cannot
    underflow.

    Args:
        logits: Float32 tensor of shape `(rows, vocabulary)`.
        largest_logit: The largest of each row, of shape `(rows,)`.
        largest_id: Its position, int32, of the same shape.
    """
    return largest_logit - ops.log(pick(ops.softmax(logits), largest_id))
