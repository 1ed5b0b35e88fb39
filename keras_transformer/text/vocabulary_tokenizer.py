"""SentencePiece subwords with ids from a table, as in OPUS-MT and M2M100."""

import json
import numbers
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import tensorflow as tf

from keras_transformer.storage import replace_files, write_text
from keras_transformer.text.sentencepiece_ops import SentencePieceModel
from keras_transformer.text.tokenizer import (
    SubwordTokenizer,
    Tokenizer,
    batch_of_texts,
    plain,
)

# A text may begin with a target language, as ">>fra<<" (OPUS-MT).
_LANGUAGE_CODE = r"^(?s:>>.*?<<)"


class VocabularyTokenizer(Tokenizer):
    """Splits text with a SentencePiece model, with ids from a table of subwords.

    Subwords missing from the table are unknown. Everything else is as in
    `SubwordTokenizer`: TensorFlow ops, which a SavedModel contains.

    Special and control tokens are never read from text. Detokenizing omits them, and
    also unknown subwords and spaces around the text.

    Args:
        model_proto: A SentencePiece model as bytes.
        vocabulary: Id of every subword, a dictionary from str to int.
        pad: The subword of the padding.
        unknown: The subword of unknown characters.
        start: The subword that starts every target. It may be the same as `pad` or
            `end`.
        end: The subword that ends every source and every target.
        prefix: Subwords that start every text, such as its language.
        control: Other tokens without text, such as all languages.
        reads_language_codes: Whether a code such as `">>fra<<"` at the beginning of a
            text is a separate subword.

    Raises:
        ValueError: If `model_proto` is not a SentencePiece model, one of these subwords
            is not in `vocabulary`, or two have the same id.
    """

    has_offsets = True

    def __init__(
        self,
        model_proto: bytes,
        vocabulary: Mapping[str, int],
        pad: str = "<pad>",
        unknown: str = "<unk>",
        start: str = "<pad>",
        end: str = "</s>",
        prefix: Sequence[str] = (),
        control: Sequence[str] = (),
        reads_language_codes: bool = False,
    ):
        super().__init__(name="vocabulary_tokenizer")
        special = {"pad": pad, "unknown": unknown, "start": start, "end": end}
        textless = {*special.values(), *prefix, *control}
        if missing := textless - vocabulary.keys():
            raise ValueError(
                "`vocabulary` must have an id for every special subword. "
                f"Received: none for {min(missing)!r}."
            )
        piece_of_id = _piece_of_id(vocabulary)
        self.model_proto = model_proto
        self._model = SentencePieceModel(model_proto)
        self._settings = {
            **special,
            "prefix": [*prefix],
            "control": [*control],
            "reads_language_codes": reads_language_codes,
        }
        self._vocabulary = ids = dict(vocabulary)
        self.vocabulary_size = max(piece_of_id) + 1
        for name, piece in special.items():
            setattr(self, f"{name}_id", ids[piece])
        self._prefix_ids = [ids[piece] for piece in prefix]
        all_ids = range(self.vocabulary_size)
        self._piece_of_id = [piece_of_id.get(index, unknown) for index in all_ids]
        self._is_text = [piece not in textless for piece in self._piece_of_id]
        texts = {piece: index for piece, index in ids.items() if piece not in textless}
        rows = tf.lookup.KeyValueTensorInitializer(
            list(texts), list(texts.values()), tf.string, tf.int32
        )
        self._table = tf.lookup.StaticHashTable(rows, self.unknown_id)

    def split(self, texts):
        codes, pieces = self._split(plain(batch_of_texts(texts)))
        prefix = tf.fill([pieces.nrows(), len(self._prefix_ids)], "")
        return tf.concat([prefix, tf.zeros_like(codes), pieces], axis=1)

    def _encode(self, texts, alpha=None):
        prefix = tf.constant([self._prefix_ids], tf.int32)
        prefix = tf.repeat(prefix, tf.size(texts), axis=0)
        parts = map(self._table.lookup, self._split(texts, alpha))
        return tf.concat([prefix, *parts], axis=1)

    def _split(self, texts, alpha=None):
        """Returns the language codes of texts, where they are read, and subwords."""
        num_bytes, rest = self._without_code(texts)
        codes = tf.strings.substr(texts, tf.zeros_like(num_bytes), num_bytes)
        codes = tf.ragged.boolean_mask(codes[:, None], num_bytes[:, None] > 0)
        return codes, self._model.tokenize(rest, tf.string, alpha)

    def _without_code(self, texts):
        """Returns the bytes of the language code that begins a text, and the rest."""
        rest = texts
        if self._settings["reads_language_codes"]:
            rest = tf.strings.regex_replace(texts, _LANGUAGE_CODE, "", False)
        return tf.strings.length(texts) - tf.strings.length(rest), rest

    def byte_offsets(self, texts):
        num_bytes, rest = self._without_code(plain(batch_of_texts(texts)))
        before = tf.cast(num_bytes[:, None], tf.int64)
        # A prefix and a code have no bytes.
        prefix = tf.zeros([tf.size(rest), len(self._prefix_ids)], tf.int64)
        code = tf.ragged.boolean_mask(tf.zeros_like(before), before > 0)
        offsets = self._model.byte_offsets(rest)
        return [tf.concat([prefix, code, each + before], axis=1) for each in offsets]

    def _decode(self, ids, unknown=None):
        if unknown is None:
            unknown = tf.zeros_like(ids, tf.string)
        pieces = tf.where(
            tf.gather(self._is_text, ids.values),
            tf.gather(self._piece_of_id, ids.values),
            tf.where(ids.values == self.unknown_id, unknown.values, ""),
        )
        pieces = ids.with_values(pieces)
        pieces = tf.ragged.boolean_mask(pieces, pieces != "")
        texts = self._model.detokenize(pieces)
        # SentencePiece keeps the mark of a space in subwords that it does not know.
        return tf.strings.strip(tf.strings.regex_replace(texts, "\u2581", " "))

    def pieces(self, ids) -> list[str]:
        return [self._piece_of_id[int(index)] for index in ids]

    def equals(self, other: Tokenizer) -> bool:
        return (
            isinstance(other, VocabularyTokenizer)
            and self.model_proto == other.model_proto
            and self._vocabulary == other._vocabulary
            and self._settings == other._settings
        )

    def save(self, path: str | os.PathLike) -> None:
        """Writes SentencePiece's file, and the table next to it.

        The table of `source.model` is `source.vocabulary.json`.
        """
        table = {"vocabulary": self._vocabulary, **self._settings}
        path = Path(path)
        with replace_files(path.parent) as unfinished:
            (unfinished / path.name).write_bytes(self.model_proto)
            text = json.dumps(table, ensure_ascii=False, indent=1)
            write_text(unfinished / vocabulary_path(path).name, text + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike) -> "VocabularyTokenizer":
        """Reads a tokenizer written by `save`.

        Raises:
            FileNotFoundError: If either of its two files is missing.
            ValueError: If the table is damaged.
        """
        path, table = Path(path), vocabulary_path(path)
        for file in (path, table):
            if not file.is_file():
                raise FileNotFoundError(f"{file} is missing. Save the tokenizer again.")
        try:
            settings = json.loads(table.read_text(encoding="utf-8"))
            return cls(path.read_bytes(), **settings)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path} cannot be loaded. {error}") from None


def _piece_of_id(vocabulary):
    """Inverts a table of ids; raises `ValueError` if that is not possible."""
    pieces = {}
    for piece, index in vocabulary.items():
        is_id = isinstance(index, numbers.Integral) and index >= 0
        if not is_id or pieces.setdefault(index, piece) != piece:
            raise ValueError(
                "`vocabulary` must give every subword its own id, an integer of at "
                f"least 0. Received: {index!r} for "
                f"{piece!r}{f' and for {pieces[index]!r}' if is_id else ''}."
            )
    return pieces


def vocabulary_path(path: str | os.PathLike) -> Path:
    """Returns the path of the table beside the file of a SentencePiece model."""
    return Path(path).with_suffix(".vocabulary.json")


def load_tokenizer(path: str | os.PathLike) -> Tokenizer:
    """Reads a tokenizer: a `VocabularyTokenizer` if there is a table beside `path`."""
    has_table = vocabulary_path(path).is_file()
    return VocabularyTokenizer.load(path) if has_table else SubwordTokenizer.load(path)
