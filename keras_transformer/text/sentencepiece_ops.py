"""SentencePiece as TensorFlow ops, on a model that outlives TensorFlow's kernels.

The ops are TensorFlow Text's, imported from a private module. Its public
`SentencepieceTokenizer` leaves its resource unnamed. TensorFlow deletes an unnamed
resource with the kernel that created it, and setting the global seed deletes all
kernels: from then on every tokenizer raises `NotFoundError`. Only the private op
takes a name for the resource. A test fails when TensorFlow Text changes either.
"""

import hashlib

import sentencepiece
import tensorflow as tf
from tensorflow_text.python.ops import sentencepiece_tokenizer

_ops = sentencepiece_tokenizer.gen_sentencepiece_tokenizer
_NO_SYMBOLS = {"add_bos": False, "add_eos": False, "reverse": False}


class SentencePieceModel(tf.saved_model.experimental.TrackableResource):
    """A SentencePiece model in TensorFlow's memory, named after its contents.

    Equal names hold equal models: tokenizers in a SavedModel cannot be confused.
    """

    def __init__(self, model_proto: bytes):
        super().__init__()
        try:
            if not model_proto:
                raise RuntimeError("SentencePiece accepts empty bytes as a model.")
            processor = sentencepiece.SentencePieceProcessor
            self.processor = processor(model_proto=model_proto)
        except RuntimeError:
            raise ValueError(
                "`model_proto` must be a SentencePiece model. Received: "
                f"{len(model_proto)} bytes that are not one."
            ) from None
        self._model_proto = model_proto
        self._name = f"sentencepiece_{hashlib.sha256(model_proto).hexdigest()}"
        _ = self.resource_handle  # creates the resource

    def _create_resource(self):
        return _ops.sentencepiece_op(model=self._model_proto, shared_name=self._name)

    def tokenize(self, texts, out_type=tf.int32, alpha: float | None = None):
        """Returns ids, or subwords with `tf.string`, of texts of shape `(batch,)`.

        The result is ragged, of shape `(batch, None)`. With `alpha`, it is sampled.
        """
        ids, row_splits = _ops.sentencepiece_tokenize_op(
            self.resource_handle,
            texts,
            nbest_size=0 if alpha is None else -1,  # best, or sampled from all
            alpha=1.0 if alpha is None else alpha,
            out_type=out_type,
            **_NO_SYMBOLS,
        )
        return tf.RaggedTensor.from_row_splits(ids, row_splits, validate=False)

    def byte_offsets(self, texts):
        """Returns `Tokenizer.byte_offsets`, in texts that are not normalized yet."""
        best = {"nbest_size": 0, "alpha": 1.0, "out_type": tf.int32, **_NO_SYMBOLS}
        _, row_splits, *offsets = _ops.sentencepiece_tokenize_with_offsets_op(
            self.resource_handle, texts, **best
        )
        ragged = tf.RaggedTensor.from_row_splits
        return [
            ragged(tf.cast(x, tf.int64), row_splits, validate=False) for x in offsets
        ]

    def detokenize(self, ids):
        """Returns texts `(batch,)` of ids or subwords, ragged `(batch, None)`."""
        return _ops.sentencepiece_detokenize_op(
            self.resource_handle, ids.values, ids.row_splits, **_NO_SYMBOLS
        )
