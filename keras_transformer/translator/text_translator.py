"""Translating lists and streams of texts, by any way of translating some of them."""

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from keras_transformer.checks import check_positive_integers
from keras_transformer.decoding import Search
from keras_transformer.translator.batching import chunks_of
from keras_transformer.translator.checks import check_lines


class Translation(NamedTuple):
    """A translation and its score.

    Attributes:
        text: The translation.
        score: Its score, as the search defines it.
    """

    text: str
    score: float


class TextTranslator:
    """Translates with what a subclass defines as `translate_n_best`."""

    def translate_n_best(
        self,
        texts: Sequence[str],
        search: Search | None = None,
        batch_size: int | None = None,
        max_length: int | None = None,
    ) -> list[list[Translation]]:
        """Returns the translations of each text, best first."""
        raise NotImplementedError

    def translate(
        self,
        texts: Sequence[str],
        search: Search | None = None,
        batch_size: int | None = None,
        max_length: int | None = None,
        choose: Callable[[list[Translation]], Translation] | None = None,
    ) -> list[str]:
        """Translates a list of texts of any length.

        As one translation ends, the next text begins in its place. An empty text, or
        one with only white space, has an empty translation. A translation is returned
        without the end token of the search that it ends with.

        Args:
            texts: What to translate, a list of str.
            search: A search of `keras_transformer.decoding`; the translator's own
                unless given.
            batch_size: Number of texts that are translated at a time, which memory
                limits; by default what is fastest on CPUs.
            max_length: The most subwords of a translation, end token included; by
                default twice the padded length of its source, or the number of the
                model's positions if that is less.
            choose: Function from the translations of a text, best first, to one of
                them, such as `minimum_bayes_risk`; by default the first.

        Returns:
            The chosen translation of each text, in the order of the texts.

        Raises:
            ValueError: If `texts` is not a list of str, or if `search` forces a
                different prefix for each text, since texts are sorted.
        """
        found = self.translate_n_best(texts, search, batch_size, max_length)
        choose = choose or operator.itemgetter(0)
        return [choose(translations).text for translations in found]

    def translate_stream(
        self,
        lines: Iterable[str],
        search: Search | None = None,
        batch_size: int | None = None,
        max_length: int | None = None,
        chunk_size: int = 8192,
        choose: Callable[[list[Translation]], Translation] | None = None,
    ) -> Iterator[str]:
        """Translates line by line, in memory that does not grow with the text.

        `lines` is any iterable of str, such as an open file. `chunk_size` of them are
        read and translated at a time, and an eighth of that at first. The other
        arguments are those of `translate`. Warnings about texts that are too long
        count the texts of one chunk.

        Yields:
            The translations, in the order of the lines.

        Raises:
            ValueError: If `lines` is a single text or a path, if `chunk_size` is not
                positive, or as in `translate`.
        """
        check_lines(lines)
        check_positive_integers(chunk_size=chunk_size)
        for chunk in chunks_of(lines, chunk_size):
            yield from self.translate(chunk, search, batch_size, max_length, choose)
