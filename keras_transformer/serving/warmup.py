"""Warm-up requests, which TensorFlow Serving runs before it accepts others."""

import os

import tensorflow as tf

from keras_transformer.text import SubwordTokenizer
from keras_transformer.text.encoding import encode_head


def write_warmup_requests(
    path: str | os.PathLike, source_tokenizer: SubwordTokenizer
) -> None:
    """Writes a request for each signature, since the first one takes long."""
    text = tf.constant(["1"])
    source_ids, _ = encode_head(text, source_tokenizer, max_length=2)
    requests = {
        "serving_default": {"text": text},
        "translate_n_best": {"text": text},
        "translate_ids": {"source_ids": source_ids},
        "score": {"text": text, "target": text},
    }
    with tf.io.TFRecordWriter(os.fspath(path)) as writer:
        for signature, inputs in requests.items():
            writer.write(_prediction_log(signature, inputs))


def _prediction_log(signature, inputs) -> bytes:
    """Serializes a `PredictionLog`, without TensorFlow Serving's Python package.

    The field numbers are from `prediction_log.proto`, `predict.proto`, `model.proto`.
    """
    request = _field(1, _field(3, signature.encode()))
    for name, value in inputs.items():
        tensor = tf.make_tensor_proto(value).SerializeToString()
        request += _field(2, _field(1, name.encode()) + _field(2, tensor))
    return _field(6, _field(1, request))


def _field(number: int, payload: bytes) -> bytes:
    """Serializes a field of a protocol buffer: tag, length, payload."""
    size, length = len(payload), bytearray()
    while size > 127:
        length.append(size % 128 + 128)
        size //= 128
    return bytes([number * 8 + 2, *length, size]) + payload
