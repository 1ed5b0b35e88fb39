"""Greedy search: the likeliest token at every step."""

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_transformer.decoding.search import Hypotheses, Search, is_one_of
from keras_transformer.kernels.selection import take_rows, top_k
from keras_transformer.layers.cache import write_position


class GrowingHypotheses(NamedTuple):
    """Hypotheses that grow token by token, each in its own slot.

    Attributes:
        token_ids: The last token, of shape `(batch, hypotheses)`.
        ids: All tokens so far, of shape `(batch, hypotheses, max_length)`.
        lineage: The slots that wrote them into the cache, of the shape of `ids`.
        random_numbers: The random numbers of all steps, float32 of the shape of `ids`;
            () if nothing is drawn.
        log_probabilities: Of all tokens so far, of shape `(batch, hypotheses)`.
        ended: Whether nothing follows, of shape `(batch, hypotheses)`.
        limits: Most tokens, int32 of shape `(batch,)`.
    """

    token_ids: Any
    ids: Any
    lineage: Any
    random_numbers: Any
    log_probabilities: Any
    ended: Any
    limits: Any


@keras.saving.register_keras_serializable(package="keras_transformer")
class GreedySearch(Search):
    """Takes the likeliest token at every step.

    Ties go to the token with the lowest id. The score is the log-probability of the
    sequence, including the end token, without a length penalty.

    Args:
        processors: Sequence of `Processor`, applied in this order.
        end_ids: Id or ids that end a sequence, whichever comes first; by default
            the model's `end_id`.

    Example:
        >>> kt.decoding.GreedySearch([kt.decoding.BannedIds([1])]).processors
        (BannedIds(ids=(1,)),)
    """

    num_slots = num_hypotheses = num_candidates = 1

    def first_hypotheses(self, model, inputs, max_length: int):
        num_sentences = ops.shape(keras.tree.flatten(inputs)[0])[0]
        shape = (num_sentences, self.num_hypotheses)
        own_slots = ops.arange(self.num_hypotheses, dtype="int32")[:, None]
        live = GrowingHypotheses(
            token_ids=ops.full(shape, model.start_id, dtype="int32"),
            ids=ops.full((*shape, max_length), model.pad_id, dtype="int32"),
            lineage=ops.broadcast_to(own_slots, (*shape, max_length)),
            random_numbers=self.random_numbers(model, inputs, max_length),
            log_probabilities=ops.zeros(shape, dtype="float32"),
            ended=ops.zeros(shape, dtype="bool"),
            limits=ops.full(shape[:1], max_length, dtype="int32"),
        )
        return live, ()  # those that have ended stay where they are

    def is_active(self, index, hypotheses):
        live, _ = hypotheses
        return (index < live.limits) & ~ops.all(live.ended, axis=1)

    def grow(self, model, tokens, index, hypotheses):
        old, _ = hypotheses
        chosen, logits = self.choose(tokens, index, old.random_numbers, model.pad_id)
        gains = logits - tokens.normalizer[..., 0]
        gains = ops.where(old.ended, 0.0, gains)
        log_probabilities = old.log_probabilities + gains
        ended = old.ended | ~(log_probabilities > -np.inf)  # NaN, too
        token_ids = ops.where(ended, model.pad_id, chosen)
        grown = old._replace(
            token_ids=token_ids,
            ids=write_position(old.ids, index, token_ids),
            log_probabilities=log_probabilities,
            ended=ended | is_one_of(token_ids, self.end_ids or (model.end_id,)),
        )
        return grown, ()

    def best(self, hypotheses):
        live, _ = hypotheses
        scores, order = top_k(live.log_probabilities, self.num_hypotheses)
        return Hypotheses(take_rows(live.ids, order), scores)

    def choose(self, tokens, index, random_numbers, pad_id: int):
        """Returns a token for every hypothesis, and its logit."""
        logits, ids = tokens.likeliest()
        return ids, logits

    def random_numbers(self, model, inputs, max_length: int):
        """Returns the random numbers of all steps; () if nothing is drawn."""
        return ()
