"""One step of a model, seen from a search: what may come next."""

from typing import NamedTuple

from keras import ops

from keras_transformer.decoding.cache import visible_entries
from keras_transformer.decoding.gather import pick
from keras_transformer.decoding.vocabulary import largest


class NextSymbols(NamedTuple):
    """What may come next, for every hypothesis.

    Attributes:
        best_logits: The largest of `logits` in falling order, the padding
            symbol left out, of shape `(batch, hypotheses, count)`.
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


def stepper(model, inputs, memory, processors, count: int):
    """Joins a model's step with processors and with the choice of the best.

    Args:
        model: A model that offers the cached step.
        inputs: What the model was given to start with.
        memory: What its `start` returned.
        processors: Sequence of `Processor`.
        count: Best symbols to find; fewer where the vocabulary has fewer.

    Returns:
        A function of `(token_ids, ids, lineage, index, cache)` that returns
        `(NextSymbols, cache)`.
    """
    bound = [one.bind(model, inputs) for one in processors]

    def step(token_ids, ids, lineage, index, cache):
        visible = visible_entries(lineage, index)
        logits, cache = model.step(token_ids, memory, cache, index, visible)
        logits = ops.cast(logits, "float32")
        hypotheses, size = logits.shape[1:]
        # One more than asked for: the padding symbol may be among them.
        candidates = min(count + 1, size)
        rows = ops.reshape(logits, (-1, size))
        best_logits, best_ids = largest(rows, candidates)
        normalizer = log_normalizer(rows, best_logits[:, 0], best_ids[:, 0])
        if bound:
            for process in bound:
                logits = process(logits, ids, index)
            rows = ops.reshape(logits, (-1, size))
            best_logits, best_ids = largest(rows, candidates)
        best_logits, best_ids = without(model.pad_id, best_logits, best_ids)
        shape = (-1, hypotheses, candidates - 1)
        symbols = NextSymbols(
            best_logits=ops.reshape(best_logits, shape),
            best_ids=ops.reshape(best_ids, shape),
            normalizer=ops.reshape(normalizer, (-1, hypotheses, 1)),
            logits=logits,
        )
        return symbols, cache

    return step


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


def without(symbol: int, logits, ids):
    """Drops a symbol from rows of symbols, or the last one if it is not there.

    Args:
        symbol: The id to drop.
        logits: Float32 tensor of shape `(rows, count)`.
        ids: Int32 tensor of the same shape, no id twice in a row.

    Returns:
        Logits and ids of shape `(rows, count - 1)`, in the order as before.
    """
    dropped = ops.cumsum(ops.cast(ids == symbol, "int32"), axis=-1)[:, :-1] > 0
    return (
        ops.where(dropped, logits[:, 1:], logits[:, :-1]),
        ops.where(dropped, ids[:, 1:], ids[:, :-1]),
    )
