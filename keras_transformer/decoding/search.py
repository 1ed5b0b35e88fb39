"""The loop and the result of all searches."""

import functools
import inspect
import math
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_transformer.checks import check_positive_integers, check_vocabulary
from keras_transformer.decoding.config import ConfigObject
from keras_transformer.decoding.model import CachedModel
from keras_transformer.decoding.next_tokens import next_tokens
from keras_transformer.decoding.processors import Processor
from keras_transformer.layers.cache import GROWTH, MIN_ENTRIES_OF_ALL, visible_entries
from keras_transformer.layers.positions import check_position_range

# For fewer sentences, preparing a step costs more than it saves.
MIN_SENTENCES_TO_PREPARE = 8


class Hypotheses(NamedTuple):
    """The result of a search: the hypotheses of each sentence, best first.

    Attributes:
        ids: Int32 tensor of shape `(batch, hypotheses, max_length)`, without the start
            token, with an end token if one was reached, followed by the model's
            `pad_id`.
        scores: Float32 tensor of shape `(batch, hypotheses)`; minus infinity
            where there is no such hypothesis.
    """

    ids: Any
    scores: Any


class LiveHypotheses(NamedTuple):
    """Hypotheses that grow token by token, each in its own slot; in a beam, best first.

    Attributes:
        token_ids: The last token, of shape `(batch, slots)`.
        ids: All tokens so far, of shape `(batch, slots, max_length)`.
        lineage: The slots that wrote them into the cache, of the shape of `ids`.
        log_probabilities: Of all tokens so far, of shape `(batch, slots)`; minus
            infinity where there is no hypothesis.
        limits: Maximum number of tokens, int32 of shape `(batch,)`.
        ended: Without a beam: whether nothing follows, of shape `(batch, slots)`.
        random_numbers: Of all steps of a `Sampling`, float32 of the shape of `ids`.
        progress: In a `ConstrainedBeamSearch`, the `Progress` of the required phrases.
    """

    token_ids: Any
    ids: Any
    lineage: Any
    log_probabilities: Any
    limits: Any
    ended: Any = ()
    random_numbers: Any = ()
    progress: Any = ()


class SearchState(NamedTuple):
    """The state of a search between two steps.

    All are nested structures of tensors with the batch first: sentences may have
    started at different times, and may replace sentences that have ended.

    Attributes:
        index: Positions of the next tokens, int32 of shape `(batch,)`. A negative index
            is the number of steps before the first token.
        inputs: The model's inputs.
        context: What its `start` returned.
        hypotheses: A pair: the `LiveHypotheses` that grow, and what each search keeps
            of finished ones.
        cache: As `start` or the last `step` returned it.
    """

    index: Any
    inputs: Any
    context: Any
    hypotheses: Any
    cache: Any


class Search(ConfigObject):
    """Base class of searches: finds sequences that a model considers likely.

    A search is called like a function, eagerly or traced (`tf.function`, with
    or without `jit_compile`; `jax.jit`). Its one loop ends as soon as every
    sentence has ended. It never produces the model's `pad_id`.

    A call consists of `begin`, `advance` and `best`. It computes every sentence until
    the last has ended; `search_continuously` calls the three itself, to replace
    sentences that have ended. If the model can lengthen its cache, the cache is short
    at first, because a step reads all of it.

    Scores are sums of the model's own log-probabilities: forbidden tokens limit
    the choice, but do not change the probability of the others.

    Subclasses implement `first_hypotheses`, `is_active`, `grow` and `best`, and have
    the attributes `num_slots`, the number of hypotheses of a sentence that grow in
    parallel, `num_candidates`, how many of the likeliest tokens `grow` considers,
    `num_hypotheses`, how many hypotheses of a sentence `best` returns, and, if they
    draw tokens, `is_random` and a `seed`.

    Args:
        processors: Sequence of `Processor`, applied in this order.
        end_ids: Id or ids that end a sequence, whichever comes first; by default the
            model's `end_id`.
    """

    num_slots: int
    num_candidates: int
    num_hypotheses: int
    is_random = False
    seed: int | None = None

    def __init__(
        self,
        processors: Iterable[Processor] = (),
        end_ids: int | Iterable[int] | None = None,
    ):
        is_listed = isinstance(processors, Iterable)
        listed: tuple = tuple(processors) if is_listed else (processors,)
        if not is_listed or not all(isinstance(one, Processor) for one in listed):
            raise ValueError(
                "`processors` must be a list of `Processor`s, such as "
                "`[BannedIds([1])]`. "
                f"Received: processors={listed if is_listed else processors!r}."
            )
        self.processors: tuple[Processor, ...] = listed
        self.end_ids = None if end_ids is None else _sorted_ids(end_ids)

    def replace(self, **changes):
        """Returns a copy of the search with some arguments changed."""
        names = inspect.signature(type(self)).parameters
        settings = {name: getattr(self, name) for name in names}
        return type(self)(**{**settings, **changes})

    def __call__(
        self, model: CachedModel, inputs, max_length: int, limits: Any = None
    ) -> Hypotheses:
        """Finds the best sequences for each sentence.

        Args:
            model: A model that offers the cached step.
            inputs: The model's inputs.
            max_length: Maximum number of tokens per sequence, including the end token.
            limits: The same as an integer tensor, of shape `()` or `(batch,)`, of at
                most `max_length`: then one compiled program serves all limits.

        Returns:
            `Hypotheses` of length `max_length`.

        Raises:
            ValueError: If `max_length` is not a positive integer, or the model has
                fewer positions.
        """
        check_positive_integers(max_length=max_length)
        check_position_range(model.max_positions, max_length)
        # None where a trace does not know it.
        num_sentences = keras.tree.flatten(inputs)[0].shape[0]
        num_entries = (num_sentences or math.inf) * self.num_slots * max_length
        length = max_length
        if num_entries > MIN_ENTRIES_OF_ALL:
            length = model.first_cache_length(max_length, self.num_slots)
        is_small = num_sentences is not None
        is_small = is_small and num_sentences < MIN_SENTENCES_TO_PREPARE
        step = model.step if is_small else model.prepared_step()

        def advance_to_the_end(state, length):
            state = self.advance(model, step, state, length)
            if length == max_length:
                return state.hypotheses
            longer = min(GROWTH * length, max_length)

            def go_on():
                cache = model.lengthen(state.cache, longer)
                return advance_to_the_end(state._replace(cache=cache), longer)

            is_unfinished = ops.any(self.is_active(state.index, state.hypotheses))
            return ops.cond(is_unfinished, go_on, lambda: state.hypotheses)

        state = self.begin(model, inputs, max_length, length, limits)
        return self.best(advance_to_the_end(state, length))

    def begin(
        self,
        model: CachedModel,
        inputs,
        max_length: int,
        cache_length: int,
        limits: Any = None,
    ) -> SearchState:
        """Reads the inputs and returns the state before the first step.

        Takes the arguments of a call, and the initial number of positions of the cache.
        """
        context, cache = model.start(inputs, self.num_slots, cache_length)
        live, finished = self.first_hypotheses(model, inputs, max_length)
        if limits is not None:
            limits = ops.broadcast_to(limits, ops.shape(live.limits))
            live = live._replace(limits=limits)
        return SearchState(
            index=ops.zeros_like(live.limits),
            inputs=inputs,
            context=context,
            hypotheses=(live, finished),
            cache=cache,
        )

    def advance(
        self,
        model: CachedModel,
        step: Callable,
        state: SearchState,
        cache_length: int,
        max_active=0,
    ) -> SearchState:
        """Takes steps until few sentences are active or one needs a longer cache.

        Args:
            model: The model that the search started with.
            step: Its `step`, or the result of its `prepared_step`.
            state: The result of `begin` or `advance`, or some of its rows.
            cache_length: Positions that its cache holds.
            max_active: Number of active sentences to stop at, an integer or a
                scalar tensor.

        Returns:
            The new `SearchState`.
        """
        end_ids = self.end_ids or (model.end_id,)
        processes = [x.bind(model, state.inputs, end_ids) for x in self.processors]

        def needs_step(index, hypotheses, cache):
            is_active = self.is_active(index, hypotheses)
            num_active = ops.sum(ops.cast(is_active, "int32"))
            is_full = ops.any(is_active & (index >= cache_length))
            return (num_active > max_active) & ~is_full

        def take_step(index, hypotheses, cache):
            is_active = self.is_active(index, hypotheses)
            # Sentences that have ended may be beyond the last position. A negative
            # index waits: KerasHub's longer prompts are still read in these steps.
            at = ops.where(is_active & (index > 0), index, 0)
            live, _ = hypotheses
            visible = visible_entries(live.lineage[..., :cache_length], at)
            logits, cache = step(live.token_ids, state.context, cache, at, visible)
            settings = processes, self.num_candidates, model.pad_id
            tokens = next_tokens(logits, live.ids, at, *settings)
            grown = self.grow(model, tokens, at, hypotheses)
            hypotheses = choose_rows(is_active & (index >= 0), grown, hypotheses)
            return index + ops.cast(is_active, "int32"), hypotheses, cache

        index, hypotheses, cache = while_loop(
            needs_step, take_step, (state.index, state.hypotheses, state.cache)
        )
        return state._replace(index=index, hypotheses=hypotheses, cache=cache)

    def first_hypotheses(self, model, inputs, max_length: int):
        """Returns the hypotheses before the first step."""
        raise NotImplementedError

    def first_live(self, model, inputs, max_length: int) -> LiveHypotheses:
        """Returns hypotheses without tokens, one in each slot."""
        shape = ops.shape(keras.tree.flatten(inputs)[0])[0], self.num_slots
        own_slots = ops.arange(self.num_slots, dtype="int32")[:, None]
        return LiveHypotheses(
            token_ids=ops.full(shape, model.start_id, dtype="int32"),
            ids=ops.full((*shape, max_length), model.pad_id, dtype="int32"),
            lineage=ops.broadcast_to(own_slots, (*shape, max_length)),
            log_probabilities=ops.zeros(shape, dtype="float32"),
            limits=ops.full(shape[:1], max_length, dtype="int32"),
        )

    def is_active(self, index, hypotheses):
        """Returns which sentences need another step, of shape `(batch,)`.

        Once a sentence needs none, it never needs one again.
        """
        raise NotImplementedError

    def grow(self, model, tokens, index, hypotheses):
        """Adds one token to the hypotheses of active sentences.

        Args:
            model: The model to search.
            tokens: `NextTokens` of the hypotheses.
            index: Positions of the tokens, int32 of shape `(batch,)`. The results of
                sentences that are not active are not used.
            hypotheses: The hypotheses so far.

        Returns:
            The new hypotheses, as `first_hypotheses` returns tensors.
        """
        raise NotImplementedError

    def best(self, hypotheses) -> Hypotheses:
        """Returns the best hypotheses, final where a sentence is not active."""
        raise NotImplementedError

    def tables(self, model, inputs, max_length: int) -> dict:
        """Returns the settings of individual sentences, for `with_tables`.

        `model.generate` passes them to a compiled program as inputs, so the same
        program serves any values. These are the `Processor.table`s that are not None,
        by index of the processor.
        """
        num_sentences = len(keras.tree.flatten(inputs)[0])
        tables = (processor.table(num_sentences) for processor in self.processors)
        return {
            str(place): table for place, table in enumerate(tables) if table is not None
        }

    def with_tables(self, tables: dict):
        """Returns the search with new tables, or without a table where it is None."""
        if not tables:
            return self
        processors = list(self.processors)
        for place, processor in enumerate(self.processors):
            if str(place) in tables:
                processors[place] = processor.with_table(tables[str(place)])
        return self.replace(processors=processors)

    def named_ids(self) -> Iterator[Iterable[int]]:
        """Yields the ids in the search's settings: the vocabulary must have them."""
        yield self.end_ids or ()
        for processor in self.processors:
            yield processor.named_ids()

    @classmethod
    def from_config(cls, config):
        # None is a default, and stands for removed settings in older files.
        config = {name: value for name, value in config.items() if value is not None}
        return super().from_config(config)


def while_loop(condition, body, state: tuple) -> tuple:
    """`ops.while_loop` over a nested structure with None in it.

    TensorFlow's loops refuse None, which `KeyValues` have.
    """
    leaves = keras.tree.flatten(state)

    def with_none(tensors):
        tensors = iter(tensors)
        filled = [None if leaf is None else next(tensors) for leaf in leaves]
        return keras.tree.pack_sequence_as(state, filled)

    def without_none(structure):
        return tuple(x for x in keras.tree.flatten(structure) if x is not None)

    found = ops.while_loop(
        lambda *tensors: condition(*with_none(tensors)),
        lambda *tensors: without_none(body(*with_none(tensors))),
        without_none(state),
    )
    return with_none(found)


def power_of_two(length: int) -> int:
    """Returns the smallest power of two that is no less: few lengths are compiled."""
    return 1 << (length - 1).bit_length()


def is_one_of(token_ids, ids):
    """Tells which tokens are one of `ids`."""
    return functools.reduce(operator.or_, [token_ids == one for one in ids])


def choose_rows(is_chosen, chosen, others):
    """Takes some sentences of one nested structure, and the others of another.

    `is_chosen` is boolean, of shape `(batch,)`. Both structures have the same form, and
    tensors with the batch first.
    """

    def choose(one, other):
        if one is other:
            return one
        shape = (-1,) + (1,) * (len(one.shape) - 1)
        return ops.where(ops.reshape(is_chosen, shape), one, other)

    return keras.tree.map_structure(choose, chosen, others, none_is_leaf=False)


def check_search(search, vocabulary_size: int | None = None) -> None:
    """Raises `ValueError` unless `search` is a search, of ids that a vocabulary has."""
    if not isinstance(search, Search):
        raise ValueError(
            "`search` must be a search of `keras_transformer.decoding`, such as "
            f"`BeamSearch(4)`. Received: search={search!r}."
        )
    if vocabulary_size is not None:
        for ids in search.named_ids():
            check_vocabulary(ids, vocabulary_size)


def check_repeatable(search) -> None:
    """Raises `ValueError` if a search draws without a seed."""
    if search.is_random and search.seed is None:
        raise ValueError(
            "`search` must have a seed to be exported, such as seed=0. "
            f"Received: search={search!r}."
        )


def _sorted_ids(end_ids) -> tuple[int, ...]:
    """Returns ids in ascending order; raises `ValueError` unless they are ids."""
    ids = [end_ids] if np.ndim(end_ids) == 0 else list(end_ids)
    if not ids or any(not isinstance(one, (int, np.integer)) or one < 0 for one in ids):
        raise ValueError(
            "`end_ids` must be one id of the vocabulary, or several. "
            f"Received: end_ids={end_ids}."
        )
    return tuple(sorted({int(one) for one in ids}))
