"""Searches of models that offer a cached step, and the settings of compiling them."""

from keras_transformer.checks import check_positive_integers, check_vocabulary
from keras_transformer.decoding import CachedModel, GreedySearch, Hypotheses, Search
from keras_transformer.decoding.runner import SearchRunner
from keras_transformer.decoding.search import check_search
from keras_transformer.layers.cache import growing_lengths, lengthen_cache

# A longer cache is filled only by few sentences.
MAX_FIRST_CACHE_LENGTH = 256


class GenerationMixin(CachedModel):
    """Runs compiled searches of a model."""

    asked_jit_compile: bool | str = "auto"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._runner = SearchRunner(self)

    def run_search(
        self,
        inputs,
        search: Search | None,
        max_length: int,
        batch_size: int | None,
        vocabulary_size: int,
    ) -> Hypotheses:
        """Runs a search, compiled as the model was.

        Args:
            inputs: Integer array or tensor of shape `(batch, length)`.
            search: A search of `keras_transformer.decoding`; greedy if None.
            max_length: Most tokens to produce, the end token included.
            batch_size: As in `SearchRunner`.
            vocabulary_size: Number of tokens that the model produces.
        """
        search = GreedySearch() if search is None else search
        check_search(search)
        if batch_size is not None:
            check_positive_integers(batch_size=batch_size)
        for ids in (search.end_ids or (), *(x.named_ids() for x in search.processors)):
            check_vocabulary(ids, vocabulary_size)
        return self._runner(
            search, inputs, max_length, batch_size, self.asked_jit_compile
        )

    def first_cache_length(self, max_length: int, num_hypotheses: int) -> int:
        *shorter, _ = growing_lengths(max_length, num_hypotheses)
        shorter = [length for length in shorter if length <= MAX_FIRST_CACHE_LENGTH]
        return shorter[-1] if shorter else max_length

    def lengthen(self, cache, length: int):
        return lengthen_cache(cache, length)
