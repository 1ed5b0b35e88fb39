"""The best sequences that a beam of hypotheses finds."""

from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_transformer.decoding.cache import (
    inherit_lineage,
    own_lineage,
    take_rows,
    write_position,
)
from keras_transformer.decoding.search import (
    Hypotheses,
    Search,
    batch_size_of,
    step_with,
)


class LiveHypotheses(NamedTuple):
    """Hypotheses that grow, the best first.

    Attributes:
        token_ids: The last symbol, of shape `(batch, beam_width)`.
        ids: All symbols so far, of shape `(batch, beam_width, max_length)`.
        lineage: Who wrote them into the cache, of the shape of `ids`.
        scores: Log-probability so far, of shape `(batch, beam_width)`; minus
            infinity where there is no hypothesis.
    """

    token_ids: object
    ids: object
    lineage: object
    scores: object


class FinishedHypotheses(NamedTuple):
    """Hypotheses that have ended and change no more, the best first.

    Attributes:
        ids: All symbols, of shape `(batch, beam_width, max_length)`.
        scores: Log-probability over length penalty, of shape
            `(batch, beam_width)`; minus infinity where none has ended yet.
    """

    ids: object
    scores: object


@keras.saving.register_keras_serializable(package="keras_transformer")
class BeamSearch(Search):
    """Grows the best hypotheses side by side and returns the best that end.

    At each step every live hypothesis is extended by every symbol, and the
    extensions are ranked by log-probability. Among the `beam_width` best,
    those that end with the end symbol are finished: frozen, and scored by

        log-probability / ((5 + length) / 6) ** length_penalty

    where `length` counts the end symbol. The `beam_width` best of those that
    do not end live on. What is still alive after `max_length` symbols is
    scored by the same formula and competes with what has finished; nothing
    else that is unfinished does. The search of a sentence ends when
    `beam_width` hypotheses have finished, or when no live one can still reach
    the `num_hypotheses` best.

    So a beam as wide as the space returns what enumeration of all sequences
    of at most `max_length` symbols returns, unfinished ones allowed at
    `max_length` only, and a beam of one returns what greedy search returns.
    Where fewer hypotheses exist than asked for, the rest has ids of `pad_id`
    alone and a score of minus infinity.

    Equal scores are ordered: a hypothesis that ended earlier stays ahead; of
    the same step, the one that grew from the better-placed live hypothesis is
    ahead; then the one whose last symbol has the lower id.

    Args:
        beam_width: Number of live hypotheses of each sentence.
        length_penalty: Exponent; the larger it is, the longer the results. 0
            leaves log-probabilities as they are.
        num_hypotheses: Number of hypotheses to return, at most `beam_width`.
        processors: `Processor`s, applied to the logits in this order.

    Raises:
        ValueError: If an argument is out of range.

    Reference:
        [Wu et al., 2016](https://arxiv.org/abs/1609.08144), section 7, for the
        length penalty; [Kasai et al., 2022](https://arxiv.org/abs/2204.05424)
        for the end of the search, theirs with a patience of 1
    """

    def __init__(
        self,
        beam_width: int,
        length_penalty: float = 0.6,
        num_hypotheses: int = 1,
        processors=(),
    ):
        super().__init__(processors)
        if not isinstance(beam_width, int) or beam_width < 1:
            raise ValueError(
                "`beam_width` must be a positive integer. "
                f"Received: beam_width={beam_width}."
            )
        if not np.isfinite(length_penalty):
            raise ValueError(
                "`length_penalty` must be a finite number. "
                f"Received: length_penalty={length_penalty}."
            )
        if not isinstance(num_hypotheses, int) or not 1 <= num_hypotheses <= beam_width:
            raise ValueError(
                "`num_hypotheses` must be an integer from 1 to `beam_width`. "
                f"Received: num_hypotheses={num_hypotheses}, beam_width={beam_width}."
            )
        self.beam_width = beam_width
        self.length_penalty = length_penalty
        self.num_hypotheses = num_hypotheses

    def search(self, model, inputs, max_length):
        width = self.beam_width
        batch_size = batch_size_of(inputs)
        memory, cache = model.start(inputs, width, max_length)
        processors = [one.bind(model, inputs) for one in self.processors]
        step = step_with(model, memory, processors)
        divisors = length_divisors(max_length, self.length_penalty)
        # The largest divisor of any length still ahead leaves the most of a
        # negative score, whatever the sign of the penalty.
        largest_divisors = np.maximum.accumulate(divisors[::-1])[::-1]
        largest_divisors = np.append(largest_divisors, divisors[-1])

        def undecided(index, live, finished, cache):
            within_reach = live.scores[:, 0] / ops.take(largest_divisors, index)
            to_beat = finished.scores[:, self.num_hypotheses - 1]
            return (index < max_length) & ops.any(within_reach > to_beat)

        def grow(index, live, finished, cache):
            logits, normalizer, cache = step(
                live.token_ids, live.ids, live.lineage, cache, index
            )
            extensions = best_extensions(logits, normalizer, live.scores, model.pad_id)
            ended = extensions.token_ids == model.end_id
            finished = finish(finished, live, extensions, ended, index)
            live = survive(finished, live, extensions, ended, index)
            return index + 1, live, finished, cache

        def finish(finished, live, extensions, ended, index):
            divisor = ops.take(divisors, index)
            scores = ops.where(ended, extensions.scores / divisor, -np.inf)
            ids = take_rows(live.ids, extensions.parents[:, :width])
            ids = write_position(ids, index, extensions.token_ids[:, :width])
            ending = FinishedHypotheses(ids, scores[:, :width])
            return best_of(finished, ending, width)

        def survive(finished, live, extensions, ended, index):
            scores = ops.where(ended, -np.inf, extensions.scores)
            scores, places = ops.top_k(scores, width)
            parents = take_rows(extensions.parents, places)
            token_ids = take_rows(extensions.token_ids, places)
            ids = write_position(take_rows(live.ids, parents), index, token_ids)
            lineage = inherit_lineage(live.lineage, parents, index)
            # Nothing lives on where the beam is full of finished hypotheses.
            is_open = finished.scores[:, -1:] == -np.inf
            scores = ops.where(is_open, scores, -np.inf)
            return LiveHypotheses(token_ids, ids, lineage, scores)

        shape = (batch_size, width)
        nothing = ops.full((*shape, max_length), model.pad_id, dtype="int32")
        no_scores = ops.full(shape, -np.inf, dtype="float32")
        live = LiveHypotheses(
            token_ids=ops.full(shape, model.start_id, dtype="int32"),
            ids=nothing,
            lineage=own_lineage(*shape, max_length),
            # All begin alike, so one of them stands for all.
            scores=ops.where(ops.arange(width) == 0, 0.0, no_scores),
        )
        finished = FinishedHypotheses(nothing, no_scores)
        index = ops.convert_to_tensor(0, dtype="int32")
        _, live, finished, _ = ops.while_loop(
            undecided, grow, (index, live, finished, cache)
        )
        unfinished = FinishedHypotheses(live.ids, live.scores / divisors[-1])
        return Hypotheses(*best_of(finished, unfinished, self.num_hypotheses))

    def get_config(self):
        return {
            "beam_width": self.beam_width,
            "length_penalty": self.length_penalty,
            "num_hypotheses": self.num_hypotheses,
            **super().get_config(),
        }


class Extensions(NamedTuple):
    """Live hypotheses with one more symbol, the best first.

    Attributes:
        scores: Log-probabilities, of shape `(batch, extensions)`.
        parents: Which live hypothesis was extended, of the same shape.
        token_ids: The symbol that it was extended by, of the same shape.
    """

    scores: object
    parents: object
    token_ids: object


def best_extensions(logits, normalizer, live_scores, pad_id: int):
    """Ranks live hypotheses with one more symbol.

    Args:
        logits: Float32 tensor of shape `(batch, beam_width, vocabulary)`.
        normalizer: What to subtract from `logits` to have log-probabilities,
            of shape `(batch, beam_width, 1)`.
        live_scores: Float32 tensor of shape `(batch, beam_width)`.
        pad_id: The symbol that is never produced.

    Returns:
        `Extensions`: twice as many as there are live hypotheses, so that one
        remains for each where all hypotheses end.
    """
    beam_width, vocabulary_size = logits.shape[1:]
    # Of one hypothesis no more than these can matter: the padding and the end
    # symbol, and one for each place of the next beam.
    choices = min(beam_width + 2, vocabulary_size)
    logits, ids = ops.top_k(logits, choices)
    scores = live_scores[..., None] + (logits - normalizer)
    scores = ops.where(ids == pad_id, -np.inf, scores)
    scores, places = ops.top_k(
        ops.reshape(scores, (-1, beam_width * choices)),
        beam_width * min(choices, 2),
    )
    ids = ops.reshape(ids, (-1, beam_width * choices))
    return Extensions(scores, places // choices, take_rows(ids, places))


def best_of(some, others, count: int):
    """Merges finished hypotheses and keeps the best; `some` win ties."""
    ids = ops.concatenate([some.ids, others.ids], axis=1)
    scores = ops.concatenate([some.scores, others.scores], axis=1)
    scores, places = ops.top_k(scores, count)
    return FinishedHypotheses(take_rows(ids, places), scores)


def length_divisors(max_length: int, length_penalty: float):
    """Returns what divides the log-probability of lengths 1 to `max_length`."""
    lengths = np.arange(1, max_length + 1)
    return (((5 + lengths) / 6) ** length_penalty).astype("float32")
