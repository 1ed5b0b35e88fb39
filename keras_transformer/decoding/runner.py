"""Many sentences through few compiled programs."""

import functools
from collections.abc import Callable, Hashable
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_transformer.checks import check_positive_integers
from keras_transformer.decoding.continuous_batching import search_continuously
from keras_transformer.decoding.search import Hypotheses
from keras_transformer.kernels import target
from keras_transformer.kernels.compiled import CompiledFunction

# Sentences of a call with continuous batching; more would only take memory.
ROWS_PER_CALL = 4096
# Without XLA, larger batches are no faster on a CPU, and smaller ones lose less time to
# waiting for their longest sentence.
MAX_BATCH_SIZE_WITHOUT_XLA = 16
# After this many hypotheses of 64 tokens, XLA has saved the time that compiling takes.
MIN_HYPOTHESES_FOR_XLA = 700


class Plan(NamedTuple):
    """How sentences are split into calls of a compiled program.

    Attributes:
        rows_per_call: Sentences that one call of a program takes.
        batch_size: Sentences that a call searches at a time, by continuous batching;
            None if it searches all of them as one batch.
        jit_compile: Whether XLA compiles the program, or "auto".
    """

    rows_per_call: int
    batch_size: int | None
    jit_compile: bool | str


def default_batch_size(search) -> int:
    """Returns the number of sentences at a time with which CPUs search fastest."""
    return max(32, 128 // search.num_slots)


class SearchRunner:
    """Runs a search of a model, compiled when it is first called.

    Up to `batch_size` sentences are one batch. More are searched by continuous
    batching: when a sentence has ended, the next one takes its place in the batch.
    Batches are filled up, so few programs are compiled, however many sentences there
    are.

    With "auto", XLA compiles for CPUs once so many sentences have been searched that it
    makes up for the time of compiling. Until then, small batches are searched one after
    the other.

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
        self._plans: set[Plan] = set()
        self._programs: dict[Hashable, Callable] = {}

    def __call__(self, inputs, tables, batch_size: int | None = None) -> Hypotheses:
        """Finds the best sequences for each sentence.

        Args:
            inputs: The model's inputs.
            tables: The processors' settings for each sentence, as `Search.tables`
                returns them.
            batch_size: Sentences to search at a time; by default the fastest number.

        Returns:
            `Hypotheses` of NumPy arrays.
        """
        inputs = keras.tree.map_structure(ops.convert_to_numpy, inputs)
        num_rows = len(keras.tree.flatten(inputs)[0])
        if num_rows == 0:
            shape = (0, self._search.num_hypotheses)
            ids = np.zeros((*shape, self._max_length), "int32")
            return Hypotheses(ids, np.zeros(shape, "float32"))
        plan = self._plan(num_rows, batch_size or default_batch_size(self._search))
        rows_per_call = plan.rows_per_call
        program = self._program(*plan)

        def run(rows):
            filled = np.resize(rows, rows_per_call)  # with copies of the same rows
            arguments = keras.tree.map_structure(lambda x: x[filled], (inputs, tables))
            found = program.run(*arguments, np.int32(len(rows)))
            return [x[: len(rows)] for x in found]

        rows = np.arange(num_rows)
        starts = range(0, num_rows, rows_per_call)
        found = [run(rows[start : start + rows_per_call]) for start in starts]
        return Hypotheses(*(np.concatenate(x) for x in zip(*found, strict=True)))

    def _plan(self, num_rows, batch_size):
        jit_compile = self._jit_compile_for(num_rows)
        if jit_compile is False and target.xla_would_compile_for_cpu():
            batch_size = min(batch_size, MAX_BATCH_SIZE_WITHOUT_XLA)
            plan = Plan(min(next_power(4, num_rows), batch_size), None, False)
            return self._program_to_fill_up(plan) or plan
        if num_rows <= batch_size:
            return Plan(next_power(2, num_rows), None, jit_compile)
        return Plan(max(ROWS_PER_CALL, batch_size), batch_size, jit_compile)

    def _program_to_fill_up(self, plan):
        """Returns `plan` with the rows of a larger program, if it comes up first now.

        To fill up a batch once costs less than tracing another program.
        """
        is_new = plan not in self._plans
        self._plans.add(plan)
        larger = [
            program
            for program in self._programs
            if program[1:] == plan[1:] and program[0] > plan.rows_per_call
        ]
        if is_new and larger:
            return plan._replace(rows_per_call=min(larger)[0])
        return None

    def _jit_compile_for(self, num_rows):
        """Returns whether XLA compiles the next search, or "auto": Keras decides."""
        if self._jit_compile != "auto" or not target.xla_would_compile_for_cpu():
            return self._jit_compile
        # The number of steps grows with the length, and so does the time of each.
        weight = self._search.num_slots * (self._max_length / 64) ** 2
        self._hypotheses_so_far += num_rows * weight
        return self._hypotheses_so_far >= MIN_HYPOTHESES_FOR_XLA

    def _program(self, *settings):
        """Returns the compiled search with these settings of a `Plan`."""
        if settings not in self._programs:
            _, batch_size, jit_compile = settings
            find = functools.partial(self._find, batch_size)
            program = CompiledFunction(find, self._model, jit_compile)
            self._programs[settings] = program
        return self._programs[settings]

    def _find(self, batch_size, inputs, tables, count):
        """Searches `count` sentences, `batch_size` at a time; all together if None."""
        model, search, max_length = self._model, self._search, self._max_length
        if batch_size is None:
            return tuple(search.with_tables(tables)(model, inputs, max_length))
        settings = count, batch_size, max_length
        return tuple(search_continuously(model, search, inputs, tables, *settings))


def next_power(base: int, count: int) -> int:
    """Returns the smallest power of `base` that is at least `count`."""
    power = 1
    while power < count:
        power *= base
    return power
