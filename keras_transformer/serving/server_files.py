"""Files beside a served model: numbered versions, batching, warm-up requests."""

import os
from collections.abc import Iterable
from pathlib import Path

import tensorflow as tf

from keras_transformer.translator import Translator

MAX_BATCH_SIZE = 64  # a power of two, as compiled batches are


def next_version(folder: str | os.PathLike) -> Path:
    """Returns the path of a model's next version, one above its highest number.

    Args:
        folder: Folder of the model, with a folder for each version; it may not exist.

    Returns:
        The path, where nothing is yet.

    Example:
        >>> from keras_transformer.serving import next_version
        >>> next_version("saved_models/none-yet").as_posix()
        'saved_models/none-yet/1'
    """
    folder = Path(folder)
    versions = [int(path.name) for path in folder.glob("*") if path.name.isdecimal()]
    return folder / str(max(versions, default=0) + 1)


def batching_parameters() -> str:
    """Returns a `BatchingParameters` message of TensorFlow Serving as text.

    There are no `allowed_batch_sizes`, whose purpose is to keep the number of shapes
    low. An export does so itself: it fills up each group of texts of one padded length.
    A server can only fill up the whole batch, and would translate more copies: filled
    up from 33 to 64 texts, a batch takes 1.35 times the processor time.
    """
    settings = {
        "max_batch_size": MAX_BATCH_SIZE,
        # Far shorter than a translation, and enough to gather concurrent requests.
        "batch_timeout_micros": 5000,
        # Batches that are translated at the same time.
        "num_batch_threads": 2,
        # The server refuses requests, as unavailable, while this many are waiting.
        "max_enqueued_batches": 100,
    }
    return "".join(f"{name} {{ value: {value} }}\n" for name, value in settings.items())


def write_warmup_requests(
    path: str | os.PathLike, translator: Translator, batch_sizes: Iterable[int]
) -> None:
    """Writes requests after which no other has to wait for preparations.

    TensorFlow optimizes the graph of each signature once. XLA compiles each padded
    length and batch size once for all signatures.

    Args:
        path: File to write.
        translator: What is exported.
        batch_sizes: The sizes of batches to prepare.
    """
    requests: list[tuple[str, dict]] = []
    for text in texts_of_all_lengths(translator):
        source_ids, _ = translator.encode([text])
        requests += [
            *(("serving_default", {"text": [text] * size}) for size in batch_sizes),
            ("translate_n_best", {"text": [text]}),
            ("translate_ids", {"source_ids": source_ids}),
            ("score", {"text": [text], "target": [text]}),
            ("align", {"text": [text], "target": [text]}),
            ("translate_aligned", {"text": [text]}),
        ]
    write_requests(path, requests)


def write_requests(
    path: str | os.PathLike, requests: Iterable[tuple[str, dict]]
) -> None:
    """Writes warm-up requests: pairs of a signature and its inputs."""
    with tf.io.TFRecordWriter(os.fspath(path)) as writer:
        for signature, inputs in requests:
            writer.write(_prediction_log(signature, inputs))


def texts_of_all_lengths(translator: Translator) -> list[str]:
    """Returns a short text of each padded length of `BatchingPolicy`."""
    # Since padded lengths double, texts that double skip none.
    num_doublings = translator.max_source_length.bit_length()
    texts = [" ".join(["1"] * 2**i) for i in range(num_doublings + 1)]
    source_ids, _ = translator.encode(texts)
    groups = translator.batching_policy().group_of(source_ids).numpy()
    shortest = dict(zip(groups[::-1], texts[::-1], strict=True))
    return [shortest[group] for group in sorted(shortest)]


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
