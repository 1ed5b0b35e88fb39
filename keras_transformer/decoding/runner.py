"""The implementation of `generate`: many sentences with few compiled programs."""

import functools
import warnings

import keras
import numpy as np
from keras import ops

from keras_transformer.checks import check_positive_integers
from keras_transformer.decoding.continuous_batching import search_continuously
from keras_transformer.decoding.greedy import GreedySearch
from keras_transformer.decoding.model import CachedModel
from keras_transformer.decoding.search import (
    Hypotheses,
    Search,
    check_search,
    power_of_two,
)
from keras_transformer.kernels import target
from keras_transformer.kernels.compiled import CompiledFunction
from keras_transformer.layers.cache import first_length
from keras_transformer.layers.keys_values import lengthen_cache

MAX_PROGRAMS = 64  # that a model keeps
# Sentences of a call with continuous batching, and bytes of their inputs and results:
# more would only take memory.
MAX_ROWS_PER_CALL, MAX_BYTES_PER_CALL = 4096, 2**26
# Without XLA, larger batches are no faster on a CPU, and smaller ones lose less time to
# waiting for their longest sentence.
MAX_BATCH_SIZE_WITHOUT_XLA = 16
# With this many hypotheses in a call, XLA saves about its time to compile.
MIN_HYPOTHESES_FOR_XLA = 256
# A core with fewer reads the weights too often for the work that it does.
MIN_HYPOTHESES_PER_CORE = 64


class SearchRunner:
    """Runs searches of a model, and compiles them when first needed.

    Up to `batch_size` sentences form one batch. More are searched by continuous
    batching: when a sentence has ended, the next one takes its place in the batch.
        Sentences that exceed the model's `likely_length` are searched again, together.
        Batches are filled up, so few programs are compiled for any number of sentences.
        Without XLA, small batches are searched one after another. On CPUs, each core
        searches a share of the sentences.

    With `jit_compile="auto"`, XLA compiles for CPUs if a call has many sentences and
    the model computes in float32. In half precision, which programs round differently,
    it never does, and all batches have one size: a sentence gets the same result in
    every call.

    Args:
        model: A `GenerationMixin`, with its `variables` and its `compute_dtype`.
    """

    def __init__(self, model):
        self._model = model
        self._variables: list = []
        self._program = functools.lru_cache(MAX_PROGRAMS)(self._make_program)

    def __call__(
        self,
        inputs,
        search: Search | None,
        max_length: int,
        batch_size: int | None,
        vocabulary_size: int,
        longest: int | None = None,
    ) -> Hypotheses:
        """Finds the best sequences for each sentence, compiled as the model was.

        Arguments and result are as in `Transformer.generate`. The model produces
        `vocabulary_size` tokens, and has `longest` positions; None for any number.
        """
        search = GreedySearch() if search is None else search
        check_search(search, vocabulary_size)
        if batch_size is not None:
            check_positive_integers(batch_size=batch_size)
        inputs = keras.tree.map_structure(ops.convert_to_numpy, inputs)
        num_rows = len(keras.tree.flatten(inputs)[0])
        if num_rows == 0:
            shape = (0, search.num_hypotheses)
            ids = np.zeros((*shape, max_length), "int32")
            return Hypotheses(ids, np.zeros(shape, "float32"))
        # The limit of the length and the settings of single sentences are inputs of the
        # program, so that it serves others.
        tables = search.tables(self._model, inputs, max_length)
        limit, max_length = np.int32(max_length), power_of_two(max_length)
        if longest is not None:
            max_length = min(max_length, longest)
        search = search.with_tables(dict.fromkeys(tables))

        settings = search, limit, max_length, batch_size
        likely = power_of_two(self._model.likely_length(inputs) or max_length)
        cache_length = min(likely, max_length)
        ids, scores, is_final = self._search(inputs, tables, *settings, cache_length)
        longer = np.flatnonzero(~is_final)
        if len(longer):
            take = functools.partial(np.take, indices=longer, axis=0)
            inputs, tables = keras.tree.map_structure(take, (inputs, tables))
            found = self._search(inputs, tables, *settings, max_length)
            ids[longer], scores[longer], _ = found
        empty = np.flatnonzero(~(scores[:, 0] > -np.inf))  # NaN, too
        if len(empty):
            fault = "The model computes NaN"
            if search.processors:
                fault += ", or the processors contradict each other,"
            warnings.warn(
                f"{fault} for {len(empty)} of {num_rows} inputs, first for "
                f"inputs[{empty[0]}]: no token is possible. "
                f"Received: processors={search.processors}.",
                stacklevel=3,
            )
        return Hypotheses(ids[..., :limit], scores)

    def _search(
        self, inputs, tables, search, limit, max_length, batch_size, cache_length
    ):
        """Returns ids and scores, and which of them need no longer cache than that."""
        jit_compile = self._model.asked_jit_compile
        num_rows = len(keras.tree.flatten(inputs)[0])
        is_exact = self._model.compute_dtype == "float32"
        is_on_cpu = target.xla_would_compile_for_cpu()
        if is_on_cpu and jit_compile == "auto":
            is_large = num_rows * search.num_slots >= MIN_HYPOTHESES_FOR_XLA
            jit_compile = is_large and is_exact
        # With more, the caches of a step leave the processor's own.
        batch_size = batch_size or max(32, 64 // search.num_slots)
        # How many calls of a compiled program run side by side, and their sentences.
        most = num_rows * search.num_slots // MIN_HYPOTHESES_PER_CORE
        num_calls = max(1, min(target.num_cores() if is_on_cpu else 1, most))
        rows_each = -(-num_rows // num_calls)
        if is_on_cpu and not jit_compile:
            batch_size = min(batch_size, MAX_BATCH_SIZE_WITHOUT_XLA)
            if is_exact:
                sizes = (size for size in (1, 4) if size >= num_rows)
                batch_size = min([batch_size, *sizes])
            rows_per_call = batch_size
        elif rows_each <= batch_size:
            rows_per_call = batch_size = min(power_of_two(rows_each), batch_size)
        else:
            held = keras.tree.flatten((inputs, tables))
            row_bytes = sum(x[:1].nbytes for x in held)
            row_bytes += search.num_hypotheses * max_length * np.int32().nbytes
            rows_per_call = min(MAX_ROWS_PER_CALL, MAX_BYTES_PER_CALL // row_bytes)
            rows_per_call = max(rows_per_call, batch_size)
        if rows_per_call == batch_size:
            cache_length = max_length  # `Search` lengthens the cache of a batch

        variables = list(self._model.variables)
        if list(map(id, variables)) != list(map(id, self._variables)):
            self._program.cache_clear()  # the model was quantized or adapted
            self._variables = variables
        settings = search, max_length, cache_length, rows_per_call, batch_size
        rows = np.arange(num_rows)
        num_calls = max(num_calls, -(-num_rows // rows_per_call))
        # Sentences that are sorted by length stay together in a batch. Continuous
        # batches get equal shares of long and short ones.
        rows_of_calls = np.array_split(rows, num_calls)
        if rows_per_call > batch_size:
            rows_of_calls = [rows[first::num_calls] for first in range(num_calls)]

        def arguments(rows):
            filled = np.resize(rows, rows_per_call)  # with copies of the same rows
            take = functools.partial(np.take, indices=filled, axis=0)
            rows_of = keras.tree.map_structure(take, (inputs, tables))
            return *rows_of, np.int32(len(rows)), limit

        program = self._program(*settings, jit_compile)
        outputs = program.run_all(map(arguments, rows_of_calls))
        found = [
            [x[: len(rows)] for x in one]
            for rows, one in zip(rows_of_calls, outputs, strict=True)
        ]
        order = np.argsort(np.concatenate(rows_of_calls))
        return [np.concatenate(x)[order] for x in zip(*found, strict=True)]

    def _make_program(
        self, search, max_length, cache_length, rows_per_call, batch_size, jit_compile
    ):
        """Compiles a search of `rows_per_call` sentences, `batch_size` at a time."""
        model = self._model

        def find(inputs, tables, count, limit):
            if rows_per_call == batch_size:
                bound = search.with_tables(tables)
                found = bound(model, inputs, max_length, limit)
                return *found, ops.ones((rows_per_call,), "bool")
            settings = count, limit, batch_size, max_length, cache_length
            found, is_final = search_continuously(
                model, search, inputs, tables, *settings
            )
            return *found, is_final

        return CompiledFunction(find, model, jit_compile)


class GenerationMixin(CachedModel):
    """Base class of models that run their own compiled searches."""

    asked_jit_compile: bool | str = "auto"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._runner = SearchRunner(self)

    def first_cache_length(self, max_length: int, num_hypotheses: int) -> int:
        return first_length(max_length, num_hypotheses)

    def lengthen(self, cache, length: int):
        return lengthen_cache(cache, length)
