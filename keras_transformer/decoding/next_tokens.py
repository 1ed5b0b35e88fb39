"""One step of a model as a search sees it: which tokens may come next."""

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_transformer.kernels.crossentropy import log_normalizer
from keras_transformer.kernels.selection import top_k_in_blocks, top_one
from keras_transformer.layers.cache import visible_entries

# For fewer sentences, preparing a step costs more than it saves.
MIN_SENTENCES_TO_PREPARE = 8


class NextTokens(NamedTuple):
    """The tokens that may come next, for every hypothesis.

    Attributes:
        best_logits: The largest of `logits` in descending order, of shape
            `(batch, hypotheses, choices)`. One of them is minus infinity: that
            of the padding token if it is among them, else the last.
        best_ids: Their tokens, int32, of the same shape.
        normalizer: What to subtract from logits to get log-probabilities, of
            shape `(batch, hypotheses, 1)`. It is that of the model's own logits:
            a forbidden token does not change the scores of the others.
        logits: Processed logits, of shape `(batch, hypotheses, vocabulary)`.
    """

    best_logits: Any
    best_ids: Any
    normalizer: Any
    logits: Any

    def likeliest(self):
        """Returns the best logit and its id, of shape `(batch, hypotheses)`."""
        hypotheses, choices = self.best_logits.shape[1:]
        logits = ops.reshape(self.best_logits, (-1, choices))
        ids = ops.reshape(self.best_ids, (-1, choices))
        logit, token_id = top_one(logits, ids)
        return tuple(ops.reshape(one, (-1, hypotheses)) for one in (logit, token_id))


def next_tokens_function(
    model, inputs, memory, cache_length: int, processors, count: int
):
    """Joins a model's step with processors and the choice of the best tokens.

    Args:
        model: A model that offers the cached step.
        inputs: The model's inputs.
        memory: What its `start` returned.
        cache_length: Positions that its cache holds.
        processors: Sequence of `Processor`.
        count: Best tokens to find; fewer where the vocabulary has fewer.

    Returns:
        A function of `(token_ids, ids, lineage, index, cache)` that returns
        `(NextTokens, cache)`.
    """
    bound = [processor.bind(model, inputs) for processor in processors]
    num_sentences = keras.tree.flatten(inputs)[0].shape[0]
    is_large = num_sentences is None or num_sentences >= MIN_SENTENCES_TO_PREPARE
    prepares = is_large and hasattr(model, "prepared_step")
    take_step = model.prepared_step() if prepares else model.step

    def next_tokens(token_ids, ids, lineage, index, cache):
        visible = visible_entries(lineage[..., :cache_length], index)
        logits, cache = take_step(token_ids, memory, cache, index, visible)
        logits = ops.cast(logits, "float32")
        hypotheses, size = logits.shape[1:]
        # One more than asked for: the padding token may be among them.
        choices = min(count + 1, size)
        rows = ops.reshape(logits, (-1, size))
        best_logits, best_ids = top_k_in_blocks(rows, choices)
        normalizer = log_normalizer(rows, *top_one(best_logits, best_ids))
        if bound:
            for process in bound:
                logits = process(logits, ids, index[:, None, None])
            rows = ops.reshape(logits, (-1, size))
            best_logits, best_ids = top_k_in_blocks(rows, choices)
        is_token = best_ids != model.pad_id
        is_asked = ops.cumsum(ops.cast(is_token, "int32"), axis=-1) <= count
        best_logits = ops.where(is_token & is_asked, best_logits, -np.inf)
        tokens = NextTokens(
            best_logits=ops.reshape(best_logits, (-1, hypotheses, choices)),
            best_ids=ops.reshape(best_ids, (-1, hypotheses, choices)),
            normalizer=ops.reshape(normalizer, (-1, hypotheses, 1)),
            logits=logits,
        )
        return tokens, cache

    return next_tokens
