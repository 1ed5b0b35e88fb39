"""A search that is compiled, and drops the sentences that have ended."""

import contextlib
import functools
import logging
import threading

import keras
import numpy as np

from keras_transformer.decoding.halves import search_in_threads, worth_halving
from keras_transformer.decoding.search import (
    batch_size_of,
    cache_lengths,
    check_length,
)
from keras_transformer.kernels import target

# The shares of a batch that are worth a batch of their own, the largest first.
SHARES = (1 / 2, 1 / 4, 1 / 8)
FEWEST = 8  # sentences of a batch that is worth parting
HANDING_ON = 4  # steps of the open sentences that take as long as handing them on


class SearchRunner:
    """A search of a model, compiled when it is first called.

    A batch takes as many steps as its longest sentence. So that a sentence which
    ends early costs nothing afterwards, the open ones go on by themselves, with
    their rows of the memory and of the cache: once half of the batch has ended,
    three quarters, and seven eighths. Each of these stages is compiled when it
    pays: when the steps that it would have saved, less what it takes to hand the
    open sentences on, have taken as long as some batches do. A batch whose
    sentences end together is searched in one go, and so is one of less than 8.

    Long sentences are searched in parts as well: each time that the cache is full,
    all go on with a longer one, by what is compiled when that is first needed.

    Where XLA compiles for processors, a large batch is searched in two halves side
    by side: much of a step is too small for XLA to part among processors itself.

    This is the work of the caller of a search: where a search is part of a
    graph, such as an export, all sentences go on until the last has ended.

    Args:
        model: A model that offers the cached step.
        search: A search, without the tables of its processors.
        max_length: Most symbols of a sequence, the end symbol counted.
        patience: Batches, in whose time a stage is compiled, about.
    """

    def __init__(self, model, search, max_length: int, patience: float = 4.0):
        check_length(max_length)
        self._model = model
        self._lengths = cache_lengths(model, max_length, search.num_slots)
        self._num_slots = search.num_slots
        # One for each share of the batch too: TensorFlow traces what has seen several
        # shapes for any shape.
        self._parts = functools.cache(
            lambda share, *settings: _Part(model, search, max_length, *settings)
        )
        self._making = threading.Lock()
        # What stages not in use would have saved, beside those in use, in batches.
        self._wasted = dict.fromkeys(SHARES, 0.0)
        self._pad_id = model.pad_id
        self._patience = patience

    def __call__(self, inputs, tables):
        """Finds the best sequences for each sentence.

        Args:
            inputs: What the model's `start` takes.
            tables: What the search knows of each sentence, as `Search.tables`
                returns it.

        Returns:
            The ids and scores of `Hypotheses`, NumPy arrays.
        """
        size = batch_size_of(inputs)
        if size < FEWEST:
            return self._find(inputs, tables, ())
        stages = self._stages_in_use()
        halve = _compiles_for_processors(self._model)
        if halve and worth_halving(size, self._num_slots):
            ids, scores = search_in_threads(
                lambda half: self._find(*half, stages), (inputs, tables)
            )
        else:
            ids, scores = self._find(inputs, tables, stages)
        self._note_waste(np.count_nonzero(ids != self._pad_id, axis=-1).max(axis=1))
        return ids, scores

    def _find(self, inputs, tables, stages):
        """Searches in parts, with batches of some shares of the first one."""
        size = batch_size_of(inputs)
        shares = [1, *stages]
        rooms = [int(size * share) for share in shares]
        # Each part stops at what the next has room for; the last at nothing.
        to_stop_at = np.array([*rooms[1:], 0], "int32")
        rows, stage, length = np.arange(size), 0, self._lengths[0]
        part = self._part(shares, stage, length, begins=True)
        found = part.find(inputs, tables, to_stop_at[0])
        ids, scores = map(np.array, found["hypotheses"])
        while num_open := np.count_nonzero(found["is_open"]):
            state, index = found["state"], found["state"].index
            while num_open <= to_stop_at[stage]:
                stage += 1
            if rooms[stage] < len(rows):
                # Those that are open, and others for want of them.
                kept = np.argsort(~found["is_open"], kind="stable")[: rooms[stage]]
                rows, tables = rows[kept], _take(tables, kept)
                state = _take(state._replace(index=()), kept)._replace(index=index)
            if index == length:
                length = self._lengths[self._lengths.index(length) + 1]
                state = state._replace(cache=self._model.lengthen(state.cache, length))
            part = self._part(shares, stage, length, begins=False)
            found = part.find(state, tables, to_stop_at[stage])
            ids[rows], scores[rows] = found["hypotheses"]
        return ids, scores

    def _part(self, shares, stage, length, begins):
        is_last = stage == len(shares) - 1 and length == self._lengths[-1]
        with self._making:  # once, for both threads
            return self._parts(shares[stage], length, begins, is_last)

    def _stages_in_use(self):
        """Returns shares, the largest first, after adding those that pay by now."""
        wasted = self._wasted
        while wasted and max(wasted.values()) >= self._patience:
            del wasted[max(wasted, key=wasted.get)]
            # Beside the new one, the others would have saved less.
            wasted.update(dict.fromkeys(wasted, 0.0))
        return [share for share in SHARES if share not in wasted]

    def _note_waste(self, lengths):
        """Adds what other stages would have saved in a batch of these lengths."""
        num_open = (lengths[:, None] > np.arange(lengths.max())).sum(axis=0)

        def cost(shares):
            rooms = np.sort([int(share * len(lengths)) for share in (1, *shares)])
            of_steps = rooms[np.searchsorted(rooms, num_open)]
            return of_steps.sum() + HANDING_ON * np.unique(of_steps)[:-1].sum()

        in_use = [share for share in SHARES if share not in self._wasted]
        for share in self._wasted:
            saved = cost(in_use) - cost([*in_use, share])
            self._wasted[share] += saved / max(cost([]), 1)


class _Part(keras.Model):
    """Steps of a search as a Keras model: `predict_on_batch` compiles anywhere."""

    def __init__(self, model, search, max_length, cache_length, begins, is_last):
        super().__init__(name="search", autocast=False)
        self.model = model
        self.search = search
        self.max_length = max_length
        self.cache_length = cache_length
        self.begins = begins
        self.is_last = is_last
        self.compile(jit_compile=model.jit_compile if model.compiled else "auto")
        self.built = True  # or JAX takes all steps once more, to see what to build
        self.make_predict_function()  # here, since threads would make one each

    def find(self, *given):
        """Returns what `call` returns, as NumPy arrays to be read."""
        with _first_calls_are_meant():
            if not target.is_tensorflow():
                return self.predict_on_batch(given)
            # `predict_on_batch` without its copy of the state, for which malloc
            # takes new memory in each thread: that took longer than many steps.
            found = self.predict_function([(given,)])
            return keras.tree.map_structure(np.asarray, found)

    def call(self, given):
        state, tables, most_open = given
        search = self.search.with_tables(tables)
        if self.begins:  # No state yet, but inputs.
            state = search.begin(self.model, state, self.max_length, self.cache_length)
        state = search.advance(self.model, state, self.cache_length, most_open)
        found = {
            "hypotheses": tuple(search.best(state.hypotheses)),
            "is_open": search.is_open(state.index, state.hypotheses),
        }
        # To hand on the memory and the cache is to copy them.
        return found if self.is_last else {**found, "state": state}


def _compiles_for_processors(model):
    """Says whether XLA compiles for the processors of this machine."""
    return model.compiled and model.jit_compile and target.xla_would_compile_for_cpu()


@contextlib.contextmanager
def _first_calls_are_meant():
    """Keeps TensorFlow from warning of functions that are traced again and again.

    It takes the first calls of several searches, or parts of one, for that.
    """

    def is_something_else(record):
        return "tf.function retracing" not in record.getMessage()

    logger = logging.getLogger("tensorflow")
    logger.addFilter(is_something_else)
    try:
        yield
    finally:
        logger.removeFilter(is_something_else)


def _take(structure, rows):
    return keras.tree.map_structure(lambda x: x[rows], structure)
