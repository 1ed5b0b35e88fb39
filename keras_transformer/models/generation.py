"""From a model that takes cached steps to `model.generate`."""

import functools

import numpy as np

from keras_transformer.checks import check_integer_ids
from keras_transformer.decoding import GreedySearch, Hypotheses
from keras_transformer.decoding.runner import SearchRunner
from keras_transformer.layers.cache import cache_lengths, lengthen_cache
from keras_transformer.layers.positions import check_position_range

MOST_COMPILED = 64  # pairs of search and length, the latest of which are kept


class GenerationMixin:
    """Gives `generate` to a model that offers `start` and `step`.

    The ids that searches ask for are among its settings.
    """

    @property
    def pad_id(self) -> int:
        return self._settings["pad_id"]

    @property
    def start_id(self) -> int:
        return self._settings["start_id"]

    @property
    def end_id(self) -> int:
        return self._settings["end_id"]

    def cache_lengths(self, max_length: int, num_hypotheses: int) -> list[int]:
        """Returns how long the cache is to be, one after the other.

        Args:
            max_length: Most tokens to produce.
            num_hypotheses: Number of hypotheses of each sentence.

        Raises:
            ValueError: If there are not as many positions.
        """
        check_position_range(self.positions, max_length)
        return cache_lengths(max_length, num_hypotheses)

    def lengthen(self, cache, length: int):
        """Returns the cache with room for `length` positions."""
        return lengthen_cache(cache, length)

    def generate(self, source_ids, search=None, max_length: int = 64):
        """Decodes with a search, compiled once for each search and length.

        Sentences that end early drop out of the batch; see `SearchRunner`.

        Args:
            source_ids: Integer array or tensor of shape
                `(batch, source_length)`, padded with `pad_id`.
            search: A search of `keras_transformer.decoding`; greedy unless
                given.
            max_length: Most tokens to produce, the end symbol counted.

        Returns:
            `Hypotheses` of NumPy arrays: `ids` of shape
            `(batch, hypotheses, max_length)` and `scores` of shape
            `(batch, hypotheses)`, the best first.

        Raises:
            ValueError: If `source_ids` are not integers of that shape.
        """
        if len(np.shape(source_ids)) != 2:
            raise ValueError(
                "`source_ids` must have the shape (batch, source_length). "
                f"Received: source_ids of shape {tuple(np.shape(source_ids))}."
            )
        check_integer_ids(source_ids, "source_ids")
        search = GreedySearch() if search is None else search
        if "_compiled_search" not in self.__dict__:
            # Out of sight of the model, which saves what it sees.
            make = functools.partial(SearchRunner, self)
            self.__dict__["_compiled_search"] = functools.lru_cache(MOST_COMPILED)(make)
        # What is known of each sentence is no part of what is compiled.
        tables = search.tables(len(source_ids))
        search = search.with_tables(dict.fromkeys(tables))
        compiled = self.__dict__["_compiled_search"](search, max_length)
        return Hypotheses(*compiled(source_ids, tables))
