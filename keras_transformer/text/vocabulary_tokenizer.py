"""Subwords of SentencePiece with ids from a table, as OPUS-MT and M2M100 have them."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

import tensorflow as tf

from keras_transformer.storage import replace_files, write_text
from keras_transformer.text.tokenizer import SubwordTokenizer

# A text may begin with a target language, as ">>fra<<" (OPUS-MT).
_LANGUAGE_CODE = r"^(?s:>>.*?<<)"


class VocabularyTokenizer(SubwordTokenizer):
    """Splits text by a SentencePiece model, with ids from a table of subwords.

    Subwords that the table lacks are unknown. Everything else is as in
    `SubwordTokenizer`: TensorFlow ops, which a SavedModel holds.

    Args:
        model_proto: A SentencePiece model as bytes.
        vocabulary: Id of every subword, a dictionary from str to int.
        pad: The subword of the padding.
        unknown: The subword of unknown characters.
        start: The subword that begins every target.
        end: The subword that ends every source and every target.
        prefix: Subwords that begin every text, such as its language.
        reads_language_codes: Whether a code such as `">>fra<<"` at the beginning of a
            text is a subword of its own.

    Attributes:
        pad_id, unknown_id, start_id, end_id: Ids of the special subwords.

    Raises:
        ValueError: If `model_proto` is not a SentencePiece model, or a subword named
            here is not in `vocabulary`.
    """

    def __init__(
        self,
        model_proto: bytes,
        vocabulary: Mapping[str, int],
        pad: str = "<pad>",
        unknown: str = "<unk>",
        start: str = "<pad>",
        end: str = "</s>",
        prefix: tuple[str, ...] = (),
        reads_language_codes: bool = False,
    ):
        tf.Module.__init__(self, name="vocabulary_tokenizer")
        special = {"pad": pad, "unknown": unknown, "start": start, "end": end}
        for piece in (*special.values(), *prefix):
            if piece not in vocabulary:
                raise ValueError(
                    "`vocabulary` must have an id for every special subword. "
                    f"Received: none for {piece!r}."
                )
        self._load_model(model_proto)
        self._settings = {
            **special,
            "prefix": list(prefix),
            "reads_language_codes": reads_language_codes,
        }
        self._vocabulary = dict(vocabulary)
        self.vocabulary_size = max(self._vocabulary.values()) + 1
        for name, piece in special.items():
            setattr(self, f"{name}_id", self._vocabulary[piece])
        self._piece_of_id = [unknown] * self.vocabulary_size
        for piece, index in self._vocabulary.items():
            self._piece_of_id[index] = piece
        self._id_of_piece = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                [*self._vocabulary], [*self._vocabulary.values()], tf.string, tf.int32
            ),
            default_value=self.unknown_id,
        )

    def _encode(self, texts):
        prefix = self._settings["prefix"]
        parts = [tf.repeat(tf.constant([prefix], tf.string), tf.size(texts), axis=0)]
        if self._settings["reads_language_codes"]:
            rest = tf.strings.regex_replace(texts, _LANGUAGE_CODE, "", False)
            num_bytes = tf.strings.length(texts) - tf.strings.length(rest)
            codes = tf.strings.substr(texts, tf.zeros_like(num_bytes), num_bytes)
            parts.append(tf.ragged.boolean_mask(codes[:, None], num_bytes[:, None] > 0))
            texts = rest
        pieces = tf.concat([*parts, self._resource.tokenize(texts, tf.string)], axis=1)
        return self._id_of_piece.lookup(pieces)

    def _encode_sampled(self, texts, alpha, **settings):
        prefix = [self._vocabulary[piece] for piece in self._settings["prefix"]]
        for text in texts:
            text = tf.compat.as_text(text)
            code, text = self._split_language_code(text)
            pieces = super()._encode_sampled(text, alpha, out_type=str, **settings)
            ids = (self._vocabulary.get(x, self.unknown_id) for x in (*code, *pieces))
            yield [*prefix, *ids]

    def _split_language_code(self, text):
        found = re.match(_LANGUAGE_CODE, text)
        if not self._settings["reads_language_codes"] or not found:
            return [], text
        return [found[0]], text[found.end() :]

    def _decode(self, ids):
        pieces = tf.ragged.map_flat_values(tf.gather, self._piece_of_id, ids)
        return self._resource.detokenize(pieces)

    def pieces(self, ids) -> list[str]:
        return [self._piece_of_id[int(index)] for index in ids]

    def save(self, path: str | os.PathLike) -> None:
        """Writes SentencePiece's file, and the table beside it.

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
        """Reads a tokenizer that `save` wrote.

        Raises:
            FileNotFoundError: If one of its two files is missing.
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


def vocabulary_path(path: str | os.PathLike) -> Path:
    """Returns the path of the table beside the file of a SentencePiece model."""
    return Path(path).with_suffix(".vocabulary.json")


def load_tokenizer(path: str | os.PathLike) -> SubwordTokenizer:
    """Reads a tokenizer: a `VocabularyTokenizer` if there is a table beside `path`."""
    has_table = vocabulary_path(path).is_file()
    return (VocabularyTokenizer if has_table else SubwordTokenizer).load(path)
