"""What every search shares: its contract with the model, and its result."""

import copy
from typing import NamedTuple, Protocol

import keras
from keras import ops

from keras_transformer.decoding.configurable import Configurable
from keras_transformer.decoding.next_symbols import stepper


class Hypotheses(NamedTuple):
    """What a search returns for each sentence, the best hypothesis first.

    Attributes:
        ids: Int32 tensor of shape `(batch, hypotheses, max_length)`, without
            the start symbol, with the end symbol where it was reached, and
            with the model's `pad_id` after it.
        scores: Float32 tensor of shape `(batch, hypotheses)`. Minus infinity
            says that there is no such hypothesis.
    """

    ids: object
    scores: object


class CachedModel(Protocol):
    """What a model offers to be searched.

    All hypotheses of a sentence take a step together, as the queries of one
    attention over what they all have written into the cache so far.
    """

    start_id: int
    end_id: int
    pad_id: int

    def start(self, inputs, num_hypotheses: int, max_length: int):
        """Reads the inputs once.

        Args:
            inputs: Whatever the model takes: a tensor or a nested structure of
                tensors, with the batch first.
            num_hypotheses: Hypotheses that each sentence will have.
            max_length: Positions that the cache must hold, at first.

        Returns:
            `(memory, cache)`, nested structures of tensors with the batch
            first. The memory holds what every step reads; the cache holds
            what steps write, and keeps its shapes.
        """

    def step(self, token_ids, memory, cache, index, visible):
        """Reads one symbol of each hypothesis.

        Args:
            token_ids: Int32 tensor of shape `(batch, hypotheses)`: the symbol
                before the one asked for, `start_id` at first.
            memory: As `start` returned it.
            cache: As `start` or the last `step` returned it.
            index: Scalar int32 position of `token_ids`.
            visible: Boolean tensor of shape
                `(batch, hypotheses, positions, hypotheses)`, as many positions
                as the cache holds: `visible[b, i, t, j]` says whether
                hypothesis `i` may see what slot `j` wrote at position `t`, the
                present one included.

        Returns:
            `(logits, cache)`: float32 logits of shape
            `(batch, hypotheses, vocabulary)`, and the cache with this step in.
        """

    # A model may also offer `prepared_step()`, which returns a function like `step`
    # after work that all steps share: it is called once, before a loop. And, so
    # that no step reads a cache that is mostly empty, `cache_lengths(max_length,
    # num_hypotheses)`, the positions that its cache is to hold one after the other,
    # with `lengthen(cache, length)`, which makes room for more.


class SearchState(NamedTuple):
    """How far a search has come.

    All but `index` are nested structures of tensors with the batch first, so
    that some of the sentences can go on without the others.

    Attributes:
        index: Scalar int32 position of the symbol to come.
        inputs: What the model was given.
        memory: What its `start` returned.
        hypotheses: What the search knows of its hypotheses, in a form of its
            own.
        cache: As `start` or the last `step` returned it.
    """

    index: object
    inputs: object
    memory: object
    hypotheses: object
    cache: object


class Search(Configurable):
    """Base of the searches: finds sequences that a model thinks likely.

    A search is called like a function, eagerly or traced (`tf.function`, with
    or without `jit_compile`; `jax.jit`). Its one loop ends as soon as every
    sentence has ended. It never produces the model's `pad_id`.

    A call is `begin`, `advance` and `best`, and computes every sentence until
    the last of them has ended. Who calls these by themselves may `advance` in
    several parts and drop sentences in between, as `model.generate` does. The
    cache is short at first, where the model can lengthen it, and longer in each
    further part: a step costs what it reads.

    Scores are made of the model's own log-probabilities. What is forbidden
    narrows the choice, but what remains keeps its probability.

    Subclasses offer `first_hypotheses`, `is_open`, `grow` and `best`, and say
    with `num_slots` how many hypotheses of a sentence grow side by side, and
    with `num_candidates` how many of the likeliest symbols they look at.

    Args:
        processors: Sequence of `Processor`, applied in this order.
    """

    def __init__(self, processors=()):
        self.processors = tuple(processors)

    def __call__(self, model: CachedModel, inputs, max_length: int) -> Hypotheses:
        """Finds the best sequences for each sentence.

        Args:
            model: A model that offers the cached step.
            inputs: What the model's `start` takes.
            max_length: Most symbols of a sequence, the end symbol counted.

        Returns:
            `Hypotheses` of length `max_length`.

        Raises:
            ValueError: If `max_length` is not a positive integer.
        """
        check_length(max_length)
        # A graph holds the steps of each length, whether or not they are taken.
        lengths = cache_lengths(model, max_length, self.num_slots)[-2:]
        state = self.begin(model, inputs, max_length, lengths[0])
        return self.best(self._go_to_the_end(model, state, lengths))

    def _go_to_the_end(self, model, state, lengths):
        """Returns the last hypotheses, of a state with a cache of the first length."""
        length, *longer = lengths
        state = self.advance(model, state, length)
        if not longer:
            return state.hypotheses

        def go_on():
            cache = model.lengthen(state.cache, longer[0])
            return self._go_to_the_end(model, state._replace(cache=cache), longer)

        is_open = self.is_open(state.index, state.hypotheses)
        return ops.cond(ops.any(is_open), go_on, lambda: state.hypotheses)

    def begin(
        self, model: CachedModel, inputs, max_length: int, cache_length: int
    ) -> SearchState:
        """Reads the inputs.

        Args:
            model: As in a call.
            inputs: As in a call.
            max_length: As in a call.
            cache_length: Positions that the cache is to hold, at first.
        """
        memory, cache = model.start(inputs, self.num_slots, cache_length)
        return SearchState(
            index=ops.convert_to_tensor(0, dtype="int32"),
            inputs=inputs,
            memory=memory,
            hypotheses=self.first_hypotheses(model, inputs, max_length),
            cache=cache,
        )

    def advance(
        self, model: CachedModel, state: SearchState, cache_length: int, most_open=0
    ):
        """Takes steps until few sentences are open, or the cache is full.

        Args:
            model: The model that the search began with.
            state: As `begin` or `advance` returned it, or some rows of that.
            cache_length: Positions that its cache holds.
            most_open: Number of open sentences to stop at, an integer or a
                scalar tensor.

        Returns:
            The new `SearchState`.
        """
        step = stepper(
            model,
            state.inputs,
            state.memory,
            cache_length,
            self.processors,
            self.num_candidates,
        )

        def goes_on(index, hypotheses, cache):
            num_open = ops.sum(ops.cast(self.is_open(index, hypotheses), "int32"))
            return (num_open > most_open) & (index < cache_length)

        def grow(index, hypotheses, cache):
            hypotheses, cache = self.grow(model, step, index, hypotheses, cache)
            return index + 1, hypotheses, cache

        index, hypotheses, cache = ops.while_loop(
            goes_on, grow, (state.index, state.hypotheses, state.cache)
        )
        return state._replace(index=index, hypotheses=hypotheses, cache=cache)

    def first_hypotheses(self, model, inputs, max_length):
        """Returns the hypotheses before the first step."""
        raise NotImplementedError

    def is_open(self, index, hypotheses):
        """Says which sentences need another step, of shape `(batch,)`.

        A sentence that needs none never does again, and further steps do not
        change the best that was found for it.
        """
        raise NotImplementedError

    def grow(self, model, step, index, hypotheses, cache):
        """Adds a symbol to the hypotheses of open sentences.

        Args:
            model: The model that is searched.
            step: What `stepper` returned.
            index: Scalar position of the symbol.
            hypotheses: The hypotheses so far.
            cache: The cache so far.

        Returns:
            `(hypotheses, cache)`.
        """
        raise NotImplementedError

    def best(self, hypotheses) -> Hypotheses:
        """Returns what was found, for good where a sentence is no longer open."""
        raise NotImplementedError

    def tables(self, num_sentences: int) -> dict:
        """Returns the `Processor.table`s that there are, by the processor's place."""
        tables = (one.table(num_sentences) for one in self.processors)
        return {
            str(place): table for place, table in enumerate(tables) if table is not None
        }

    def with_tables(self, tables: dict):
        """Returns a search like this one whose processors have other tables."""
        search = copy.copy(self)
        search.processors = tuple(
            one.with_table(tables[str(place)]) if str(place) in tables else one
            for place, one in enumerate(self.processors)
        )
        return search

    def get_config(self):
        serialize = keras.saving.serialize_keras_object
        return {"processors": [serialize(one) for one in self.processors]}

    @classmethod
    def from_config(cls, config):
        deserialize = keras.saving.deserialize_keras_object
        processors = [deserialize(one) for one in config.get("processors", ())]
        return cls(**{**config, "processors": processors})


def check_length(max_length):
    """Raises `ValueError` unless so many symbols can be asked for."""
    if not isinstance(max_length, int) or max_length < 1:
        raise ValueError(
            "`max_length` must be a positive integer. "
            f"Received: max_length={max_length}."
        )


def cache_lengths(model, max_length: int, num_hypotheses: int) -> list[int]:
    """Returns how long the cache of a model is to be, one after the other."""
    if hasattr(model, "cache_lengths"):
        return model.cache_lengths(max_length, num_hypotheses)
    return [max_length]


def batch_size_of(inputs):
    """Returns the number of sentences, an integer or a scalar tensor."""
    return ops.shape(keras.tree.flatten(inputs)[0])[0]
