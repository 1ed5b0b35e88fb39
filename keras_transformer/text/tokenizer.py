"""Subword tokenization with SentencePiece, as TensorFlow ops."""

import hashlib
import io
import itertools
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import sentencepiece
import tensorflow as tf
from tensorflow_text.python.ops import sentencepiece_tokenizer

from keras_transformer.text.files import Paths, as_paths, read_lines

# TensorFlow Text offers its SentencePiece kernels only through this module. Its public
# `SentencepieceTokenizer` leaves the resource to a kernel that TensorFlow drops
# whenever a global seed is set, and it does not let a resource be named.
_ops = sentencepiece_tokenizer.gen_sentencepiece_tokenizer

PAD_ID, UNKNOWN_ID, START_ID, END_ID = 0, 1, 2, 3


class _Model(tf.saved_model.experimental.TrackableResource):
    """A SentencePiece model in TensorFlow's memory, named after its content.

    A named resource outlives the kernel that made it, and equal names hold equal
    models: two tokenizers can be neither confused nor dropped.
    """

    def __init__(self, model_proto: bytes):
        super().__init__()
        self._model_proto = model_proto
        self._name = f"sentencepiece_{hashlib.sha256(model_proto).hexdigest()}"
        _ = self.resource_handle  # creates the resource

    def _create_resource(self):
        return _ops.sentencepiece_op(model=self._model_proto, shared_name=self._name)


class SubwordTokenizer(tf.Module):
    """Splits text into subwords and joins them again, with SentencePiece.

    It runs as TensorFlow ops, so it works inside `tf.data` and `tf.function` and
    travels in a SavedModel.

    Args:
        model_proto: A serialized SentencePiece model.
        sampling: Probability of dropping a merge (BPE-dropout), or the smoothing of
            the sampled segmentation (unigram). 0 always gives the best segmentation.
    """

    pad_id, unknown_id, start_id, end_id = PAD_ID, UNKNOWN_ID, START_ID, END_ID

    def __init__(self, model_proto: bytes, sampling: float = 0.0):
        super().__init__(name="subword_tokenizer")
        self.model_proto = model_proto
        self.sampling = sampling
        self.processor = sentencepiece.SentencePieceProcessor(model_proto=model_proto)
        self._model = _Model(model_proto)

    @classmethod
    def train(
        cls,
        files_or_lines: Paths | Iterable[str],
        vocabulary_size: int = 8000,
        model_type: str = "bpe",
        character_coverage: float = 1.0,
        split_digits: bool = False,
    ) -> "SubwordTokenizer":
        """Learns a vocabulary from files or lines."""
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_lines(files_or_lines),
            model_writer=model,
            vocab_size=vocabulary_size,
            model_type=model_type,
            character_coverage=character_coverage,
            split_digits=split_digits,
            pad_id=PAD_ID,
            unk_id=UNKNOWN_ID,
            bos_id=START_ID,
            eos_id=END_ID,
            minloglevel=2,
        )
        return cls(model.getvalue())

    def with_sampling(self, alpha: float = 0.1) -> "SubwordTokenizer":
        """Returns a tokenizer of the same vocabulary that segments at random."""
        return SubwordTokenizer(self.model_proto, sampling=alpha)

    def __call__(self, texts, add_start: bool = False, add_end: bool = False):
        """Returns the subword ids of a batch of texts, `(batch, None)` ragged int32."""
        nbest_size, alpha = (-1, self.sampling) if self.sampling else (0, 1.0)
        ids, row_splits = _ops.sentencepiece_tokenize_op(
            self._model.resource_handle,
            tf.convert_to_tensor(texts, dtype=tf.string),
            nbest_size,
            alpha,
            add_start,
            add_end,
            False,
            tf.int32,
            return_nbest=False,
        )
        return tf.RaggedTensor.from_row_splits(ids, row_splits, validate=False)

    def detokenize(self, ids):
        """Returns the texts `(batch,)` of ids `(batch, length)`, dense or ragged."""
        if not isinstance(ids, tf.RaggedTensor):
            ids = tf.RaggedTensor.from_tensor(tf.convert_to_tensor(ids, tf.int32))
        ended = tf.cast(ids == END_ID, tf.int32)
        before_end = ended.with_values(_running_sum(ended) == 0)
        kept = before_end & (ids != PAD_ID) & (ids != START_ID)
        ids = tf.ragged.boolean_mask(ids, kept)
        return _ops.sentencepiece_detokenize_op(
            self._model.resource_handle, ids.values, ids.row_splits, False, False, False
        )

    @property
    def vocabulary_size(self) -> int:
        return self.processor.vocab_size()

    def id_to_piece(self, ids) -> list[str]:
        """Returns the subwords of a list of ids."""
        return [self.processor.id_to_piece(int(id_)) for id_ in ids]

    def pieces(self, text: str) -> list[str]:
        """Returns the subwords of a text."""
        return self.processor.encode(text, out_type=str)

    def save(self, path: str | os.PathLike) -> None:
        """Writes one `.model` file, in SentencePiece's own format."""
        path = Path(path)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(self.model_proto)
            file.flush()
            os.fsync(file.fileno())
        os.replace(file.name, path)

    @classmethod
    def load(cls, path: str | os.PathLike) -> "SubwordTokenizer":
        """Reads a `.model` file."""
        return cls(Path(path).read_bytes())


def _running_sum(ragged):
    """Sums within each row up to and including each value; returns flat values."""
    sums = tf.cumsum(ragged.values)
    starts = tf.gather(tf.concat([[0], sums], 0), ragged.row_starts())
    return sums - tf.gather(starts, ragged.value_rowids())


def _lines(files_or_lines) -> Iterator[str]:
    """Yields lines, from the files or as they are."""
    if isinstance(files_or_lines, (str, os.PathLike)):
        return read_lines(files_or_lines)
    items = iter(files_or_lines)
    first = next(items, "")
    items = itertools.chain([first], items)
    if isinstance(first, os.PathLike) or os.path.isfile(first):
        return itertools.chain.from_iterable(map(read_lines, as_paths(items)))
    return items
