"""Many sentences through few compiled programs, without those that have ended."""

import functools
import threading

import keras
import numpy as np

from keras_transformer.checks import check_positive_integers
from keras_transformer.decoding.cached_model import batch_size_of, cache_lengths
from keras_transformer.decoding.halves import search_in_threads, worth_halving
from keras_transformer.kernels.compiled import CompiledFunction

# The fractions of a batch to which it may shrink, the largest first.
FRACTIONS = (1 / 2, 1 / 4, 1 / 8)
MIN_BATCH_FOR_STAGES = 8
# Shrinking a batch takes as long as this many steps of what remains.
REBATCH_COST_IN_STEPS = 4


class SearchRunner:
    """Runs a search of a model, compiled when it is first called.

    A batch takes as many steps as its longest sentence. So that a sentence that
    ends early costs nothing afterwards, a search runs in stages: the batch shrinks
    to its active sentences, with their memory and their cache, once half, three
    quarters or seven eighths of it have ended. A stage is compiled when it pays:
    when the steps that it would have saved, less the cost of shrinking the batch,
    have taken as long as `patience` batches. A batch whose sentences end together
    is searched in one stage, and so is one of less than 8.

    A stage also ends when the cache is full. All sentences then continue with a
    longer cache.

    Where XLA compiles for CPUs, a large batch is searched in two halves, each in a
    thread; see `halves`.

    Where a search is part of a graph, such as an export, this does not apply: all
    sentences continue until the last has ended.

    Args:
        model: A model that offers the cached step.
        search: A search, without the tables of its processors.
        max_length: Most tokens of a sequence, the end token included.
        jit_compile: As in `keras.Model.compile`.
        patience: Batches whose time a stage must save before it is compiled.
    """

    def __init__(
        self,
        model,
        search,
        max_length: int,
        jit_compile="auto",
        patience: float = 4.0,
    ):
        check_positive_integers(max_length=max_length)
        self._model = model
        self._num_slots = search.num_slots
        self._lengths = cache_lengths(model, max_length, search.num_slots)
        self._compiles_with_xla = jit_compile is True
        self._new_stage = functools.partial(
            SearchStage, model, search, max_length, jit_compile
        )
        self._stages = {}
        self._stages_lock = threading.Lock()
        # What each fraction not in use would have saved, in times of a whole batch.
        self._missed_savings = dict.fromkeys(FRACTIONS, 0.0)
        self._patience = patience

    def __call__(self, inputs, tables):
        """Finds the best sequences for each sentence.

        Args:
            inputs: The model's inputs.
            tables: The processors' settings for each sentence, as `Search.tables`
                returns them.

        Returns:
            The ids and scores of `Hypotheses`, NumPy arrays.
        """
        size = batch_size_of(inputs)
        if size < MIN_BATCH_FOR_STAGES:
            return self._find(inputs, tables, fractions=())
        fractions = self._fractions_in_use()
        find = functools.partial(self._find, fractions=fractions)
        if self._compiles_with_xla and worth_halving(size, self._num_slots):
            ids, scores = search_in_threads(find, inputs, tables)
        else:
            ids, scores = find(inputs, tables)
        lengths = np.count_nonzero(ids != self._model.pad_id, axis=-1).max(axis=1)
        self._note_missed_savings(lengths)
        return ids, scores

    def _find(self, inputs, tables, fractions):
        """Searches in stages: the whole batch, then these fractions of it."""
        size = batch_size_of(inputs)
        fractions = [1, *fractions]
        sizes = [int(size * fraction) for fraction in fractions]
        # Each stage stops when the active sentences fit into the next.
        max_active = np.array([*sizes[1:], 0], "int32")
        rows, level, length = np.arange(size), 0, self._lengths[0]
        stage = self._stage(fractions, level, length, begins=True)
        found = stage.run(inputs, tables, max_active[0])
        ids, scores = map(np.array, found["hypotheses"])
        while num_active := np.count_nonzero(found["is_active"]):
            state, index = found["state"], found["state"].index
            while num_active <= max_active[level]:
                level += 1
            if sizes[level] < len(rows):
                # The active sentences, and ended ones to fill the batch.
                kept = np.argsort(~found["is_active"], kind="stable")[: sizes[level]]
                rows, tables = rows[kept], _take(tables, kept)
                state = _take(state._replace(index=()), kept)._replace(index=index)
            if index == length:
                length = self._lengths[self._lengths.index(length) + 1]
                state = state._replace(cache=self._model.lengthen(state.cache, length))
            stage = self._stage(fractions, level, length, begins=False)
            found = stage.run(state, tables, max_active[level])
            ids[rows], scores[rows] = found["hypotheses"]
        return ids, scores

    def _stage(self, fractions, level, length, begins):
        is_last = level == len(fractions) - 1 and length == self._lengths[-1]
        # A stage for each fraction, although one could take batches of any size:
        # TensorFlow traces what has seen two shapes for any shape.
        key = fractions[level], length, begins, is_last
        with self._stages_lock:  # since both threads ask for the same stages
            if key not in self._stages:
                self._stages[key] = self._new_stage(*key[1:])
            return self._stages[key]

    def _fractions_in_use(self):
        """Returns fractions, the largest first, after adding those that now pay."""
        missed = self._missed_savings
        while missed and max(missed.values()) >= self._patience:
            del missed[max(missed, key=missed.get)]
            # Beside the new fraction, the others would have saved less.
            missed.update(dict.fromkeys(missed, 0.0))
        return [fraction for fraction in FRACTIONS if fraction not in missed]

    def _note_missed_savings(self, lengths):
        """Adds what further fractions would have saved in a batch of these lengths."""
        num_active = (lengths[:, None] > np.arange(lengths.max())).sum(axis=0)

        def cost(fractions):  # in rows, summed over steps
            sizes = np.sort([int(one * len(lengths)) for one in (1, *fractions)])
            size_at_step = sizes[np.searchsorted(sizes, num_active)]
            shrunken = np.unique(size_at_step)[:-1]
            return size_at_step.sum() + REBATCH_COST_IN_STEPS * shrunken.sum()

        missed = self._missed_savings
        in_use = [fraction for fraction in FRACTIONS if fraction not in missed]
        for fraction in missed:
            saved = cost(in_use) - cost([*in_use, fraction])
            missed[fraction] += saved / max(cost([]), 1)


class SearchStage:
    """Steps of a search with one batch and one cache, compiled together.

    Args:
        model: A model that offers the cached step.
        search: A search, without the tables of its processors.
        max_length: Most tokens of a sequence.
        jit_compile: As in `keras.Model.compile`.
        cache_length: Positions that the cache holds.
        begins: Whether the stage begins with the model's inputs, rather than with
            the `SearchState` of another stage.
        is_last: Whether no stage follows, so that the state need not be returned.
    """

    def __init__(
        self, model, search, max_length, jit_compile, cache_length, begins, is_last
    ):
        self._model = model
        self._search = search
        self._max_length = max_length
        self._cache_length = cache_length
        self._begins = begins
        self._is_last = is_last
        self._compiled = CompiledFunction(self.advance, model, jit_compile)

    def run(self, *arguments):
        """Returns what `advance` does, compiled, as NumPy arrays."""
        return self._compiled.run(*arguments)

    def advance(self, start, tables, max_active):
        """Takes steps until few sentences are active, or the cache is full.

        Args:
            start: The model's inputs, or a `SearchState`.
            tables: The processors' settings for each sentence.
            max_active: Number of active sentences to stop at.

        Returns:
            A dictionary: `"hypotheses"`, the best so far; `"is_active"`, of shape
            `(batch,)`; and `"state"`, unless this is the last stage.
        """
        model, length = self._model, self._cache_length
        search = self._search.with_tables(tables)
        state = start
        if self._begins:
            state = search.begin(model, start, self._max_length, length)
        state = search.advance(model, state, length, max_active)
        found = {
            "hypotheses": tuple(search.best(state.hypotheses)),
            "is_active": search.is_active(state.index, state.hypotheses),
        }
        # Returning the state copies the memory and the cache.
        return found if self._is_last else {**found, "state": state}


def _take(structure, rows):
    return keras.tree.map_structure(lambda x: x[rows], structure)
