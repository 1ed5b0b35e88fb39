"""What all searches share: the loop and the result."""

import copy
from collections.abc import Iterable
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_transformer.checks import check_positive_integers
from keras_transformer.decoding.cached_model import (
    CachedModel,
    batch_size_of,
    cache_lengths,
)
from keras_transformer.decoding.configurable import Configurable
from keras_transformer.decoding.endings import (
    SearchedModel,
    check_end_ids,
)
from keras_transformer.decoding.next_tokens import next_tokens_function
from keras_transformer.decoding.processors import Processor, check_processors


class Hypotheses(NamedTuple):
    """What a search found for each sentence, the best hypothesis first.

    Attributes:
        ids: Int32 tensor of shape `(batch, hypotheses, max_length)`, without
            the start token, with an end token where one was reached, and
            with the model's `pad_id` after it.
        scores: Float32 tensor of shape `(batch, hypotheses)`; minus infinity
            where there is no such hypothesis.
    """

    ids: Any
    scores: Any


class SearchState(NamedTuple):
    """The state of a search between two steps.

    All are nested structures of tensors with the batch first: sentences may have begun
    at different times, and may take the places of sentences that have ended.

    Attributes:
        index: Positions of the next tokens, int32 of shape `(batch,)`.
        inputs: The model's inputs.
        memory: What its `start` returned.
        hypotheses: The hypotheses; each search defines their form.
        cache: As `start` or the last `step` returned it.
    """

    index: Any
    inputs: Any
    memory: Any
    hypotheses: Any
    cache: Any


class Search(Configurable):
    """Base of the searches: finds sequences that a model thinks likely.

    A search is called like a function, eagerly or traced (`tf.function`, with
    or without `jit_compile`; `jax.jit`). Its one loop ends as soon as every
    sentence has ended. It never produces the model's `pad_id`.

    A call is `begin`, `advance` and `best`. It computes every sentence until the last
    has ended; `model.generate` calls the three itself, to replace sentences that have
    ended. Where the model can lengthen its cache, the cache is short at first, because
    a step reads all of it.

    Scores are sums of the model's own log-probabilities: forbidden tokens limit
    the choice, but do not change the probability of the others.

    Subclasses offer `first_hypotheses`, `is_active`, `grow` and `best`, and the
    attributes `num_slots`, the hypotheses of a sentence that grow side by side,
    `num_candidates`, how many of the likeliest tokens `grow` looks at, and
    `num_hypotheses`, how many hypotheses of a sentence `best` returns.

    Args:
        processors: Sequence of `Processor`, applied in this order.
        end_ids: Id or ids that end a sequence, whichever comes first; by default the
            model's `end_id`.
    """

    num_slots: int
    num_candidates: int
    num_hypotheses: int

    def __init__(
        self,
        processors: Iterable[Processor] = (),
        end_ids: int | Iterable[int] | None = None,
    ):
        self.processors = check_processors(processors)
        self.end_ids = check_end_ids(end_ids)

    def __call__(self, model: CachedModel, inputs, max_length: int) -> Hypotheses:
        """Finds the best sequences for each sentence.

        Args:
            model: A model that offers the cached step.
            inputs: The model's inputs.
            max_length: Most tokens of a sequence, the end token included.

        Returns:
            `Hypotheses` of length `max_length`.

        Raises:
            ValueError: If `max_length` is not a positive integer.
        """
        check_positive_integers(max_length=max_length)
        num_sentences = keras.tree.flatten(inputs)[0].shape[0]
        lengths = cache_lengths(model, max_length, self.num_slots, num_sentences)
        state = self.begin(model, inputs, max_length, lengths[0])
        return self.best(self._advance_to_the_end(model, state, lengths))

    def _advance_to_the_end(self, model, state, cache_lengths):
        """Takes all steps, with a longer cache once one of the first length is full."""
        length, *longer = cache_lengths
        state = self.advance(model, state, length)
        if not longer:
            return state.hypotheses

        def advance_further():
            cache = model.lengthen(state.cache, longer[0])
            return self._advance_to_the_end(model, state._replace(cache=cache), longer)

        is_active = self.is_active(state.index, state.hypotheses)
        return ops.cond(ops.any(is_active), advance_further, lambda: state.hypotheses)

    def begin(
        self, model: CachedModel, inputs, max_length: int, cache_length: int
    ) -> SearchState:
        """Reads the inputs and returns the state before the first step.

        The arguments are those of a call, and the number of positions that the
        cache holds at first.
        """
        memory, cache = model.start(inputs, self.num_slots, cache_length)
        model = SearchedModel(model, self.end_ids)
        return SearchState(
            index=ops.zeros((batch_size_of(inputs),), dtype="int32"),
            inputs=inputs,
            memory=memory,
            hypotheses=self.first_hypotheses(model, inputs, max_length),
            cache=cache,
        )

    def advance(
        self, model: CachedModel, state: SearchState, cache_length: int, max_active=0
    ) -> SearchState:
        """Takes steps until few sentences are active, or one needs a longer cache.

        Args:
            model: The model that the search began with.
            state: As `begin` or `advance` returned it, or some rows of that.
            cache_length: Positions that its cache holds.
            max_active: Number of active sentences to stop at, an integer or a
                scalar tensor.

        Returns:
            The new `SearchState`.
        """
        model = SearchedModel(model, self.end_ids)
        next_tokens = next_tokens_function(
            model,
            state.inputs,
            state.memory,
            cache_length,
            self.processors,
            self.num_candidates,
        )

        def needs_step(index, hypotheses, cache):
            is_active = self.is_active(index, hypotheses)
            num_active = ops.sum(ops.cast(is_active, "int32"))
            is_full = ops.any(is_active & (index >= cache_length))
            return (num_active > max_active) & ~is_full

        def take_step(index, hypotheses, cache):
            is_active = self.is_active(index, hypotheses)
            # Sentences that have ended may be beyond the last position. Not by
            # `ops.minimum`: with bfloat16 as default, it returns floats on JAX (3.15).
            at = ops.clip(index, 0, cache_length - 1)
            grown, cache = self.grow(model, next_tokens, at, hypotheses, cache)
            hypotheses = choose_rows(is_active, grown, hypotheses)
            return index + ops.cast(is_active, "int32"), hypotheses, cache

        index, hypotheses, cache = ops.while_loop(
            needs_step, take_step, (state.index, state.hypotheses, state.cache)
        )
        return state._replace(index=index, hypotheses=hypotheses, cache=cache)

    def first_hypotheses(self, model, inputs, max_length: int):
        """Returns the hypotheses before the first step."""
        raise NotImplementedError

    def is_active(self, index, hypotheses):
        """Tells which sentences need another step, of shape `(batch,)`.

        A sentence that needs none never needs one again.
        """
        raise NotImplementedError

    def grow(self, model, next_tokens, index, hypotheses, cache):
        """Adds one token to the hypotheses of active sentences.

        Args:
            model: The model that is searched, a `SearchedModel`.
            next_tokens: As `next_tokens_function` returned it.
            index: Positions of the tokens, int32 of shape `(batch,)`. The results of
                sentences that are not active are not used.
            hypotheses: The hypotheses so far.
            cache: The cache so far.

        Returns:
            `(hypotheses, cache)`.
        """
        raise NotImplementedError

    def best(self, hypotheses) -> Hypotheses:
        """Returns the best hypotheses, final where a sentence is not active."""
        raise NotImplementedError

    def tables(self, inputs) -> dict:
        """Returns the settings of single sentences, which `with_tables` takes.

        These are the `Processor.table`s that are not None, by index of the processor.
        """
        num_sentences = len(keras.tree.flatten(inputs)[0])
        tables = (processor.table(num_sentences) for processor in self.processors)
        return {
            str(place): table for place, table in enumerate(tables) if table is not None
        }

    def with_tables(self, tables: dict):
        """Returns a copy of the search whose processors have other tables."""
        search = copy.copy(self)
        search.processors = tuple(
            processor.with_table(tables[str(place)])
            if str(place) in tables
            else processor
            for place, processor in enumerate(self.processors)
        )
        return search

    def get_config(self):
        serialize = keras.saving.serialize_keras_object
        return {
            **super().get_config(),
            "processors": serialize(list(self.processors)),
            "end_ids": self.end_ids and list(self.end_ids),
        }

    @classmethod
    def from_config(cls, config):
        # None is a default, and what older files have for settings that are gone.
        config = {name: value for name, value in config.items() if value is not None}
        objects = {
            name: keras.saving.deserialize_keras_object(value)
            for name, value in config.items()
            if name == "processors" or isinstance(value, dict)
        }
        return cls(**{**config, **objects})


def choose_rows(is_chosen, chosen, others):
    """Takes some sentences of one nested structure, and the others of another.

    Args:
        is_chosen: Boolean tensor of shape `(batch,)`.
        chosen: Nested structure of tensors with the batch first.
        others: Structure of the same form.

    Returns:
        A structure of that form.
    """

    def choose(one, other):
        if one is other:
            return one
        shape = (-1,) + (1,) * (len(one.shape) - 1)
        return ops.where(ops.reshape(is_chosen, shape), one, other)

    return keras.tree.map_structure(choose, chosen, others)


def check_search(search) -> None:
    """Raises `ValueError` unless `search` is a search."""
    if not isinstance(search, Search):
        raise ValueError(
            "`search` must be a search of `keras_transformer.decoding`, such as "
            f"`BeamSearch(4)`. Received: search={search!r}."
        )
