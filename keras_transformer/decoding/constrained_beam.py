"""Beam search for translations that contain given phrases."""

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_transformer.decoding.beam import (
    BeamSearch,
    Extensions,
    LengthPenalty,
    finish,
    survive,
)
from keras_transformer.decoding.processors import Processor
from keras_transformer.decoding.search import is_one_of
from keras_transformer.kernels.selection import take_rows, top_k

# Log-probability of a missing token, where there are more banks than places. With less
# a narrow beam puts phrases off, and with more it begins translations with them.
MISSING_TOKEN = -5.0


class Progress(NamedTuple):
    """How much sequences of tokens contain of the required phrases.

    Attributes:
        met: Whether a phrase has occurred and was not continued, of shape
            `(..., phrases)`.
        matched: Whether the last `n + 1` tokens are the first tokens of a phrase that
            is not met, of shape `(..., phrases, length)`, at index `n`.
    """

    met: Any
    matched: Any


@keras.saving.register_keras_serializable(package="keras_transformer")
class ConstrainedBeamSearch(BeamSearch):
    """Finds the best hypotheses that contain required phrases, at any beam width.

    It is a `BeamSearch` with these rules:

    - A hypothesis may end once it contains every phrase of its sentence, as often as
      required. Occurrences of the same phrase do not overlap; different phrases may.
    - A hypothesis is extended by the likeliest tokens, and by the next token of every
      missing phrase.
    - Hypotheses that lack the same number of phrase tokens form a bank and compete. The
      best of each bank stay live, then the second best of each, until the beam is full.
      If there are more banks than places, each missing token counts as a
      log-probability of -5.
    - A hypothesis must leave room for its missing phrases, so that it contains them all
      when it reaches `max_length`.

    Without required phrases, the result is the same as with `BeamSearch`. The phrases
    are guaranteed unless a processor such as `MaximumLength` forbids their tokens: then
    the score is minus infinity, and `model.generate` warns. A beam about as wide as the
    number of phrase tokens places them best.

    `model.generate` passes the phrases to its compiled program as an input, so the same
    program serves any phrases.

    Args:
        beam_width: As in `BeamSearch`.
        required: For each sentence its phrases, each a sequence of ids. In traced
            functions, an integer tensor of shape `(batch, phrases, length)`, padded
            with -1. None: nothing is required.
        length_penalty: As in `BeamSearch`.
        num_hypotheses: As in `BeamSearch`.
        processors: As in `BeamSearch`.
        end_ids: As in `BeamSearch`.
        continuation_ids: Ids of subwords that continue a word. A phrase followed by one
            does not count.

    Raises:
        ValueError: If an argument is out of range; when called by `model.generate`, if
            the numbers of lists of phrases and sentences differ, or if phrases are
            longer than `max_length`, or contain padding or a token that ends a
            sequence.

    Example:
        >>> search = kt.decoding.ConstrainedBeamSearch(4, required=[[[7, 5], [11]], []])
        >>> search.required
        (((7, 5), (11,)), ())

    Reference:
        [Post and Vilar, 2018](https://arxiv.org/abs/1804.06609);
        [Hu et al., 2019](https://aclanthology.org/N19-1090) for banks as tensors
    """

    def __init__(
        self,
        beam_width: int,
        required: Sequence[Sequence[Sequence[int]]] | None = None,
        length_penalty: float | LengthPenalty = 0.6,
        num_hypotheses: int = 1,
        processors: Iterable[Processor] = (),
        end_ids: int | Iterable[int] | None = None,
        continuation_ids: Iterable[int] = (),
    ):
        super().__init__(
            beam_width, length_penalty, num_hypotheses, processors, end_ids
        )
        is_table = ops.is_tensor(required) or required is None
        self.required = required if is_table else _to_tuples(required)
        self.continuation_ids = tuple(continuation_ids)

    def first_hypotheses(self, model, inputs, max_length: int):
        live, finished = super().first_hypotheses(model, inputs, max_length)
        phrases = self._phrases(ops.shape(live.ids)[0])
        return live._replace(progress=phrases.first(self.beam_width)), finished

    def grow(self, model, tokens, index, hypotheses):
        live, finished = hypotheses
        width, end_ids = self.beam_width, self.end_ids or (model.end_id,)
        phrases = self._phrases(ops.shape(live.ids)[0])
        logits, token_ids = phrases.add_next(live.progress, tokens)
        needed = phrases.needed(phrases.advance(live.progress, token_ids))
        is_end = is_one_of(token_ids, end_ids)
        has_all = phrases.are_contained(live.progress)[..., None]
        room = (live.limits - index - 1)[:, None, None]
        is_allowed = ops.where(is_end, has_all, needed <= room)
        extended = live.log_probabilities[..., None] + (logits - tokens.normalizer)
        extended = ops.where(is_allowed, extended, -np.inf)

        choices = ops.shape(token_ids)[-1]
        flat = -1, width * choices
        token_ids, needed, is_end = (
            ops.reshape(x, flat) for x in (token_ids, needed, is_end)
        )

        def extensions(log_probabilities, places):
            parents, ids = places // choices, take_rows(token_ids, places)
            return Extensions(
                log_probabilities, parents, ids, take_rows(is_end, places)
            )

        num_best = tokens.best_ids.shape[-1]
        complete = ops.reshape(ops.where(has_all, extended, -np.inf), flat)
        ending = top_k(complete, width * min(num_best, 1 + len(end_ids)))
        divisors = self.length_penalty.divisors(live.ids.shape[-1])
        divisor = ops.take(divisors, index)[:, None]
        finished = finish(finished, live, extensions(*ending), index, divisor)

        extended = ops.where(is_end, -np.inf, ops.reshape(extended, flat))
        growing = extensions(*best_of_banks(extended, needed, width))
        progress = keras.tree.map_structure(
            lambda x: take_rows(x, growing.parents), live.progress
        )
        progress = phrases.advance(progress, growing.token_ids[..., None])
        progress = keras.tree.map_structure(lambda x: x[:, :, 0], progress)
        live = survive(live, growing, index)._replace(progress=progress)
        # The search of a sentence ends when all finished hypotheses are better than any
        # that could end now.
        to_beat = ops.min(finished.scores, axis=1, keepdims=True)
        could_end = phrases.are_contained(progress)
        best = ops.where(could_end, live.log_probabilities, -np.inf)
        best = ops.max(best, axis=1, keepdims=True) / divisor
        is_over = (to_beat > -np.inf) & (best <= to_beat)
        left = ops.where(is_over, -np.inf, live.log_probabilities)
        return live._replace(log_probabilities=left), finished

    def tables(self, model, inputs, max_length: int) -> dict:
        tables = super().tables(model, inputs, max_length)
        if self.required is None:
            return tables
        table = ops.convert_to_numpy(_table(self.required))
        num_sentences = len(keras.tree.flatten(inputs)[0])
        if len(table) != num_sentences:
            raise ValueError(
                "`required` must have a list of phrases for each sentence. "
                f"Received: {len(table)} lists for {num_sentences} sentences."
            )
        special_ids = model.pad_id, *(self.end_ids or (model.end_id,))
        is_special = (table >= 0) & np.isin(table, special_ids)
        if is_special.any():
            raise ValueError(
                "`required` must have neither padding nor what ends a sequence: no "
                f"phrase can be met with one. Received: {table[is_special][0]} in "
                f"required[{np.nonzero(is_special)[0][0]}]."
            )
        num_tokens = np.sum(table >= 0, axis=(1, 2))
        if (num_tokens > max_length).any():
            row = np.argmax(num_tokens)
            raise ValueError(
                f"`max_length` must be at least {num_tokens[row]}, the tokens of the "
                f"phrases in required[{row}]. Received: max_length={max_length}."
            )
        sizes = [4 ** max(1, math.ceil(math.log(x, 4))) for x in table.shape[1:]]
        missing = [
            (0, 0),
            *((0, n - m) for n, m in zip(sizes, table.shape[1:], strict=True)),
        ]
        tables["required"] = np.pad(table, missing, constant_values=-1)
        return tables

    def with_tables(self, tables: dict):
        search = super().with_tables(tables)
        if "required" in tables:
            search.required = tables["required"]
        return search

    def named_ids(self):
        yield from super().named_ids()
        yield self.continuation_ids
        if self.required is not None:
            yield ops.convert_to_numpy(_table(self.required)).clip(0).flatten()

    def get_config(self):
        config = super().get_config()
        if ops.is_tensor(self.required):  # without what pads phrases
            rows = ops.convert_to_numpy(self.required)
            config["required"] = [[x[x >= 0].tolist() for x in row] for row in rows]
        return config

    def _phrases(self, num_sentences):
        required = self.required
        if required is None:
            return Phrases(ops.full((num_sentences, 1, 1), -1, "int32"), ())
        return Phrases(ops.cast(_table(required), "int32"), self.continuation_ids)


class Phrases:
    """Follows the required phrases of each sentence, token by token.

    Args:
        table: Int32 tensor of shape `(batch, phrases, length)`, padded with -1.
        continuation_ids: As in `ConstrainedBeamSearch`.
    """

    def __init__(self, table, continuation_ids: tuple[int, ...]):
        self._table = table
        self._may_follow = np.ones(max(continuation_ids, default=0) + 2, "bool")
        self._may_follow[list(continuation_ids)] = False
        self._lengths = ops.sum(ops.cast(table >= 0, "int32"), axis=-1)
        _, num_phrases, length = ops.shape(table)
        self._counts = ops.arange(1, length + 1, dtype="int32")
        self._is_last = self._counts == self._lengths[..., None]
        # Of equal phrases, each waits for the ones before it.
        places = ops.arange(num_phrases, dtype="int32")
        self._is_later = places[:, None] > places
        is_equal = ops.all(table[:, :, None] == table[:, None], axis=-1)
        self._waits_for = is_equal & self._is_later

    def first(self, num_hypotheses: int):
        """Returns the `Progress` of hypotheses without tokens."""
        batch, phrases, length = ops.shape(self._table)
        shape = batch, num_hypotheses, phrases
        met = ops.broadcast_to(self._lengths[:, None] == 0, shape)
        return Progress(met, ops.zeros((*shape, length), "bool"))

    def advance(self, progress, token_ids):
        """Returns the `Progress` with one more token, for several tokens.

        From the `Progress` of hypotheses, `(batch, hypotheses, ...)`, and int32 ids
        `(batch, hypotheses, choices)`, it makes one of `(batch, hypotheses, choices,
        ...)`.
        """
        known = ops.clip(token_ids, 0, len(self._may_follow) - 1)
        may_follow = ops.take(self._may_follow, known)[..., None]
        pending = self._pending(progress)[:, :, None]
        met = progress.met[:, :, None] | (pending & may_follow)
        waits = ops.any(self._waits_for[:, None, None] & ~met[..., None, :], axis=-1)
        # What has been matched before a token, and nothing before the first.
        before = ops.pad(progress.matched[..., :-1], [(0, 0)] * 3 + [(1, 0)])
        may_begin = ~waits[..., None] & (self._counts == 1)
        is_token = self._table[:, None, None] == token_ids[..., None, None]
        matched = (before[:, :, None] | may_begin) & is_token
        return Progress(met, matched & ~met[..., None])

    def needed(self, progress):
        """Returns how many tokens are still missing, int32 of shape `(...)`.

        Only one of the phrases that have begun can be continued.
        """
        lengths = self._lengths
        while len(lengths.shape) < len(progress.met.shape):
            lengths = lengths[:, None]
        missing = ops.sum(ops.where(progress.met, 0, lengths), axis=-1)
        begun = ops.where(progress.matched, self._counts, 0)
        return missing - ops.max(begun, axis=(-2, -1))

    def are_contained(self, progress):
        """Returns which hypotheses have all phrases, of shape `(batch, hypotheses)`."""
        return ops.all(progress.met | self._pending(progress), axis=-1)

    def add_next(self, progress, tokens):
        """Returns the best logits and ids of a step, and of the phrases' tokens.

        A phrase that has begun has a next token, unless another has more tokens, as
        only one of them may go on. The next token of any other phrase is its first.
        """
        length = ops.max(ops.where(progress.matched, self._counts, 0), axis=-1)
        longest = ops.max(length, axis=-1, keepdims=True)
        length = ops.where(length == longest, length, 0)
        is_next = self._counts - 1 == length[..., None]
        ids = ops.where(is_next, self._table[:, None], -1)
        ids = ops.max(ids, axis=-1)  # -1 where the phrase is complete
        ids = ops.where(progress.met, -1, ids)
        is_known = (ids[..., None] == tokens.best_ids[:, :, None]) & (
            tokens.best_logits[:, :, None] > -np.inf
        )
        is_twin = (ids[..., None] == ids[:, :, None]) & self._is_later
        is_new = (ids >= 0) & ~ops.any(is_known, axis=-1) & ~ops.any(is_twin, axis=-1)
        ids = ops.where(ids < 0, 0, ids)
        hypotheses, size = tokens.logits.shape[1:]
        rows = ops.reshape(tokens.logits, (-1, size))
        shape = ops.shape(ids)
        logits = take_rows(rows, ops.reshape(ids, (-1, shape[-1])))
        logits = ops.reshape(logits, shape)
        logits = ops.where(is_new, logits, -np.inf)
        return (
            ops.concatenate([tokens.best_logits, logits], axis=-1),
            ops.concatenate([tokens.best_ids, ids], axis=-1),
        )

    def _pending(self, progress):
        """Tells which phrases the last token completed."""
        return ops.any(progress.matched & self._is_last[:, None], axis=-1)


def best_of_banks(log_probabilities, needed, count: int):
    """Finds the best of each bank, then the second best of each, and so on.

    The bank of each of the `log_probabilities`, `(batch, size)`, is how many tokens are
    missing: `needed`, an int32 tensor of the same shape. Returns `count`
    log-probabilities in descending order, and their places, both `(batch, count)`.
    """
    size = ops.shape(log_probabilities)[1]
    places = ops.arange(size, dtype="int32")
    value = log_probabilities + MISSING_TOKEN * ops.cast(needed, "float32")
    one, other = value[..., None], value[:, None]
    is_ahead = (other > one) | ((other == one) & (places < places[:, None]))
    is_rival = is_ahead & (needed[..., None] == needed[:, None])
    num_ahead, rank = (
        ops.sum(ops.cast(x, "int32"), axis=-1) for x in (is_ahead, is_rival)
    )
    rank = ops.where(log_probabilities > -np.inf, rank, size)
    _, chosen = top_k(-(rank * size + num_ahead), count)
    chosen = ops.sort(ops.cast(chosen, "int32"), axis=-1)
    found, order = top_k(take_rows(log_probabilities, chosen), count)
    return found, take_rows(chosen, order)


def _to_tuples(required):
    """Returns phrases of each sentence as tuples; raises `ValueError` unless ids."""
    try:
        rows = [[map(operator.index, phrase) for phrase in row] for row in required]
        rows = tuple(tuple(map(tuple, row)) for row in rows)
    except TypeError:  # not nested so deep, or not of integers
        rows = (((-1,),),)
    if min((one for row in rows for phrase in row for one in phrase), default=0) < 0:
        raise ValueError(
            "`required` must be a list of phrases for each sentence, and each phrase a "
            f"sequence of ids. Received: required={required}."
        )
    return rows


def _table(required):
    """Returns phrases as a table `(sentences, phrases, length)`, padded with -1."""
    if not isinstance(required, tuple):
        return required
    count = max([1, *map(len, required)])
    length = max([1, *(len(phrase) for row in required for phrase in row)])
    table = np.full((len(required), count, length), -1, "int32")
    for sentence, row in zip(table, required, strict=True):
        for cells, phrase in zip(sentence, row, strict=False):
            cells[: len(phrase)] = phrase
    return table
