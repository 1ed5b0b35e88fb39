"""Many sentences through few compiled programs."""

import functools
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
from keras import ops

from keras_transformer.checks import check_positive_integers
from keras_transformer.decoding.halves import worth_halving
from keras_transformer.decoding.search import Hypotheses
from keras_transformer.decoding.slots import search_in_slots
from keras_transformer.kernels import target
from keras_transformer.kernels.compiled import CompiledFunction

# Sentences that one call of a program can take; more only need more memory.
ROWS_PER_CALL = 4096
# Without XLA, a CPU takes as long for a sentence among so many as among more; and few
# of them wait little for the last to end.
MAX_BATCH_SIZE_WITHOUT_XLA = 16
# Hypotheses of at most 64 tokens, of which XLA saves the time that it compiles for.
MIN_HYPOTHESES_FOR_XLA = 700


def default_batch_size(search) -> int:
    """Returns how many sentences a search finds fastest side by side."""
    return max(32, 128 // search.num_slots)


class SearchRunner:
    """Runs a search of a model, compiled when it is first called.

    Up to `batch_size` sentences are searched as one batch. More go through as many
    slots, each of which begins with the next sentence when one has ended; see
    `slots`. Few programs are compiled, whatever the number of sentences, since batches
    are filled up.

    Where XLA compiles for CPUs, the sentences are searched in two threads; see
    `halves`. Where the runner may choose, XLA compiles once so many sentences have
    been searched that compiling would have paid. Until then, a CPU searches one small
    batch after the other.

    Args:
        model: A model that offers the cached step.
        search: A search, without the tables of its processors.
        max_length: Most tokens of a sequence, the end token included.
        jit_compile: As in `keras.Model.compile`.
    """

    def __init__(self, model, search, max_length: int, jit_compile="auto"):
        check_positive_integers(max_length=max_length)
        self._model = model
        self._search = search
        self._max_length = max_length
        self._jit_compile = jit_compile
        self._hypotheses_so_far = 0.0
        self._programs: dict[Hashable, Callable] = {}

    def __call__(self, inputs, tables, batch_size: int | None = None) -> Hypotheses:
        """Finds the best sequences for each sentence.

        Args:
            inputs: The model's inputs.
            tables: The processors' settings for each sentence, as `Search.tables`
                returns them.
            batch_size: Sentences to search at a time; by default what is fastest.

        Returns:
            `Hypotheses` of NumPy arrays.
        """
        inputs = keras.tree.map_structure(ops.convert_to_numpy, inputs)
        num_rows = len(keras.tree.flatten(inputs)[0])
        if num_rows == 0:
            shape = (0, self._search.num_hypotheses)
            ids = np.zeros((*shape, self._max_length), "int32")
            return Hypotheses(ids, np.zeros(shape, "float32"))
        batch_size = batch_size or default_batch_size(self._search)
        jit_compile = self._jit_compile_for(num_rows)
        in_threads = jit_compile is True and worth_halving(
            min(num_rows, batch_size), self._search.num_slots
        )
        num_threads = 2 if in_threads else 1
        num_slots = None
        if jit_compile is False and target.xla_would_compile_for_cpu():
            rows_per_call = min(batch_size, MAX_BATCH_SIZE_WITHOUT_XLA)
            # Tracing one program more takes longer than to compute some rows in vain.
            rows_per_call = min(next_power(4, num_rows), rows_per_call)
        elif num_rows <= batch_size:
            rows_per_call = next_power(2, -(-num_rows // num_threads))
        else:
            num_slots = batch_size // num_threads
            rows_per_call = max(ROWS_PER_CALL, num_slots)
        program = self._program(rows_per_call, num_slots, jit_compile)

        def run(rows):
            filled = np.resize(rows, rows_per_call)  # with copies of the same rows
            arguments = keras.tree.map_structure(lambda x: x[filled], (inputs, tables))
            found = program.run(*arguments, np.int32(len(rows)))
            return [x[: len(rows)] for x in found]

        # Each thread gets sentences from all of the batch, which may be sorted.
        calls = [
            np.arange(first, num_rows, num_threads)[start:][:rows_per_call]
            for first in range(num_threads)
            for start in range(0, -(-num_rows // num_threads), rows_per_call)
        ]
        if in_threads:
            with ThreadPoolExecutor(num_threads) as threads:
                found = list(threads.map(run, calls))
        else:
            found = list(map(run, calls))  # in the caller's thread and its contexts
        order = np.argsort(np.concatenate(calls))
        return Hypotheses(*(np.concatenate(x)[order] for x in zip(*found, strict=True)))

    def _jit_compile_for(self, num_rows):
        """Returns whether XLA compiles the next search, or "auto" for Keras to say."""
        if self._jit_compile != "auto" or not target.xla_would_compile_for_cpu():
            return self._jit_compile
        # The cost of a step, and how many there are, both grow with the length.
        weight = self._search.num_slots * (self._max_length / 64) ** 2
        self._hypotheses_so_far += num_rows * weight
        return self._hypotheses_so_far >= MIN_HYPOTHESES_FOR_XLA

    def _program(self, *settings):
        """Returns the compiled search with these settings of `_find`."""
        if settings not in self._programs:
            _, num_slots, jit_compile = settings
            find = functools.partial(self._find, num_slots)
            program = CompiledFunction(find, self._model, jit_compile)
            self._programs[settings] = program
        return self._programs[settings]

    def _find(self, num_slots, inputs, tables, count):
        """Searches `count` sentences in slots, or all as one batch without slots."""
        model, search, max_length = self._model, self._search, self._max_length
        if num_slots is None:
            return tuple(search.with_tables(tables)(model, inputs, max_length))
        settings = count, num_slots, max_length
        return tuple(search_in_slots(model, search, inputs, tables, *settings))


def next_power(base: int, count: int) -> int:
    """Returns the smallest power of `base` that is at least `count`."""
    power = 1
    while power < count:
        power *= base
    return power
