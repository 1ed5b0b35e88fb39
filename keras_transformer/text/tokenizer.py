"""Tokenizers: text to ids and back, with SentencePiece as TensorFlow ops."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from keras_transformer.storage import replace_file
from keras_transformer.text.sentencepiece_ops import SentencePieceModel
from keras_transformer.text.tokenizer_training import train_model
from keras_transformer.text_files import Files

LEFT_OUT = r"[\x{AD}\x{2060}\x{FEFF}]"  # soft hyphen, word joiner, byte order mark


class Tokenizer(tf.Module):
    """Base class of tokenizers: text to ids and ids to text, as TensorFlow ops.

    A subclass sets the attributes and implements `pieces`, `equals`, `save`, `load` and

    - `_encode(texts, alpha)`: ragged int32 ids of a string tensor, sampled if `alpha`
      is not None;
    - `_decode(ids, unknown)`: the texts of ragged ids.

    A saved translator finds the class by its name.

    Args:
        name: Name of the `tf.Module`.

    Attributes:
        pad_id: Id of the padding.
        unknown_id: Id of unknown characters; -1 if every character is known.
        start_id: Id that starts a target.
        end_id: Id that ends a text.
        vocabulary_size: Number of ids.
        has_offsets: Whether it has `split` and `byte_offsets`.
    """

    pad_id: int
    unknown_id: int
    start_id: int
    end_id: int
    vocabulary_size: int
    has_offsets = False
    kinds: dict[str, type["Tokenizer"]] = {}

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        Tokenizer.kinds[cls.__name__] = cls

    def __call__(self, texts):
        return self._encode(batch_of_texts(texts))

    def sample(self, texts, alpha: float = 0.1):
        """Segments texts into randomly sampled subwords, which regularizes training.

        A BPE model skips merges of subwords with probability `alpha` (BPE-dropout). A
        unigram model samples a segmentation in proportion to its probability to the
        power of `alpha`: the smaller `alpha`, the more uniform the distribution
        (subword regularization).

        SentencePiece samples, in TensorFlow Text's op, and neither takes a seed: two
        calls draw different subwords, in one process or in two. A skipped BPE merge is
        not tried again, while the paper tries it in each later step.

        Args:
            texts: List of str, or string tensor of shape `(batch,)`.
            alpha: Strength, between 0 and 1.

        Returns:
            Ids, an int32 `tf.RaggedTensor` of shape `(batch, None)`.

        Raises:
            ValueError: If `alpha` is outside its range.

        Reference:
            [Provilkov et al., 2020](https://arxiv.org/abs/1910.13267) (BPE-dropout);
            [Kudo, 2018](https://arxiv.org/abs/1804.10959) (subword regularization)
        """
        if not 0 <= alpha <= 1:
            raise ValueError(
                f"`alpha` must be between 0 and 1. Received: alpha={alpha}."
            )
        return self._encode(batch_of_texts(texts), alpha)

    def split(self, texts):
        """Returns the subwords of texts as text; a call returns their ids.

        Unknown subwords appear as in the texts, and tokens that the tokenizer adds are
        empty. "\u2581" is the mark of a space.
        """
        raise ValueError(
            "Alignments, markup and terms are not possible with "
            f"{type(self).__name__}, which does not say where tokens are in a text."
        )

    def byte_offsets(self, texts):
        """Returns where each subword starts and ends, in bytes of `plain(texts)`.

        A subword may start with white space, or have no bytes.

        Args:
            texts: As in a call.

        Returns:
            The first byte of each subword and the one after its last, two ragged int64
            tensors of shape `(batch, None)`.
        """
        return self.split(texts)

    def detokenize(self, ids, unknown=None):
        """Joins subwords into text, up to the first end token of each row.

        Padding and start tokens are omitted.

        Args:
            ids: Integer tensor of shape `(..., length)`, such as `(batch, length)` or
                `(batch, hypotheses, length)`; or a ragged tensor or list of rows of
                different lengths, `(batch, None)`.
            unknown: Text to write for unknown tokens, a string tensor of the shape of
                `ids`.

        Returns:
            A string tensor of shape `(...)`.

        Raises:
            ValueError: If `ids` are not integers of the vocabulary.
        """
        ids = _batch_of_ids(ids, self.pad_id)
        shape = tf.shape(ids)
        rows = tf.reshape(ids, [tf.reduce_prod(shape[:-1]), shape[-1]])
        is_end = rows == self.end_id
        if self.start_id == self.end_id:  # the first one is the start token
            is_end &= tf.range(shape[-1]) > 0
        is_before_end = tf.cumsum(tf.cast(is_end, tf.int32), axis=1) == 0
        is_text = is_before_end & (rows != self.pad_id) & (rows != self.start_id)
        rows = tf.ragged.boolean_mask(rows, is_text)
        if unknown is not None:
            unknown = tf.reshape(unknown, tf.shape(is_text))
            unknown = tf.ragged.boolean_mask(unknown, is_text)
        try:
            return tf.reshape(self._decode(rows, unknown), shape[:-1])
        # In a graph these are raised as they are.
        except (tf.errors.InvalidArgumentError, tf.errors.OutOfRangeError) as error:
            raise ValueError(
                f"`ids` must lie in the vocabulary of {self.vocabulary_size} subwords. "
                f"Received: {error.message}."
            ) from None


class SubwordTokenizer(Tokenizer):
    """Splits text into subwords, and joins subwords into text.

    A subword vocabulary covers every word: a frequent word is one id, a rare word
    several. Tokenizing and detokenizing are TensorFlow ops: they work in `tf.data` and
    `tf.function`, and a SavedModel with the tokenizer needs no other file.

    The ids of padding, unknown characters, start and end are 0, 1, 2 and 3.

    Args:
        model_proto: A SentencePiece model as bytes; see `train` and `load`.

    Call arguments:
        texts: List of str, or string tensor of shape `(batch,)`.

    Returns:
        Ids without start and end token, an int32 `tf.RaggedTensor` of shape
        `(batch, None)`.

    Raises:
        ValueError: If it is not a SentencePiece model, or these tokens have other ids.

    Example:
        >>> lines = ["a man rides a bike", "a dog rides a man", "a bike"]
        >>> tokenizer = kt.text.SubwordTokenizer.train(lines, vocabulary_size=25)
        >>> ids = tokenizer(["a man rides a dog", "a bike"])
        >>> ids.shape
        TensorShape([2, None])
        >>> tokenizer.detokenize(ids).numpy().tolist()
        [b'a man rides a dog', b'a bike']

    Reference:
        [Kudo and Richardson, 2018](https://arxiv.org/abs/1808.06226)
    """

    pad_id, unknown_id, start_id, end_id = range(4)
    has_offsets = True  # of each subword in its text

    def __init__(self, model_proto: bytes):
        super().__init__(name="subword_tokenizer")
        self._model = SentencePieceModel(model_proto)
        model = self._model.processor
        ids = (model.pad_id(), model.unk_id(), model.bos_id(), model.eos_id())
        if ids != (0, 1, 2, 3):
            raise ValueError(
                "`model_proto` must give padding, unknown, start and end the ids 0, 1, "
                f"2 and 3. Received: {', '.join(map(str, ids))}. Train it with "
                "`SubwordTokenizer.train`, or with spm_train --pad_id=0 --unk_id=1 "
                "--bos_id=2 --eos_id=3."
            )
        self.model_proto = model_proto
        self.vocabulary_size = model.vocab_size()

    @classmethod
    def train(
        cls,
        files_or_lines: Files | Iterable[str],
        vocabulary_size: int = 8000,
        model_type: str = "bpe",
        character_coverage: float = 1.0,
        split_digits: bool = False,
        normalization: str = "nmt_nfkc",
        byte_fallback: bool = False,
        symbols: Sequence[str] = (),
    ) -> "SubwordTokenizer":
        """Learns a vocabulary from text; equal text gives equal vocabularies.

        SentencePiece keeps a uniform sample of up to two million lines in memory.

        Args:
            files_or_lines: One path, or an iterable of paths, of text files as in
                `parallel_dataset`; or an iterable of lines. In an iterable, every
                `Path` is a file, and strings are paths if the first of them names a
                file.
            vocabulary_size: Number of subwords, including the four special tokens.
            model_type: `"bpe"` (byte-pair encoding) or `"unigram"`.
            character_coverage: Fraction of the text's characters that get an id; the
                rarest characters beyond it are unknown. Use a value below 1, such as
                0.9995, for scripts with many characters.
            split_digits: Whether every digit is a separate subword, which makes numbers
                easier to copy.
            normalization: SentencePiece's rule: `"nmt_nfkc"` replaces compatibility
                characters and unusual spaces, `"identity"` keeps every character.
            byte_fallback: Whether to read and write characters without an id as their
                bytes, so that no character is unknown. The 256 bytes are part of the
                vocabulary.
            symbols: Tokens that are always one subword, such as `<bt>`; they are part
                of the vocabulary.

        Raises:
            FileNotFoundError: If a file is missing.
            ValueError: If there is no text, if `vocabulary_size` does not suit the
                text, or if a file has an error.

        Reference:
            [Sennrich et al., 2016](https://arxiv.org/abs/1508.07909) (BPE);
            [Kudo, 2018](https://arxiv.org/abs/1804.10959) (unigram)
        """
        return cls(
            train_model(
                files_or_lines,
                vocab_size=vocabulary_size,
                model_type=model_type,
                character_coverage=character_coverage,
                split_digits=split_digits,
                normalization_rule_name=normalization,
                byte_fallback=byte_fallback,
                user_defined_symbols=list(symbols),
                pad_id=cls.pad_id,
                unk_id=cls.unknown_id,
                bos_id=cls.start_id,
                eos_id=cls.end_id,
            )
        )

    def _encode(self, texts, alpha=None):
        return self._model.tokenize(plain(texts), alpha=alpha)

    def split(self, texts):
        return self._model.tokenize(plain(batch_of_texts(texts)), tf.string)

    def _decode(self, ids, unknown=None):
        if unknown is None:
            return self._model.detokenize(ids)
        pieces = tf.gather(self.pieces(range(self.vocabulary_size)), ids.values)
        pieces = tf.where(ids.values == self.unknown_id, unknown.values, pieces)
        return self._model.detokenize(ids.with_values(pieces))

    def byte_offsets(self, texts):
        return self._model.byte_offsets(plain(batch_of_texts(texts)))

    def pieces(self, ids) -> list[str]:
        """Returns the text of each subword, for example to label an attention map.

        `ids` is one row, of shape `(length,)`. "\u2581" is the mark of a space.
        """
        return [self._model.processor.id_to_piece(int(index)) for index in ids]

    def equals(self, other: Tokenizer) -> bool:
        """Returns whether another tokenizer gives the same ids for every text."""
        return type(self) is type(other) and self.model_proto == other.model_proto

    def save(self, path: str | os.PathLike) -> None:
        """Writes a file in SentencePiece's own format, which its tools can read.

        If writing fails, the previous file is unchanged.
        """
        with replace_file(path) as unfinished:
            unfinished.write_bytes(self.model_proto)

    @classmethod
    def load(cls, path: str | os.PathLike) -> "SubwordTokenizer":
        """Reads a tokenizer written by `save` or SentencePiece.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: As in the class, with the path.
        """
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(
                f"{path} is not a file. Pass the path of a tokenizer's .model file."
            )
        try:
            return cls(path.read_bytes())
        except ValueError as error:
            raise ValueError(f"{path} cannot be loaded. {error}") from None


def check_tokenizer(name, tokenizer):
    """Raises `ValueError` unless this is a `Tokenizer`."""
    if not isinstance(tokenizer, Tokenizer):
        raise ValueError(
            f"`{name}` must be a tokenizer, such as `SubwordTokenizer.load(path)` "
            f"returns. Received: {name}={tokenizer!r}."
        )


def batch_of_texts(texts):
    """Returns texts as a string tensor of shape `(batch,)`."""
    try:
        tensor = tf.convert_to_tensor(texts, dtype_hint=tf.string)
    except (TypeError, ValueError):  # of TensorFlow, on None or mixed types
        tensor = None
    if tensor is None or tensor.dtype != tf.string or tensor.shape.rank != 1:
        raise ValueError(
            "`texts` must be a list of str, or a string tensor of shape (batch,). "
            f"Received: {_kind(texts, tensor)}."
        )
    return tensor


def plain(texts):
    """Returns a string tensor without what SentencePiece would take for characters.

    White space that it does not know becomes a space. Marks of where a line may be
    broken, such as the soft hyphen, are left out.
    """
    texts = tf.strings.regex_replace(texts, r"[\v\x1c-\x1f\x{85}]", " ")
    return tf.strings.regex_replace(texts, LEFT_OUT, "")


def _batch_of_ids(ids, pad_id):
    """Returns int32 ids of shape `(..., length)`; pads ragged rows."""
    tensor = ids
    try:
        if isinstance(ids, (list, tuple)) and (not ids or np.ndim(ids[0])):
            dtype = None if any(map(np.size, ids)) else tf.int32
            tensor = tf.ragged.constant(ids, dtype, ragged_rank=1)
        if isinstance(tensor, tf.RaggedTensor) and tensor.dtype.is_integer:
            tensor = tensor.to_tensor(pad_id)
        tensor = tf.convert_to_tensor(tensor)
    except (TypeError, ValueError):  # of TensorFlow, on None, text or mixed types
        tensor = None
    if tensor is None or not tensor.dtype.is_integer or tensor.shape.rank == 0:
        raise ValueError(
            "`ids` must be integers of shape (..., length). "
            f"Received: {_kind(ids, tensor)}."
        )
    return tf.cast(tensor, tf.int32)


def _kind(values, tensor):
    """Describes what is not a batch, for a message: by its tensor, if it has one."""
    if tensor is not None:
        return f"shape={tensor.shape}, dtype={tensor.dtype.name}"
    if not isinstance(values, (list, tuple)):
        return type(values).__name__
    kinds = dict.fromkeys(type(value).__name__ for value in values)
    return f"a {type(values).__name__} of {' and '.join(kinds)}"
