"""Hypotheses that grow symbol by symbol and never meet."""

from typing import NamedTuple

import numpy as np
from keras import ops

from keras_transformer.decoding.cache import own_lineage, take_rows, write_position
from keras_transformer.decoding.processors import forbid, symbols
from keras_transformer.decoding.search import (
    Hypotheses,
    Search,
    batch_size_of,
    step_with,
)


class GrowingHypotheses(NamedTuple):
    """The state of the loop, one entry for each sentence and hypothesis.

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
    """Base of searches that choose one symbol after the other for good.

    Subclasses say which symbol with `choose`. The score is the
    log-probability of the sequence, end symbol included; no length penalty.
    A hypothesis that is left without any allowed symbol stops there, with a
    score of minus infinity.

    Args:
        num_hypotheses: Hypotheses of each sentence.
        processors: `Processor`s, applied to the logits in this order.
    """

    def __init__(self, num_hypotheses: int = 1, processors=()):
        super().__init__(processors)
        if not isinstance(num_hypotheses, int) or num_hypotheses < 1:
            raise ValueError(
                "`num_hypotheses` must be a positive integer. "
                f"Received: num_hypotheses={num_hypotheses}."
            )
        self.num_hypotheses = num_hypotheses

    def prepare(self, batch_size, max_length):
        """Makes what `choose` needs at every step, before the loop begins."""
        return None

    def choose(self, logits, index, prepared):
        """Chooses the next symbol of each hypothesis.

        Args:
            logits: Float32 tensor of shape `(batch, hypotheses, vocabulary)`;
                minus infinity where a symbol is forbidden.
            index: Scalar position of the symbol to choose.
            prepared: What `prepare` returned.

        Returns:
            Int32 ids and their float32 logits, of shape `(batch, hypotheses)`.
        """
        raise NotImplementedError

    def search(self, model, inputs, max_length):
        batch_size = batch_size_of(inputs)
        shape = (batch_size, self.num_hypotheses)
        memory, cache = model.start(inputs, self.num_hypotheses, max_length)
        lineage = own_lineage(*shape, max_length)
        prepared = self.prepare(batch_size, max_length)
        processors = [one.bind(model, inputs) for one in self.processors]
        step = step_with(model, memory, processors)

        def unfinished(index, state, cache):
            return (index < max_length) & ~ops.all(state.ended)

        def grow(index, state, cache):
            logits, normalizer, cache = step(
                state.token_ids, state.ids, lineage, cache, index
            )
            logits = forbid(logits, symbols(logits) == model.pad_id)
            chosen, chosen_logits = self.choose(logits, index, prepared)
            gains = chosen_logits - normalizer[..., 0]
            ended = state.ended | (gains == -np.inf)
            token_ids = ops.where(ended, model.pad_id, chosen)
            scores = state.scores + ops.where(state.ended, 0.0, gains)
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
