"""Hypotheses that grow symbol by symbol and never meet."""

from typing import NamedTuple

import numpy as np
from keras import ops

from keras_transformer.decoding.cache import own_lineage, write_position
from keras_transformer.decoding.gather import take_rows
from keras_transformer.decoding.next_symbols import stepper
from keras_transformer.decoding.search import Hypotheses, Search, batch_size_of


class GrowingHypotheses(NamedTuple):
    """The state of the loop, in which a hypothesis keeps its slot.

    Attributes:
        token_ids: The last symbol, of shape `(batch, hypotheses)`.
        ids: All symbols so far, of shape `(batch, hypotheses, max_length)`.
        scores: Log-probability so far, of shape `(batch, hypotheses)`.
        ended: Whether nothing follows, of shape `(batch, hypotheses)`.
    """

    token_ids: object
    ids: object
    scores: object
    ended: object


class IndependentSearch(Search):
    """Base of searches that settle on one symbol after the other.

    Subclasses say on which with `chooser`. A hypothesis for which no symbol is
    allowed any more stops there, with a score of minus infinity.

    Args:
        num_hypotheses: Hypotheses of each sentence.
        processors: Sequence of `Processor`, applied in this order.
    """

    #: How many of the best symbols `chooser` wants to see.
    num_candidates = 1

    def __init__(self, num_hypotheses: int = 1, processors=()):
        super().__init__(processors)
        if not isinstance(num_hypotheses, int) or num_hypotheses < 1:
            raise ValueError(
                "`num_hypotheses` must be a positive integer. "
                f"Received: num_hypotheses={num_hypotheses}."
            )
        self.num_hypotheses = num_hypotheses

    def chooser(self, model, inputs, max_length):
        """Prepares the choice of symbols, before the loop begins.

        Returns:
            A function of `(symbols, index)`, `NextSymbols` and their scalar
            position, that returns int32 ids and their float32 logits, both of
            shape `(batch, hypotheses)`.
        """
        raise NotImplementedError

    def search(self, model, inputs, max_length):
        shape = (batch_size_of(inputs), self.num_hypotheses)
        memory, cache = model.start(inputs, self.num_hypotheses, max_length)
        step = stepper(model, inputs, memory, self.processors, self.num_candidates)
        choose = self.chooser(model, inputs, max_length)
        lineage = own_lineage(*shape, max_length)

        def unfinished(index, state, cache):
            return (index < max_length) & ~ops.all(state.ended)

        def grow(index, state, cache):
            symbols, cache = step(state.token_ids, state.ids, lineage, index, cache)
            chosen, logits = choose(symbols, index)
            gains = logits - symbols.normalizer[..., 0]
            scores = ops.where(state.ended, state.scores, state.scores + gains)
            ended = state.ended | (scores == -np.inf)
            token_ids = ops.where(ended, model.pad_id, chosen)
            ids = write_position(state.ids, index, token_ids)
            ended = ended | (token_ids == model.end_id)
            return index + 1, GrowingHypotheses(token_ids, ids, scores, ended), cache

        state = GrowingHypotheses(
            token_ids=ops.full(shape, model.start_id, dtype="int32"),
            ids=ops.full((*shape, max_length), model.pad_id, dtype="int32"),
            scores=ops.zeros(shape, dtype="float32"),
            ended=ops.zeros(shape, dtype="bool"),
        )
        index = ops.convert_to_tensor(0, dtype="int32")
        _, state, _ = ops.while_loop(unfinished, grow, (index, state, cache))
        scores, order = ops.top_k(state.scores, self.num_hypotheses)
        return Hypotheses(take_rows(state.ids, order), scores)
