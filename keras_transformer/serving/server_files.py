"""Folders of served models: numbered versions, batching, warm-up requests."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import tensorflow as tf

from keras_transformer.decoding import Search
from keras_transformer.decoding.search import check_repeatable, check_search
from keras_transformer.kernels.graphs import inference
from keras_transformer.storage import create_folder, write_text
from keras_transformer.translator import Translator

COMPILED_SIZES = 1, 8, 32  # of the batches that XLA compiles an exported search for
MAX_BATCH_SIZE = 64  # a multiple of the largest batch that XLA compiles


def next_version(folder: str | os.PathLike) -> Path:
    """Returns the path of a model's next version, one above its highest number.

    Args:
        folder: Folder of the model, with a folder for each version; it need not exist.

    Returns:
        The path, which does not exist yet.

    Example:
        >>> from keras_transformer.serving import next_version
        >>> next_version("saved_models/none-yet").as_posix()
        'saved_models/none-yet/1'
    """
    folder = Path(folder)
    versions = [int(path.name) for path in folder.glob("*") if path.name.isdecimal()]
    return folder / str(max(versions, default=0) + 1)


def check_exportable(path: str | os.PathLike, search: Search) -> Path:
    """Returns the path of an export as a `Path`.

    Raises:
        FileExistsError: If something is there.
        ValueError: If `search` is not a search, or draws without a seed.
    """
    check_search(search)
    path = Path(path)
    if path.exists():
        folder = path.parent if path.name.isdecimal() else path
        raise FileExistsError(
            f"{path} exists, and an export never overwrites another. The next version "
            f"would be {next_version(folder)}."
        )
    check_repeatable(search)
    return path


def write_export(
    path: Path,
    served: tf.Module,
    signatures: Mapping,
    settings: dict,
    requests: Iterable[tuple[str, dict]],
) -> Path:
    """Writes a SavedModel, with the files that servers and operators expect beside it.

    `served` is what the SavedModel holds, `signatures` are its functions by the names
    that they are served under, and `requests` for warm-up are pairs of a signature and
    its inputs. `settings` go into a file of the name of `served`. Returns the path.
    """
    # A server ignores the unfinished folder, since its name is not a number.
    with create_folder(path) as unfinished:
        options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
        with inference():  # gradients would be a quarter of all operations
            tf.saved_model.save(served, unfinished, signatures, options)
        extra = unfinished / "assets.extra"
        text = json.dumps(settings, indent=2) + "\n"
        write_text(extra / f"{served.name}.json", text)
        # TensorFlow Serving looks for both files where they are written.
        write_text(unfinished / "batching_params.pbtxt", batching_parameters())
        file = os.fspath(extra / "tf_serving_warmup_requests")
        with tf.io.TFRecordWriter(file) as writer:
            for signature, inputs in requests:
                writer.write(_prediction_log(signature, inputs))
    return path


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


def warmup_requests(
    translator: Translator, signatures: Mapping, jit_compile: bool
) -> list[tuple[str, dict]]:
    """Returns requests after which no other has to wait for preparations.

    TensorFlow optimizes the graph of each signature once. XLA compiles each padded
    length, with each of `COMPILED_SIZES`, once for all signatures.
    """
    sizes = COMPILED_SIZES if jit_compile else ()
    requests = []
    for text in texts_of_all_lengths(translator):
        source_ids, _ = translator.encode([text])
        inputs = {"text": [text], "target": [text], "source_ids": source_ids}
        for name, function in signatures.items():
            specs = function.input_signature
            requests.append((name, {spec.name: inputs[spec.name] for spec in specs}))
        for size in sizes[1:]:
            requests.append(("serving_default", {"text": [text] * size}))
    return requests


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


def compiled_batches(num_rows):
    """Returns the rows of each batch that XLA computes, of shape `(batches, size)`.

    All have the smallest of `COMPILED_SIZES` that holds the rows, or the largest. The
    last one is filled up with copies, which end when their originals do.
    """
    sizes = tf.constant(COMPILED_SIZES)
    size = sizes[tf.math.count_nonzero(sizes[:-1] < num_rows)]
    filled = -(-num_rows // size) * size
    return tf.reshape(tf.range(filled) % num_rows, [-1, size])
