"""Greedy search: the likeliest token at every step."""

import keras
import numpy as np
from keras import ops

from keras_transformer.decoding.search import Hypotheses, Search, is_one_of
from keras_transformer.kernels.selection import take_rows, top_k
from keras_transformer.layers.cache import write_position


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
        live = self.first_live(model, inputs, max_length)
        live = live._replace(
            random_numbers=self.random_numbers(model, inputs, max_length),
            ended=ops.zeros_like(live.token_ids, dtype="bool"),
        )
        return live, ()  # ended hypotheses stay where they are

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
