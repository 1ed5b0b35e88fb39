"""One step of a model as a search sees it: which tokens may come next."""

from typing import Any, NamedTuple

import numpy as np
from keras import ops

from keras_transformer.kernels.crossentropy import log_normalizer
from keras_transformer.kernels.selection import top_k_in_blocks, top_one
from keras_transformer.layers.cache import visible_entries


class NextTokens(NamedTuple):
    """The tokens that may come next, for every hypothesis.

    Attributes:
        best_logits: The largest of `logits` in descending order, of shape
            `(batch, hypotheses, choices)`. One of them is minus infinity: that
            of the padding token if it is among them, else the last.
        best_ids: Their tokens, int32, of the same shape.
        normalizer: What to subtract from logits to get log-probabilities, of
            shape `(batch, hypotheses, 1)`. It is computed from the model's own
            logits: a forbidden token does not change the scores of the others.
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
    step, memory, cache_length: int, processes, count: int, pad_id: int
):
    """Joins a model's step with processors and the choice of the best tokens.

    Args:
        step: The model's `step` or `prepared_step()`.
        memory: What its `start` returned.
        cache_length: Positions that its cache holds.
        processes: What `Processor.bind` returned, for each processor.
        count: Best tokens to find; fewer where the vocabulary has fewer.
        pad_id: The token that is never produced.

    Returns:
        A function of `(hypotheses, index, cache)` that returns `(NextTokens, cache)`.
        It reads `token_ids`, `ids` and `cache_slots` of the hypotheses.
    """

    def next_tokens(hypotheses, index, cache):
        slots = hypotheses.cache_slots[..., :cache_length]
        visible = visible_entries(slots, index)
        logits, cache = step(hypotheses.token_ids, memory, cache, index, visible)
        logits = ops.cast(logits, "float32")
        num_hypotheses, size = logits.shape[1:]
        # One more than asked for: the padding token may be among them.
        choices = min(count + 1, size)
        rows = ops.reshape(logits, (-1, size))
        best_logits, best_ids = top_k_in_blocks(rows, choices)
        normalizer = log_normalizer(rows, *top_one(best_logits, best_ids))
        if processes:
            for process in processes:
                logits = process(logits, hypotheses.ids, index[:, None, None])
            rows = ops.reshape(logits, (-1, size))
            best_logits, best_ids = top_k_in_blocks(rows, choices)
        is_token = best_ids != pad_id
        is_asked = ops.cumsum(ops.cast(is_token, "int32"), axis=-1) <= count
        best_logits = ops.where(is_token & is_asked, best_logits, -np.inf)
        tokens = NextTokens(
            best_logits=ops.reshape(best_logits, (-1, num_hypotheses, choices)),
            best_ids=ops.reshape(best_ids, (-1, num_hypotheses, choices)),
            normalizer=ops.reshape(normalizer, (-1, num_hypotheses, 1)),
            logits=logits,
        )
        return tokens, cache

    return next_tokens
