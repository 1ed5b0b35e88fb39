"""Text in, text out, many texts at a time."""

import itertools
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.decoding import BeamSearch, ForcedPrefix, Search
from keras_transformer.models import Transformer
from keras_transformer.text import SubwordTokenizer
from keras_transformer.text.encoding import encode_head
from keras_transformer.translator.saving import read_translator, save_translator

DEFAULT_SEARCH = BeamSearch(4)
SHORTEST_PADDED_LENGTH = 16
BLANK = r"[\s\p{Z}]*"


class Translation(NamedTuple):
    """A translation and its score, as the search defines it."""

    text: str
    score: float


class Translator:
    """Translates text with a trained model.

    A source is padded to the next power of two, from 16 subwords on, and its
    translation is at most twice as long. So what a text is translated to depends
    on nothing but that text, and few shapes are ever compiled, whatever texts
    come.

    Args:
        model: A trained `Transformer`.
        source_tokenizer: Tokenizer of the language to translate from.
        target_tokenizer: Tokenizer of the language to translate to; the same one
            unless given.
        max_source_length: Subwords of a text, end symbol included, that are read;
            what is longer is cut.

    Raises:
        ValueError: If a tokenizer does not fit the model, or `max_source_length` is
            less than 2.

    Example:
        >>> lines = ["a man rides a bike", "a dog rides a man", "a bike"]
        >>> tokenizer = kt.text.SubwordTokenizer.train(lines, vocabulary_size=25)
        >>> model = kt.models.Transformer(
        ...     25, num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16
        ... )
        >>> translator = kt.Translator(model, tokenizer)
        >>> len(translator.translate(["a man", "", "a dog rides"], max_length=5))
        3
    """

    def __init__(
        self,
        model: Transformer,
        source_tokenizer: SubwordTokenizer,
        target_tokenizer: SubwordTokenizer | None = None,
        max_source_length: int = 128,
    ):
        if not isinstance(max_source_length, int) or max_source_length < 2:
            raise ValueError(
                "`max_source_length` must be an integer of at least 2, a subword and "
                f"its end symbol. Received: max_source_length={max_source_length!r}."
            )
        if target_tokenizer is None:
            target_tokenizer = source_tokenizer
        _check_fit(model, source_tokenizer, target_tokenizer)
        self.model = model
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.max_source_length = max_source_length

    def translate(
        self,
        texts: Sequence[str],
        search: Search = DEFAULT_SEARCH,
        batch_size: int = 32,
        max_length: int | None = None,
    ) -> list[str]:
        """Translates texts, which may be many, and returns them in their order.

        Texts of about the same length are translated together. An empty text, or
        one of white space only, has an empty translation.

        Args:
            texts: What to translate, a list of str.
            search: A search of `keras_transformer.decoding`.
            batch_size: Texts that are translated at once.
            max_length: Subwords of a translation at most, end symbol included; by
                default twice the padded length of its source.

        Returns:
            The best translation of each text.

        Raises:
            ValueError: If `texts` is not a list of str, or `search` forces a prefix
                for each of them: texts are sorted.
        """
        found = self.translate_n_best(texts, search, batch_size, max_length)
        return [translations[0].text for translations in found]

    def translate_n_best(
        self,
        texts: Sequence[str],
        search: Search = DEFAULT_SEARCH,
        batch_size: int = 32,
        max_length: int | None = None,
    ) -> list[list[Translation]]:
        """Translates texts as `translate` does, but returns all that was found.

        Args:
            texts: What to translate, a list of str.
            search: A search of `keras_transformer.decoding`; its `num_hypotheses`
                says how many translations to return of each text.
            batch_size: Texts that are translated at once.
            max_length: As in `translate`.

        Returns:
            For each text a list of `Translation`, the best first. A score of minus
            infinity marks a place for which nothing was found; those of an empty
            text are 0.

        Raises:
            ValueError: As `translate` does.
        """
        check_serves_any_text(search)
        texts = _list_of_texts(texts)
        if batch_size < 1:
            raise ValueError(
                "`batch_size` must be a positive integer. "
                f"Received: batch_size={batch_size}."
            )
        if not texts:
            return []
        # A lone surrogate, of which UTF-8 knows nothing, becomes a question mark.
        ids, is_cut = self.encode([text.encode("utf-8", "replace") for text in texts])
        ids, is_cut = ids.numpy(), is_cut.numpy()
        if is_cut.any():
            warnings.warn(
                f"{is_cut.sum()} of {len(texts)} texts are longer than "
                f"max_source_length={self.max_source_length} subwords and were cut, "
                f"the first of them texts[{is_cut.argmax()}].",
                stacklevel=2,
            )
        found = [[Translation("", 0.0)] * search.num_hypotheses for _ in texts]
        # Few texts do not fill up a batch; beyond that all batches are of one size.
        batch_size = min(batch_size, 1 << (len(texts) - 1).bit_length())
        for rows, batch in _batches(ids, self.padded_lengths(), batch_size):
            limit = max_length
            if limit is None:
                limit = self.max_target_length(batch.shape[1])
            hypotheses = self.model.generate(batch, search, limit)
            translations = self._translations(hypotheses)
            # What fills up a batch comes last, and no row is left for it.
            for row, best_first in zip(rows, translations, strict=False):
                found[row] = best_first
        return found

    def translate_stream(
        self,
        lines: Iterable[str],
        search: Search = DEFAULT_SEARCH,
        batch_size: int = 32,
        max_length: int | None = None,
        chunk_size: int = 1024,
    ) -> Iterator[str]:
        """Translates line by line, in memory that does not grow with the text.

        Args:
            lines: Any iterable of str, such as an open file.
            search: A search of `keras_transformer.decoding`.
            batch_size: Texts that are translated at once.
            max_length: As in `translate`.
            chunk_size: Lines that are read before the first translation appears,
                and sorted by length.

        Yields:
            The translations, in the order of the lines.
        """
        lines = iter(lines)
        while chunk := list(itertools.islice(lines, chunk_size)):
            yield from self.translate(chunk, search, batch_size, max_length)

    def export(
        self,
        path: str | os.PathLike,
        search: Search = DEFAULT_SEARCH,
        max_length: int | None = None,
        jit_compile: bool = False,
    ) -> Path:
        """Writes a SavedModel that TensorFlow Serving translates with.

        It holds tokenizers, model and search, and needs nothing of this package. Its
        signatures take a batch of any size, of texts of any lengths:

        | Signature | Inputs | Outputs |
        | --- | --- | --- |
        | `serving_default` | `text` | `translation`, `score` |
        | `translate_n_best` | `text` | `translations`, `scores` |
        | `translate_ids` | `source_ids` | `ids`, `score` |
        | `score` | `text`, `target` | `log_probability`, `tokens` |

        All are of shape `(batch,)`, except for `translations` and `scores`, `(batch,
        num_hypotheses)`, and for ids, `(batch, length)`, which have end symbols and
        are padded with 0. Texts that are too long are cut, as `translate` cuts them;
        a target is cut at twice `max_source_length`, or at `max_length`.

        The folder appears under its name when it is complete. It holds requests to
        warm a server up, and the settings of this export in
        `assets.extra/translator.json`.

        Args:
            path: Folder of the new version, such as `saved_models/en-de/1`.
            search: The search that it translates with; its `num_hypotheses` says how
                many translations `translate_n_best` returns.
            max_length: As in `translate`.
            jit_compile: Whether XLA compiles the search where it is served: faster,
                once it is compiled, for some seconds, at the first request of each
                length and size of batch. Batches are filled up to a power of two.
                The server's TensorFlow must have XLA for its device. What is exported
                where there is no GPU takes large batches in two halves side by side,
                which is no help to a server that has one.

        Returns:
            The path.

        Raises:
            FileExistsError: If there is something at `path`.
            ValueError: If `search` draws without a seed, or forces a prefix for each
                text of a batch.
        """
        from keras_transformer.serving.saved_model import (
            export_translator,  # which needs this
        )

        return export_translator(self, path, search, max_length, jit_compile)

    def encode(self, texts):
        """Returns texts as the model reads them: subwords, end symbol, padding.

        These are TensorFlow ops, which an export runs too.

        Args:
            texts: List of str or bytes, or string tensor of shape `(batch,)`.

        Returns:
            Ids, int32 of shape `(batch, length)`, all padding where a text is blank,
            and a boolean tensor of shape `(batch,)`: which texts were cut.
        """
        texts = tf.convert_to_tensor(texts, tf.string)
        tokenizer = self.source_tokenizer
        ids, is_cut = encode_head(texts, tokenizer, self.max_source_length)
        has_subwords = (ids != tokenizer.end_id) & (ids != tokenizer.pad_id)
        is_blank = tf.strings.regex_full_match(texts, BLANK)
        is_blank |= ~tf.reduce_any(has_subwords, axis=1)
        return tf.where(is_blank[:, None], tokenizer.pad_id, ids), is_cut & ~is_blank

    def padded_lengths(self) -> list[int]:
        """Returns the few lengths that sources are padded to, rising."""
        lengths = [min(SHORTEST_PADDED_LENGTH, self.max_source_length)]
        while lengths[-1] < self.max_source_length:
            lengths.append(min(2 * lengths[-1], self.max_source_length))
        return lengths

    def max_target_length(self, padded_length: int) -> int:
        """Returns how long translations of sources padded to a length may be."""
        return 2 * padded_length

    def save(self, folder: str | os.PathLike) -> None:
        """Writes the translator to a folder, which is made or added to.

        The folder then holds `model.keras`, without the state of an optimizer;
        `source.model` and `target.model`, or one `shared.model`; and
        `translator.json`. They appear together, once all of them are written.

        Args:
            folder: Where to write. What else it holds stays.
        """
        save_translator(self, folder)

    @classmethod
    def load(cls, folder: str | os.PathLike) -> "Translator":
        """Reads a translator that `save` wrote.

        Raises:
            FileNotFoundError: If the folder holds no translator, or not all of it.
            ValueError: If a file of it is damaged, or they do not go together.
        """
        parts = read_translator(folder)
        try:
            return cls(*parts)
        except ValueError as error:
            raise ValueError(f"{folder} cannot be loaded. {error}") from None

    def _translations(self, hypotheses):
        texts = self.target_tokenizer.detokenize(hypotheses.ids).numpy()
        return [
            [
                Translation(text.decode("utf-8", "replace"), float(score))
                for text, score in zip(*best_first, strict=True)
            ]
            for best_first in zip(texts, hypotheses.scores, strict=True)
        ]


def check_serves_any_text(search: Search):
    """Raises `ValueError` if a search is meant for the texts of one batch alone."""
    for processor in search.processors:
        if isinstance(processor, ForcedPrefix) and processor.num_sequences != 1:
            raise ValueError(
                "`search` must force one prefix for all texts, which are sorted. "
                f"Received: prefixes for {processor.num_sequences} texts. Translate "
                "each text with a search of its own, or call `model.generate`."
            )


def _batches(ids, padded_lengths, batch_size):
    """Yields `(rows, ids of the rows)`, the shortest first, without rows of padding.

    All batches have `batch_size` rows: copies of its own rows fill up the last one of
    each length, since they take no more steps than it does.
    """
    lengths = np.count_nonzero(ids, axis=1)
    ids = np.pad(ids, ((0, 0), (0, padded_lengths[-1] - ids.shape[1])))
    order = np.argsort(lengths, kind="stable")
    order = order[lengths[order] > 0]
    for length in padded_lengths:
        fits = lengths[order] <= length
        for start in range(0, fits.sum(), batch_size):
            rows = order[fits][start : start + batch_size]
            yield rows, ids[np.resize(rows, batch_size), :length]
        order = order[~fits]


def _list_of_texts(texts):
    is_single = isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable)
    texts = [texts] if is_single else list(texts)
    for index, text in enumerate(texts):
        if is_single or not isinstance(text, str):
            place = "texts" if is_single else f"texts[{index}]"
            raise ValueError(
                "`texts` must be a list of str. "
                f"Received: {place} of type {type(text).__name__}."
            )
    return texts


def _check_fit(model, source_tokenizer, target_tokenizer):
    if not isinstance(model, Transformer):
        raise ValueError(
            f"`model` must be a Transformer. Received: a {type(model).__name__}."
        )
    config = model.get_config()
    source_size = config["source_vocabulary_size"]
    target_size = config["target_vocabulary_size"] or source_size
    for side, size, tokenizer in (
        ("source", source_size, source_tokenizer),
        ("target", target_size, target_tokenizer),
    ):
        if tokenizer.vocabulary_size != size:
            raise ValueError(
                f"`{side}_tokenizer` must have the model's {side} vocabulary of {size} "
                f"subwords. Received: one of {tokenizer.vocabulary_size} subwords."
            )
    for name in ("pad_id", "start_id", "end_id"):
        if getattr(model, name) != getattr(target_tokenizer, name):
            raise ValueError(
                f"`model` must have the {name} of its tokenizers, "
                f"{getattr(target_tokenizer, name)}. "
                f"Received: {name}={getattr(model, name)}."
            )
