"""`generate` and its compiled searches, for models with a cached step."""

import functools
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer.checks import (
    check_ids,
    check_positive_integers,
    check_vocabulary,
)
from keras_transformer.decoding import (
    BannedIds,
    ForcedPrefix,
    GreedySearch,
    Hypotheses,
    Search,
)
from keras_transformer.decoding.runner import SearchRunner
from keras_transformer.decoding.search import check_search
from keras_transformer.layers.cache import growing_lengths, lengthen_cache
from keras_transformer.layers.positions import check_position_range

MAX_RUNNERS = 64  # searches whose compiled programs a model keeps


def names_of_variables(model) -> str:
    """Names the variables of a model: what was compiled reads those of its time."""
    return " ".join(f"{x.path} {x.dtype}" for x in model.variables)


def check_vocabulary_of(search: Search, settings: dict) -> None:
    """Raises `ValueError` if a search names ids outside a model's vocabulary."""
    names = "target_vocabulary_size", "source_vocabulary_size", "vocabulary_size"
    size = next(settings[name] for name in names if settings.get(name))
    named = [search.end_ids or ()]
    for processor in search.processors:
        if isinstance(processor, BannedIds | ForcedPrefix):
            named.append(processor.ids)
    for ids in named:
        is_tensor = ops.is_tensor(ids)
        ids = ops.convert_to_numpy(ids) if is_tensor else keras.tree.flatten(ids)
        check_vocabulary(np.maximum(ids, 0), size)  # negative where a prefix is free


class GenerationMixin:
    """Runs searches of a model that offers `start` and `step`.

    The model's settings hold its `pad_id`, `start_id` and `end_id`; its `positions`
    are the layer of positions that acts on inputs, or None.
    """

    _settings: dict[str, Any]
    variables: list[Any]
    positions: Any

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        # A cached function, since Keras would track and save a container of runners.
        make_runner = functools.partial(SearchRunner, self)
        self._asked_jit_compile = "auto"
        self._runner = functools.lru_cache(MAX_RUNNERS)(make_runner)
        self._variables_of_runners = ""

    @property
    def pad_id(self) -> int:
        return self._settings["pad_id"]

    @property
    def start_id(self) -> int:
        return self._settings["start_id"]

    @property
    def end_id(self) -> int:
        return self._settings["end_id"]

    def compile(self, *args, jit_compile="auto", **kwargs):
        super().compile(*args, jit_compile=jit_compile, **kwargs)
        self._asked_jit_compile = jit_compile

    def get_compile_config(self):
        config = super().get_compile_config()
        if config:
            # Keras would save what "auto" became for training on this machine.
            config["jit_compile"] = self._asked_jit_compile
        return config

    def run_search(
        self,
        inputs,
        search: Search | None,
        max_length: int,
        batch_size: int | None = None,
    ) -> Hypotheses:
        """Runs a search, compiled once for each search, length and `jit_compile`.

        Args:
            inputs: Integer array or tensor of shape `(batch, length)`.
            search: A search of `keras_transformer.decoding`; greedy if None.
            max_length: Most tokens to produce, the end token included.
            batch_size: As in `SearchRunner`.
        """
        search = GreedySearch() if search is None else search
        check_search(search)
        if batch_size is not None:
            check_positive_integers(batch_size=batch_size)
        check_vocabulary_of(search, self._settings)
        tables = search.tables(inputs)
        # Settings of single sentences are inputs of the compiled program.
        search = search.with_tables(dict.fromkeys(tables))
        variables = names_of_variables(self)
        if variables != self._variables_of_runners:
            self._runner.cache_clear()
            self._variables_of_runners = variables
        runner = self._runner(search, max_length, self._asked_jit_compile)
        return runner(inputs, tables, batch_size)

    def cache_lengths(self, max_length: int, num_hypotheses: int) -> list[int]:
        """Returns the lengths that the cache grows through, `max_length` last.

        Args:
            max_length: Most tokens to produce.
            num_hypotheses: Number of hypotheses of each sentence.

        Raises:
            ValueError: If the model has fewer positions.
        """
        check_position_range(self.positions, max_length)
        return growing_lengths(max_length, num_hypotheses)

    def lengthen(self, cache, length: int):
        """Returns the cache with `length` positions."""
        return lengthen_cache(cache, length)


class SourceGenerationMixin(GenerationMixin):
    """Adds `generate` to models that read a source.

    The model's settings hold its `source_vocabulary_size` as well.
    """

    def generate(
        self,
        source_ids,
        search: Search | None = None,
        max_length: int = 64,
        batch_size: int | None = None,
    ) -> Hypotheses:
        """Decodes with a search, compiled once for each search and length.

        Any number of sentences may be given: as one ends, the next begins in its
        place; see `SearchRunner`. XLA compiles where it pays, unless the model was
        compiled with another `jit_compile` than "auto".

        Args:
            source_ids: Integer array or tensor of shape
                `(batch, source_length)`, padded with `pad_id`.
            search: A search of `keras_transformer.decoding`; greedy unless given.
            max_length: Most tokens to produce, the end token included.
            batch_size: Sentences to search at a time, which memory limits; by default
                what is fastest on CPUs.

        Returns:
            `Hypotheses` of NumPy arrays, the best first: `ids` of shape `(batch,
            hypotheses, max_length)` and `scores` of shape `(batch, hypotheses)`.

        Raises:
            ValueError: If `source_ids` are not integers of that shape, or the
                model has too few positions for sources or targets.
        """
        check_ids(source_ids, "source_ids")
        check_vocabulary(source_ids, self._settings["source_vocabulary_size"])
        check_positive_integers(max_length=max_length)
        # Checked here, since the compiled program does not know the length.
        self.check_lengths(source_ids.shape[1], max_length)
        return self.run_search(source_ids, search, max_length, batch_size)

    @property
    def max_positions(self) -> int | None:
        """The most tokens of a source or a target; None if there is no limit."""
        return getattr(self.positions, "max_length", None)

    def check_lengths(self, *lengths: int) -> None:
        """Raises `ValueError` if the model has fewer positions than one of these."""
        check_position_range(self.positions, max(lengths))
