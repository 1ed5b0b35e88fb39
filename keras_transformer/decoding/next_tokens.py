"""From the logits of a step to the possible next tokens."""

from typing import Any, NamedTuple

import numpy as np
from keras import ops

from keras_transformer.kernels.crossentropy import log_normalizer
from keras_transformer.kernels.selection import top_k_in_blocks, top_one


class NextTokens(NamedTuple):
    """The possible next tokens of every hypothesis.

    Attributes:
        best_logits: The largest of `logits` in descending order, of shape
            `(batch, hypotheses, choices)`. One of them is minus infinity: the padding
            token's if it is among them, else the last.
        best_ids: Their tokens, int32, of the same shape.
        normalizer: Subtract this from logits to get log-probabilities, of shape
            `(batch, hypotheses, 1)`. It is computed from the model's own logits: a
            forbidden token does not change the scores of the others.
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


def next_tokens(logits, ids, index, processes, count: int, pad_id: int) -> NextTokens:
    """Applies processors to logits and finds the `count` best tokens, or fewer.

    `logits`, `(batch, hypotheses, vocabulary)`, are what a step returned; `ids`,
    `(batch, hypotheses, max_length)`, the tokens so far; `index`, `(batch,)`, the
    positions of the next ones; `processes` what each `Processor.bind` returned.
    `pad_id` is never produced.
    """
    logits = ops.cast(logits, "float32")
    hypotheses, size = logits.shape[1:]
    # One more than asked for: the padding token may be among them.
    choices = min(count + 1, size)
    rows = ops.reshape(logits, (-1, size))
    best_logits, best_ids = top_k_in_blocks(rows, choices)
    normalizer = log_normalizer(rows, *top_one(best_logits, best_ids))
    if processes:
        for process in processes:
            logits = process(logits, ids, index[:, None, None])
        rows = ops.reshape(logits, (-1, size))
        best_logits, best_ids = top_k_in_blocks(rows, choices)
    is_token = best_ids != pad_id
    is_asked = ops.cumsum(ops.cast(is_token, "int32"), axis=-1) <= count
    best_logits = ops.where(is_token & is_asked, best_logits, -np.inf)
    return NextTokens(
        best_logits=ops.reshape(best_logits, (-1, hypotheses, choices)),
        best_ids=ops.reshape(best_ids, (-1, hypotheses, choices)),
        normalizer=ops.reshape(normalizer, (-1, hypotheses, 1)),
        logits=logits,
    )
