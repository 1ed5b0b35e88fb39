"""Hypotheses that grow token by token, independently of each other."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from keras_transformer.checks import check_positive_integers
from keras_transformer.decoding.cached_model import batch_size_of
from keras_transformer.decoding.processors import Processor
from keras_transformer.decoding.search import Hypotheses, Search
from keras_transformer.decoding.stop_strings import StopStrings
from keras_transformer.kernels.selection import take_rows, top_k
from keras_transformer.layers.cache import own_lineage, write_position


class GrowingHypotheses(NamedTuple):
    """The state of the loop, in which a hypothesis keeps its slot.

    Attributes:
        token_ids: The last token, of shape `(batch, hypotheses)`.
        ids: All tokens so far, of shape `(batch, hypotheses, max_length)`.
        lineage: The slots that wrote them into the cache, of the shape of `ids`.
        random_numbers: The random numbers of all steps, a nested structure of
            tensors with the batch first.
        stop_states: States of the search's `StopStrings`, of shape
            `(batch, hypotheses)`, or ().
        scores: Log-probability so far, of shape `(batch, hypotheses)`.
        ended: Whether nothing follows, of shape `(batch, hypotheses)`.
    """

    token_ids: Any
    ids: Any
    lineage: Any
    random_numbers: Any
    stop_states: Any
    scores: Any
    ended: Any


class IndependentSearch(Search):
    """Base of searches that choose one token after the other.

    Subclasses offer `choose`. A hypothesis stops where no token is allowed any
    more, with a score of minus infinity.

    Args:
        num_hypotheses: Hypotheses of each sentence.
        processors: Sequence of `Processor`, applied in this order.
        end_ids: As in `Search`.
        stop_strings: As in `Search`.
    """

    num_candidates = 1

    def __init__(
        self,
        num_hypotheses: int = 1,
        processors: Iterable[Processor] = (),
        end_ids: int | Iterable[int] | None = None,
        stop_strings: StopStrings | None = None,
    ):
        super().__init__(processors, end_ids, stop_strings)
        check_positive_integers(num_hypotheses=num_hypotheses)
        self.num_hypotheses = int(num_hypotheses)

    @property
    def num_slots(self):
        return self.num_hypotheses

    def random_numbers(self, model, inputs, max_length: int):
        """Returns the random numbers of all steps, drawn before the first.

        A nested structure of tensors with the batch first, empty if `choose`
        needs none.
        """
        return ()

    def choose(self, model, tokens, index, random_numbers):
        """Chooses a token for every hypothesis.

        Args:
            model: The model that is searched.
            tokens: `NextTokens`.
            index: Their positions, int32 of shape `(batch,)`.
            random_numbers: As the method of that name returned them.

        Returns:
            Int32 ids and their float32 logits, of shape `(batch, hypotheses)`.
        """
        raise NotImplementedError

    def first_hypotheses(self, model, inputs, max_length: int):
        shape = (batch_size_of(inputs), self.num_hypotheses)
        return GrowingHypotheses(
            token_ids=ops.full(shape, model.start_id, dtype="int32"),
            ids=ops.full((*shape, max_length), model.pad_id, dtype="int32"),
            lineage=own_lineage(*shape, max_length),
            random_numbers=self.random_numbers(model, inputs, max_length),
            stop_states=model.first_stop_states(shape),
            scores=ops.zeros(shape, dtype="float32"),
            ended=ops.zeros(shape, dtype="bool"),
        )

    def is_active(self, index, hypotheses):
        max_length = hypotheses.ids.shape[-1]
        return (index < max_length) & ~ops.all(hypotheses.ended, axis=1)

    def grow(self, model, next_tokens, index, hypotheses, cache):
        old = hypotheses
        tokens, cache = next_tokens(old.token_ids, old.ids, old.lineage, index, cache)
        chosen, logits = self.choose(model, tokens, index, old.random_numbers)
        gains = logits - tokens.normalizer[..., 0]
        scores = ops.where(old.ended, old.scores, old.scores + gains)
        ended = old.ended | (scores == -np.inf)
        token_ids = ops.where(ended, model.pad_id, chosen)
        stop_states, is_end = model.read(old.stop_states, token_ids)
        grown = old._replace(
            token_ids=token_ids,
            ids=write_position(old.ids, index, token_ids),
            stop_states=stop_states,
            scores=scores,
            ended=ended | is_end,
        )
        return grown, cache

    def best(self, hypotheses):
        scores, order = top_k(hypotheses.scores, self.num_hypotheses)
        return Hypotheses(take_rows(hypotheses.ids, order), scores)
