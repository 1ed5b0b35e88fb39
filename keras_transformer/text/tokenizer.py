"""Subwords: text to ids and back, with SentencePiece as TensorFlow ops."""

import hashlib
import itertools
import os
import threading
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import sentencepiece
import tensorflow as tf
from tensorflow_text.python.ops import sentencepiece_tokenizer

from keras_transformer.text.files import Paths
from keras_transformer.text.tokenizer_training import train_model

# TensorFlow Text's kernels, which it offers nowhere else by themselves. Its public
# `SentencepieceTokenizer` cannot name its resource, and an unnamed one goes away with
# the kernel that made it, whenever someone sets TensorFlow's global seed.
_kernels = sentencepiece_tokenizer.gen_sentencepiece_tokenizer

_seeding = threading.Lock()


class SubwordTokenizer(tf.Module):
    """Splits text into subwords, and joins subwords to text.

    A vocabulary of subwords leaves no word out: frequent words are one id, rare ones
    several. Tokenizing and detokenizing are TensorFlow ops: they work within
    `tf.data` and `tf.function`, and a SavedModel that holds the tokenizer as an
    attribute needs no other file.

    The ids of padding, unknown characters, start and end are 0, 1, 2 and 3.

    Args:
        model_proto: A SentencePiece model as bytes; see `train` and `load`.

    Call arguments:
        texts: List of str, or string tensor of shape `(batch,)`.

    Returns:
        Ids without start and end symbol, an int32 `tf.RaggedTensor` of shape
        `(batch, None)`.

    Raises:
        ValueError: If `model_proto` is no SentencePiece model, or one that numbers
            the special symbols otherwise.

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

    def __init__(self, model_proto: bytes):
        super().__init__(name="subword_tokenizer")
        try:
            if not model_proto:
                raise RuntimeError("SentencePiece takes no bytes for a model")
            model = sentencepiece.SentencePieceProcessor(model_proto=model_proto)
        except RuntimeError:
            raise ValueError(
                "`model_proto` must be a SentencePiece model. Received: "
                f"{len(model_proto)} bytes that are none."
            ) from None
        ids = (model.pad_id(), model.unk_id(), model.bos_id(), model.eos_id())
        if ids != (0, 1, 2, 3):
            raise ValueError(
                "`model_proto` must number padding, unknown, start and end 0, 1, 2, 3. "
                f"Received: {', '.join(map(str, ids))}. Train it with "
                "`SubwordTokenizer.train`, or with spm_train --pad_id=0 --unk_id=1 "
                "--bos_id=2 --eos_id=3."
            )
        self.model_proto = model_proto
        self.vocabulary_size = model.vocab_size()
        self._python_model = model
        self._resource = _Model(model_proto)

    @classmethod
    def train(
        cls,
        files_or_lines: Paths | Iterable[str],
        vocabulary_size: int = 8000,
        model_type: str = "bpe",
        character_coverage: float = 1.0,
        split_digits: bool = False,
        normalization: str = "nmt_nfkc",
    ) -> "SubwordTokenizer":
        """Learns a vocabulary from text, the same one every time.

        The text is streamed to SentencePiece, which keeps up to two million lines of
        it, drawn evenly, in memory.

        Args:
            files_or_lines: One path, or an iterable of paths, of plain or gzipped
                text files; or an iterable of lines. A `Path` is a file always, a
                `str` in an iterable if the first of them names one.
            vocabulary_size: Number of subwords, the four special symbols included.
            model_type: `"bpe"` (byte-pair encoding) or `"unigram"`.
            character_coverage: Share of the text's characters that get an id; the
                rarest others are unknown. Below 1 for large scripts, such as 0.9995.
            split_digits: Whether every digit is a subword of its own, which makes
                numbers easy to copy.
            normalization: SentencePiece's rule: `"nmt_nfkc"` replaces compatibility
                characters and odd spaces, `"identity"` keeps every character.

        Raises:
            FileNotFoundError: If a file is missing.
            ValueError: If the text does not go with `vocabulary_size`, there is no
                text, or a file is faulty.

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
                pad_id=cls.pad_id,
                unk_id=cls.unknown_id,
                bos_id=cls.start_id,
                eos_id=cls.end_id,
            )
        )

    def __call__(self, texts):
        nbest_size, alpha = 0, 1.0  # the best segmentation, no sampling
        ids, row_splits = _kernels.sentencepiece_tokenize_op(
            self._resource.resource_handle,
            _batch_of_texts(texts),
            nbest_size,
            alpha,
            add_bos=False,
            add_eos=False,
            reverse=False,
            out_type=tf.int32,
        )
        return tf.RaggedTensor.from_row_splits(ids, row_splits, validate=False)

    def sample(self, texts, alpha: float = 0.1, seed=0):
        """Segments texts at random: one text, many spellings, a regularized model.

        With a BPE model, every merge of subwords is left out with probability `alpha`
        (BPE-dropout). With a unigram model, a segmentation is drawn by its probability
        to the power of `alpha`: the smaller, the more even the odds (subword
        regularization).

        This runs in Python, also within `tf.data`, since TensorFlow Text's op cannot
        be seeded. It is for training; a SavedModel cannot hold it.

        Args:
            texts: List of str, or string tensor of shape `(batch,)`.
            alpha: Strength, between 0 and 1.
            seed: Integer or scalar integer tensor. The same seed gives the same
                subwords, in one process: from version 0.2.2 on, SentencePiece draws
                others in the next.

        Returns:
            Ids, an int32 `tf.RaggedTensor` of shape `(batch, None)`.

        Reference:
            [Provilkov et al., 2020](https://arxiv.org/abs/1910.13267) (BPE-dropout);
            [Kudo, 2018](https://arxiv.org/abs/1804.10959) (subword regularization)
        """
        if not 0 <= alpha <= 1:
            raise ValueError(
                f"`alpha` must be between 0 and 1. Received: alpha={alpha}."
            )

        def encode(texts, seed):
            with _seeding:
                sentencepiece.set_random_generator_seed(int(seed) % (1 << 31))
                rows = self._python_model.encode(
                    texts.tolist(),
                    enable_sampling=True,
                    alpha=alpha,
                    nbest_size=-1,
                    num_threads=1,
                )
            lengths = np.array([len(row) for row in rows], dtype=np.int64)
            ids = np.fromiter(itertools.chain.from_iterable(rows), dtype=np.int32)
            return ids, lengths

        ids, lengths = tf.numpy_function(
            encode,
            [_batch_of_texts(texts), seed],
            [tf.int32, tf.int64],
            stateful=False,
        )
        ids, lengths = tf.ensure_shape(ids, [None]), tf.ensure_shape(lengths, [None])
        return tf.RaggedTensor.from_row_lengths(ids, lengths, validate=False)

    def detokenize(self, ids):
        """Joins subwords to text, up to the first end symbol of each row.

        Padding and start symbols are left out.

        Args:
            ids: Integer tensor of shape `(..., length)`, such as `(batch, length)` or
                `(batch, hypotheses, length)`; or a ragged tensor or list of rows of
                different lengths, `(batch, None)`.

        Returns:
            A string tensor of shape `(...)`.

        Raises:
            ValueError: If `ids` are not integers.
        """
        ids = _batch_of_ids(ids, self.pad_id)
        shape = tf.shape(ids)
        num_rows = tf.reduce_prod(shape[:-1])
        rows = tf.reshape(ids, [num_rows, shape[-1]])
        is_end = tf.cast(rows == self.end_id, tf.int32)
        is_before_end = tf.cumsum(is_end, axis=1) == 0
        is_text = is_before_end & (rows != self.pad_id) & (rows != self.start_id)
        rows = tf.ragged.boolean_mask(rows, is_text)
        texts = _kernels.sentencepiece_detokenize_op(
            self._resource.resource_handle,
            rows.values,
            rows.row_splits,
            add_bos=False,
            add_eos=False,
            reverse=False,
        )
        return tf.reshape(texts, shape[:-1])

    def pieces(self, ids) -> list[str]:
        """Returns the subwords as text, one for each id: labels for an attention map.

        Args:
            ids: One row of ids, of shape `(length,)`.

        Returns:
            A list of str, in which "\u2581" stands for a space.
        """
        return [self._python_model.id_to_piece(int(index)) for index in ids]

    def save(self, path: str | os.PathLike) -> None:
        """Writes one file in SentencePiece's own format, which its tools read too.

        The file is whole or, if writing fails, as it was before.
        """
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with open(unfinished, "wb") as file:
                file.write(self.model_proto)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | os.PathLike) -> "SubwordTokenizer":
        """Reads a tokenizer that `save` or SentencePiece wrote.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If it holds no SentencePiece model, or one that numbers the
                special symbols otherwise.
        """
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(
                f"{path} is no file. Name a tokenizer's .model file."
            )
        try:
            return cls(path.read_bytes())
        except ValueError as error:
            raise ValueError(f"{path} cannot be loaded. {error}") from None


class _Model(tf.saved_model.experimental.TrackableResource):
    """A SentencePiece model in TensorFlow's memory, named after what it holds.

    A named resource stays when its kernel goes, so setting a global seed takes no
    tokenizer away; and as equal names hold equal models, no two tokenizers of one
    SavedModel can be taken for each other.
    """

    def __init__(self, model_proto: bytes):
        super().__init__()
        self._model_proto = model_proto
        self._name = f"sentencepiece_{hashlib.sha256(model_proto).hexdigest()}"
        _ = self.resource_handle  # creates it

    def _create_resource(self):
        return _kernels.sentencepiece_op(
            model=self._model_proto, shared_name=self._name
        )


def _batch_of_texts(texts):
    texts = tf.convert_to_tensor(texts, dtype_hint=tf.string)
    if texts.dtype != tf.string or texts.shape.rank != 1:
        raise ValueError(
            "`texts` must be a list of str, or a string tensor of shape (batch,). "
            f"Received: shape={texts.shape}, dtype={texts.dtype.name}."
        )
    return texts


def _batch_of_ids(ids, pad_id):
    """Returns int32 ids of shape `(..., length)`; rows of a list may differ."""
    if isinstance(ids, (list, tuple)):
        empty = not any(np.size(row) for row in ids)
        ids = tf.ragged.constant(ids, tf.int32 if empty else None, ragged_rank=1)
    if isinstance(ids, tf.RaggedTensor):
        ids = ids.to_tensor(pad_id)
    ids = tf.convert_to_tensor(ids)
    if not ids.dtype.is_integer or ids.shape.rank == 0:
        raise ValueError(
            "`ids` must be integers of shape (..., length). "
            f"Received: shape={ids.shape}, dtype={ids.dtype.name}."
        )
    return tf.cast(ids, tf.int32)
