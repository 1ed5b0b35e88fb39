"""Text in, text out: tokenizers, model and search in one object."""

import itertools
import json
import os
import shutil
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.decoding import BeamSearch, Search
from keras_transformer.models import Transformer
from keras_transformer.text import SubwordTokenizer, encode

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
        if max_source_length < 2:
            raise ValueError(
                "`max_source_length` must be at least 2, a subword and its end symbol. "
                f"Received: max_source_length={max_source_length}."
            )
        if target_tokenizer is None:
            target_tokenizer = source_tokenizer
        _check_fit(model, source_tokenizer, target_tokenizer)
        self.model = model
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.max_source_length = max_source_length

    @property
    def has_shared_tokenizer(self) -> bool:
        """Whether both languages are split by one vocabulary."""
        return self.source_tokenizer.model_proto == self.target_tokenizer.model_proto

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
            ValueError: If `texts` is not a list of str.
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
            ValueError: If `texts` is not a list of str.
        """
        _check_texts(texts)
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
            limit = max_length or self.max_target_length(batch.shape[1])
            hypotheses = self.model.generate(batch, search, limit)
            texts_found = self.target_tokenizer.detokenize(hypotheses.ids).numpy()
            for row, some, scores in zip(
                rows, texts_found, hypotheses.scores, strict=False
            ):
                found[row] = [
                    Translation(text.decode("utf-8", "replace"), float(score))
                    for text, score in zip(some, scores, strict=True)
                ]
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

    def encode(self, texts):
        """Returns texts as the model reads them: subwords, end symbol, padding.

        These are TensorFlow ops, which an export runs too.

        Args:
            texts: List of str or bytes, or string tensor of shape `(batch,)`.

        Returns:
            Ids, int32 of shape `(batch, length)`, all padding where a text is blank,
            and a boolean tensor of shape `(batch,)`: which texts were cut.
        """
        ids, is_cut = encode(texts, self.source_tokenizer, self.max_source_length)
        is_blank = tf.strings.regex_full_match(texts, BLANK)
        is_blank |= ids[:, 0] == self.source_tokenizer.end_id
        pad_id = self.source_tokenizer.pad_id
        return tf.where(is_blank[:, None], pad_id, ids), is_cut & ~is_blank

    def padded_lengths(self) -> list[int]:
        """Returns the few lengths that sources are padded to, rising."""
        lengths = [SHORTEST_PADDED_LENGTH]
        while lengths[-1] < self.max_source_length:
            lengths.append(2 * lengths[-1])
        return [*lengths[:-1], self.max_source_length]

    def max_target_length(self, padded_length: int) -> int:
        """Returns how long the translation of a source of that length may be."""
        return 2 * padded_length

    def save(self, folder: str | os.PathLike) -> None:
        """Writes the translator to a folder, which is made or added to.

        The folder then holds `model.keras`, without the state of an optimizer;
        `source.model` and `target.model`, or one `shared.model`; and
        `translator.json`. They appear together, once all of them are written.

        Args:
            folder: Where to write. What else it holds stays.
        """
        folder = Path(folder)
        unfinished = folder / f".unfinished-{os.getpid()}"
        unfinished.mkdir(parents=True)
        try:
            # A fresh model of the same weights has no optimizer to be saved.
            model = type(self.model).from_config(self.model.get_config())
            model.set_weights(self.model.get_weights())
            model.save(unfinished / "model.keras")
            for name, tokenizer in self._tokenizers().items():
                tokenizer.save(unfinished / f"{name}.model")
            settings = {"format": 1, "max_source_length": self.max_source_length}
            text = json.dumps(settings, indent=2) + "\n"
            (unfinished / "translator.json").write_text(text, encoding="utf-8")
            # By name, so that translator.json, which makes a translator, comes last.
            for path in sorted(unfinished.iterdir()):
                os.replace(path, folder / path.name)
            for name in {"shared", "source", "target"} - self._tokenizers().keys():
                (folder / f"{name}.model").unlink(missing_ok=True)
        finally:
            shutil.rmtree(unfinished)

    @classmethod
    def load(cls, folder: str | os.PathLike) -> "Translator":
        """Reads a translator that `save` wrote.

        Raises:
            FileNotFoundError: If the folder holds no translator, or not all of it.
            ValueError: If a file of it is damaged, or they do not go together.
        """
        folder = Path(folder)
        if not (folder / "translator.json").is_file():
            raise FileNotFoundError(
                f"{folder} holds no translator: there is no translator.json. Name a "
                "folder that `Translator.save` wrote."
            )
        try:
            text = (folder / "translator.json").read_text(encoding="utf-8")
            max_source_length = json.loads(text)["max_source_length"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{folder / 'translator.json'} is damaged ({error!r}). Save the "
                "translator again."
            ) from None
        is_shared = (folder / "shared.model").is_file()
        names = ["shared"] if is_shared else ["source", "target"]
        tokenizers = [SubwordTokenizer.load(folder / f"{name}.model") for name in names]
        model = _load_model(folder / "model.keras")
        return cls(model, tokenizers[0], tokenizers[-1], max_source_length)

    def _tokenizers(self):
        """Returns the tokenizers by the names of their files."""
        if self.has_shared_tokenizer:
            return {"shared": self.source_tokenizer}
        return {"source": self.source_tokenizer, "target": self.target_tokenizer}


def _load_model(path):
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing. Save the translator again.")
    try:
        return keras.models.load_model(path, compile=False)
    except (OSError, ValueError, TypeError, KeyError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"{path} is no model that can be loaded: {reason}") from None


def _batches(ids, padded_lengths, batch_size):
    """Yields `(rows, ids[rows])`, padded, the shortest first, without blank rows.

    All batches have `batch_size` rows: copies of a row that is there fill up the
    last one of each length, since they end when that row ends.
    """
    lengths = np.count_nonzero(ids, axis=1)
    ids = np.pad(ids, ((0, 0), (0, padded_lengths[-1] - ids.shape[1])))
    order = np.argsort(lengths, kind="stable")
    shorter = 0
    for padded in padded_lengths:
        fits = (lengths[order] > shorter) & (lengths[order] <= padded)
        for rows in _chunks(order[fits], batch_size):
            filled = np.resize(rows, batch_size)
            yield rows, ids[filled, :padded]
        shorter = padded


def _chunks(items, size):
    return (items[start : start + size] for start in range(0, len(items), size))


def _check_texts(texts):
    if isinstance(texts, (str, bytes)):
        raise ValueError(
            f"`texts` must be a list of str. Received: a single {type(texts).__name__}."
            " Put it in a list."
        )
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(
                "`texts` must be a list of str. "
                f"Received: texts[{index}] of type {type(text).__name__}."
            )


def _check_fit(model, source_tokenizer, target_tokenizer):
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
