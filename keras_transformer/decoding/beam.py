"""Beam search: the best hypotheses, extended in parallel; and length penalties."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_transformer.checks import check_positive_integers, is_finite_number
from keras_transformer.decoding.config import ConfigObject
from keras_transformer.decoding.processors import Processor
from keras_transformer.decoding.search import Hypotheses, Search, is_one_of
from keras_transformer.kernels.selection import take_rows, top_k
from keras_transformer.layers.cache import inherit_lineage, write_position


class LengthPenalty(ConfigObject):
    """Base class of length penalties: a divisor of log-probabilities for every length.

    Args:
        exponent: The larger it is, the longer the results. 0 leaves log-probabilities
            unchanged.

    Raises:
        ValueError: If `exponent` is not a finite number.
    """

    def __init__(self, exponent: float):
        if not is_finite_number(exponent):
            raise ValueError(
                "`exponent` of a length penalty must be a finite number. "
                f"Received: exponent={exponent!r}."
            )
        self.exponent = float(exponent)

    def divisors(self, max_length: int):
        """Returns the divisors of lengths 1 to `max_length`, a float32 array.

        Lengths count the end token.
        """
        raise NotImplementedError


@keras.saving.register_keras_serializable(package="keras_transformer")
class WuLengthPenalty(LengthPenalty):
    """Divides by `((5 + length) / 6) ** exponent`.

    Args:
        exponent: The larger, the longer the sequences; 0 leaves scores as they are.

    Reference:
        [Wu et al., 2016](https://arxiv.org/abs/1609.08144), section 7
    """

    def divisors(self, max_length: int):
        lengths = np.arange(1, max_length + 1)
        return (((5 + lengths) / 6) ** self.exponent).astype("float32")


@keras.saving.register_keras_serializable(package="keras_transformer")
class PowerLengthPenalty(LengthPenalty):
    """Divides by `length ** exponent`; by default, by the length itself.

    This is the penalty of Marian, fairseq, CTranslate2 and Hugging Face's transformers,
    which call the exponent the length penalty.

    Args:
        exponent: The larger, the longer the sequences; 0 leaves scores as they are.
    """

    def __init__(self, exponent: float = 1.0):
        super().__init__(exponent)

    def divisors(self, max_length: int):
        lengths = np.arange(1.0, max_length + 1)
        return (lengths**self.exponent).astype("float32")


class Extensions(NamedTuple):
    """Live hypotheses with one more token, best first.

    Attributes:
        log_probabilities: Of all tokens, of shape `(batch, extensions)`.
        parents: Which live hypothesis was extended, of the same shape.
        token_ids: The token added to it, of the same shape.
        is_end: Whether the token ends the sequence, of the same shape.
    """

    log_probabilities: Any
    parents: Any
    token_ids: Any
    is_end: Any


@keras.saving.register_keras_serializable(package="keras_transformer")
class BeamSearch(Search):
    """Extends the best hypotheses in parallel and returns the best that end.

    At each step every live hypothesis is extended by every token, and the
    extensions are ranked by log-probability. Among the `beam_width` best,
    those that end with an end token are finished: frozen, and scored by

        log-probability / ((5 + length) / 6) ** length_penalty

    where `length` counts the end token. The `beam_width` best of the others stay live.
    Hypotheses still live after `max_length` tokens are scored by the same formula and
    compete with the finished ones; no other unfinished hypothesis does. The search of a
    sentence ends when `beam_width` finished hypotheses all score higher than the live
    ones would if they ended now, or when no live one can still reach the
    `num_hypotheses` best.

    A beam as wide as the space of all sequences of at most `max_length` tokens, with
    unfinished ones only at `max_length`, therefore returns the same as enumeration, and
    a beam of one the same as greedy search. If fewer hypotheses exist than requested,
    the rest contain only `pad_id`s and have a score of minus infinity.

    Ties are broken in this order: the hypothesis that ended earlier, or ended at all;
    the one that extends the better ranked live hypothesis; the one whose last token has
    the lower id.

    Args:
        beam_width: Number of live hypotheses of each sentence.
        length_penalty: Exponent of the formula: the larger it is, the longer the
            results. 0 leaves log-probabilities unchanged. Or a different penalty, such
            as `PowerLengthPenalty(1.0)`.
        num_hypotheses: Number of hypotheses to return, at most `beam_width`.
        processors: `Processor`s, applied to the logits in this order.
        end_ids: Id or ids that end a sequence, whichever comes first; by default
            the model's `end_id`.

    Raises:
        ValueError: If an argument is out of range.

    Reference:
        [Wu et al., 2016](https://arxiv.org/abs/1609.08144), section 7, for the
        length penalty
    """

    def __init__(
        self,
        beam_width: int,
        length_penalty: float | LengthPenalty = 0.6,
        num_hypotheses: int = 1,
        processors: Iterable[Processor] = (),
        end_ids: int | Iterable[int] | None = None,
    ):
        super().__init__(processors, end_ids)
        check_positive_integers(beam_width=beam_width, num_hypotheses=num_hypotheses)
        if not isinstance(length_penalty, LengthPenalty):
            if not is_finite_number(length_penalty):
                raise ValueError(
                    "`length_penalty` must be a finite number, or a `LengthPenalty`. "
                    f"Received: length_penalty={length_penalty!r}."
                )
            length_penalty = WuLengthPenalty(length_penalty)
        self.length_penalty = length_penalty
        if num_hypotheses > beam_width:
            raise ValueError(
                "`num_hypotheses` must be at most `beam_width`. "
                f"Received: num_hypotheses={num_hypotheses}, beam_width={beam_width}."
            )
        self.beam_width = self.num_slots = int(beam_width)
        self.num_hypotheses = int(num_hypotheses)
        # Of a hypothesis's extensions, only its ends can matter, and one for each place
        # in the next beam.
        self.num_candidates = self.beam_width + (
            len(self.end_ids) if self.end_ids else 1
        )

    def first_hypotheses(self, model, inputs, max_length: int):
        """As in `Search`. The scores of finished ones are over the length penalty."""
        live = self.first_live(model, inputs, max_length)
        none = ops.full_like(live.log_probabilities, -np.inf)
        # All would be equal, so only the first exists.
        first = ops.where(ops.arange(self.beam_width) == 0, 0.0, none)
        return live._replace(log_probabilities=first), Hypotheses(live.ids, none)

    def is_active(self, index, hypotheses):
        live, finished = hypotheses
        divisors = self.length_penalty.divisors(live.ids.shape[-1])
        # A log-probability is negative, so the largest divisor still to come gives the
        # best score, for either sign of the penalty.
        largest_divisors = np.maximum.accumulate(divisors[::-1])[::-1]
        largest_divisors = np.append(largest_divisors, divisors[-1])
        at = ops.where(index > 0, index, 0)
        best_possible = live.log_probabilities[:, 0] / ops.take(largest_divisors, at)
        to_beat = finished.scores[:, self.num_hypotheses - 1]
        return (index < live.limits) & (best_possible > to_beat)

    def grow(self, model, tokens, index, hypotheses):
        live, finished = hypotheses
        extensions = extend(live, tokens, self.end_ids or (model.end_id,))
        divisors = self.length_penalty.divisors(live.ids.shape[-1])
        divisor = ops.take(divisors, index)[:, None]
        finished = finish(finished, live, extensions, index, divisor)
        live = survive(live, extensions, index)
        # The search of a sentence ends when all finished hypotheses are better.
        to_beat = ops.min(finished.scores, axis=1, keepdims=True)
        is_active = live.log_probabilities[:, :1] / divisor > to_beat
        left = ops.where(is_active, live.log_probabilities, -np.inf)
        return live._replace(log_probabilities=left), finished

    def best(self, hypotheses):
        live, finished = hypotheses
        divisors = self.length_penalty.divisors(live.ids.shape[-1])
        last = ops.where(live.limits > 0, live.limits - 1, 0)
        divisor = ops.take(divisors, last)[:, None]
        unfinished = Hypotheses(live.ids, live.log_probabilities / divisor)
        return best_of(finished, unfinished, self.num_hypotheses)


def extend(live, tokens, end_ids):
    """Ranks the live hypotheses with one more of the `NextTokens`.

    Returns `Extensions`, up to `1 + len(end_ids)` times as many as hypotheses: if all
    but `beam_width` of them end, every place of the beam still gets one.
    """
    beam_width, choices = tokens.best_logits.shape[1:]
    gains = tokens.best_logits - tokens.normalizer
    extended = live.log_probabilities[..., None] + gains
    extended = ops.reshape(extended, (-1, beam_width * choices))
    count = beam_width * min(choices, 1 + len(end_ids))
    log_probabilities, places = top_k(extended, count)
    token_ids = ops.reshape(tokens.best_ids, (-1, beam_width * choices))
    parents, token_ids = places // choices, take_rows(token_ids, places)
    is_end = is_one_of(token_ids, end_ids)
    return Extensions(log_probabilities, parents, token_ids, is_end)


def finish(finished, live, extensions, index, divisor):
    """Adds the best extensions, if they end, to the finished hypotheses."""
    width = live.log_probabilities.shape[1]
    is_best = ops.arange(extensions.log_probabilities.shape[1]) < width
    scores = ops.where(
        extensions.is_end & is_best, extensions.log_probabilities / divisor, -np.inf
    )
    ids = take_rows(live.ids, extensions.parents)
    ids = write_position(ids, index, extensions.token_ids)
    return best_of(finished, Hypotheses(ids, scores), width)


def survive(live, extensions, index):
    """Replaces the live hypotheses by the best extensions that do not end."""
    width = live.log_probabilities.shape[1]
    growing = ops.where(extensions.is_end, -np.inf, extensions.log_probabilities)
    log_probabilities, places = top_k(growing, width)
    parents = take_rows(extensions.parents, places)
    token_ids = take_rows(extensions.token_ids, places)
    return live._replace(
        token_ids=token_ids,
        ids=write_position(take_rows(live.ids, parents), index, token_ids),
        lineage=inherit_lineage(live.lineage, parents, index),
        log_probabilities=log_probabilities,
    )


def best_of(some, others, count: int):
    """Merges finished hypotheses and keeps the best; `some` win ties."""
    ids = ops.concatenate([some.ids, others.ids], axis=1)
    scores = ops.concatenate([some.scores, others.scores], axis=1)
    scores, places = top_k(scores, count)
    return Hypotheses(take_rows(ids, places), scores)
