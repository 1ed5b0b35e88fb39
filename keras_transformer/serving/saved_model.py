"""A translator as a SavedModel for TensorFlow Serving: strings in, strings out."""

import json
import os
import shutil
from pathlib import Path

import tensorflow as tf

from keras_transformer.decoding import Hypotheses, Search
from keras_transformer.decoding.halves import search_in_halves
from keras_transformer.text.encoding import encode_head
from keras_transformer.translator import Translator, check_serves_any_text
from keras_transformer.version import __version__


def export_translator(
    translator: Translator,
    path: str | os.PathLike,
    search: Search,
    max_length: int | None = None,
    jit_compile: bool = False,
) -> Path:
    """Writes a translator as a SavedModel; see `Translator.export`.

    Args:
        translator: What to export.
        path: Folder of the new version, such as `saved_models/en-de/1`.
        search: The search that it translates with.
        max_length: Subwords of a translation at most, as in `Translator.translate`.
        jit_compile: Whether XLA compiles the search where it is served.

    Returns:
        The path.

    Raises:
        FileExistsError: If there is something at `path`.
        ValueError: If `search` draws without a seed, or forces a prefix for each text
            of a batch.
    """
    path = Path(path)
    if path.exists():
        raise FileExistsError(
            f"{path} exists, and no export is overwritten. The next version would be "
            f"{_next_version(path)}."
        )
    if search.get_config().get("seed", 0) is None:
        raise ValueError(
            "`search` must have a seed to be exported, such as seed=0. "
            f"Received: search={search!r}."
        )
    check_serves_any_text(search)
    served = ServedTranslator(translator, search, max_length, jit_compile)
    path.parent.mkdir(parents=True, exist_ok=True)
    # No number, so that a server that watches the parent passes it by.
    unfinished = path.with_name(f".{path.name}.unfinished-{os.getpid()}")
    try:
        tf.saved_model.save(served, unfinished, signatures=served.signatures())
        extra = unfinished / "assets.extra"
        extra.mkdir()
        (extra / "translator.json").write_text(
            json.dumps(served.settings(), indent=2) + "\n", encoding="utf-8"
        )
        _write_warmup_requests(extra / "tf_serving_warmup_requests", served)
        os.rename(unfinished, path)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return path


class ServedTranslator(tf.Module):
    """A translator as TensorFlow functions: what an export holds.

    It is a plain `tf.Module` rather than a `keras.export.ExportArchive`. A SavedModel
    holds all that can be reached from its attributes: here the weights and the
    tokenizers. Nothing else of the Keras model comes along, such as its optimizer.

    Texts of a batch are searched in groups of one padded length, each with the
    longest target of its own, just as `Translator.translate` does it. So a text has
    one translation, whatever it is together with.

    Args:
        translator: What is served.
        search: The search that it translates with.
        max_length: Subwords of a translation at most, as in `Translator.translate`.
        jit_compile: Whether XLA compiles the search. It does so for every shape, so
            groups are filled up to a power of two. Without a GPU here, large groups
            are searched in two halves side by side.
    """

    def __init__(
        self,
        translator: Translator,
        search: Search,
        max_length: int | None,
        jit_compile: bool = False,
    ):
        super().__init__(name="translator")
        self.weights = [weight.value for weight in translator.model.weights]
        self.source_tokenizer = translator.source_tokenizer
        self.target_tokenizer = translator.target_tokenizer
        self._translator = translator
        self._search = search
        self._jit_compile = jit_compile
        self._source_lengths = translator.padded_lengths()
        self._target_lengths = [
            translator.max_target_length(length) if max_length is None else max_length
            for length in self._source_lengths
        ]
        # Traced once, for the three signatures that call it.
        ids = tf.TensorSpec([None, None], tf.int32)
        self.find = tf.function(self.find, [ids], autograph=False)

    def settings(self) -> dict:
        """Returns what the export was made with."""
        search = {"name": type(self._search).__name__, **self._search.get_config()}
        return {
            "keras_transformer": __version__,
            "max_source_length": self._translator.max_source_length,
            "max_target_length": self._target_lengths[-1],
            "search": search,
            "jit_compile": self._jit_compile,
        }

    def signatures(self) -> dict:
        """Returns the functions by the names that they are served under."""
        text = tf.TensorSpec([None], tf.string, "text")
        target = tf.TensorSpec([None], tf.string, "target")
        source_ids = tf.TensorSpec([None, None], tf.int32, "source_ids")
        signatures = {
            "serving_default": (self.translate, text),
            "translate_n_best": (self.translate_n_best, text),
            "translate_ids": (self.translate_ids, source_ids),
            "score": (self.score, text, target),
        }
        return {
            name: tf.function(function, specs, autograph=False)
            for name, (function, *specs) in signatures.items()
        }

    def translate(self, text):
        """Translates texts `(batch,)`.

        Returns:
            `"translation"`, strings, and `"score"`, float32, of shape `(batch,)`.
        """
        found = self.translate_n_best(text)
        return {
            "translation": found["translations"][:, 0],
            "score": found["scores"][:, 0],
        }

    def translate_n_best(self, text):
        """Translates texts `(batch,)` in several ways, the best first.

        Returns:
            `"translations"` and `"scores"` of shape `(batch, num_hypotheses)`.
        """
        ids, _ = self._translator.encode(text)
        found = self.find(ids)
        translations = self.target_tokenizer.detokenize(found.ids)
        return {"translations": translations, "scores": found.scores}

    def translate_ids(self, source_ids):
        """Translates subwords and end symbols `(batch, length)`, padded.

        As texts are, they are cut where they are too long. What is no id of the
        vocabulary counts as unknown.

        Returns:
            `"ids"` of shape `(batch, target_length)`, end symbols included, and
            `"score"` of shape `(batch,)`.
        """
        tokenizer, longest = self.source_tokenizer, self._source_lengths[-1]
        is_id = (source_ids >= 0) & (source_ids < tokenizer.vocabulary_size)
        ids = tf.where(is_id, source_ids, tokenizer.unknown_id)
        is_cut = tf.reduce_any(ids[:, longest:] != tokenizer.pad_id, axis=1)
        ids = ids[:, :longest]
        is_last = tf.range(tf.shape(ids)[1]) == longest - 1
        ids = tf.where(is_cut[:, None] & is_last, tokenizer.end_id, ids)
        found = self.find(ids)
        return {"ids": found.ids[:, 0], "score": found.scores[:, 0]}

    def score(self, text, target):
        """Asks the model how likely it is that `target` translates `text`.

        Returns:
            `"log_probability"`, float32, and `"tokens"`, the number of target symbols
            that it is a sum over, end symbol included; both of shape `(batch,)`.
        """
        model, limit = self._translator.model, self._target_lengths[-1]
        sizes = tf.size(text), tf.size(target)
        message = "`text` and `target` must be equally many. Received:"
        check = tf.debugging.Assert(sizes[0] == sizes[1], [message, *sizes])
        with tf.control_dependencies([check]):
            source_ids, _ = self._translator.encode(text)
        labels, _ = encode_head(target, self.target_tokenizer, limit)
        start_ids = tf.fill([sizes[1], 1], model.start_id)
        target_ids = tf.concat([start_ids, labels], axis=1)[:, :-1]
        logits = model({"source_ids": source_ids, "target_ids": target_ids})
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        is_symbol = labels != model.pad_id
        return {
            "log_probability": -tf.reduce_sum(tf.where(is_symbol, losses, 0), axis=1),
            "tokens": tf.math.count_nonzero(is_symbol, axis=1, dtype=tf.int32),
        }

    def find(self, source_ids):
        """Searches the translations of subwords `(batch, length)`.

        Returns:
            `Hypotheses`, no longer than the longest of them. Where there is nothing
            to translate they are empty, with a score of 0.
        """
        model = self._translator.model
        is_pad = source_ids == model.pad_id
        is_blank = tf.reduce_all(is_pad | (source_ids == model.end_id), axis=1)
        positions = tf.where(is_pad, 0, tf.range(tf.shape(source_ids)[1]) + 1)
        # An empty row would have no largest position.
        lengths = tf.reduce_max(tf.pad(positions, [[0, 0], [0, 1]]), axis=1)
        groups = tf.searchsorted(self._source_lengths, lengths)
        groups = tf.where(is_blank, len(self._source_lengths), groups)
        num_groups = len(self._source_lengths) + 1
        parts = tf.dynamic_partition(source_ids, groups, num_groups)
        rows = tf.dynamic_partition(tf.range(tf.size(groups)), groups, num_groups)
        found = [
            self._search_group(part, source_length, target_length)
            for part, source_length, target_length in zip(
                parts[:-1], self._source_lengths, self._target_lengths, strict=True
            )
        ]
        found.append(self._nothing(parts[-1]))
        ids, scores = (
            tf.dynamic_stitch(rows, fields) for fields in zip(*found, strict=True)
        )
        is_used = tf.reduce_any(ids != model.pad_id, axis=(0, 1))
        longest = tf.reduce_max(tf.where(is_used, tf.range(tf.size(is_used)) + 1, 0))
        return Hypotheses(ids[..., :longest], scores)

    def _search_group(self, source_ids, source_length, target_length):
        def find(inputs):
            return self._search(self._translator.model, inputs, target_length)

        if self._jit_compile:
            find = compile_search(find, self._search.num_slots)

        def search():
            # Padded as `Translator.translate` pads, to round floats as it does.
            inputs = tf.pad(source_ids, [[0, 0], [0, source_length]])[:, :source_length]
            rows = tf.shape(inputs)[0]
            if self._jit_compile:
                inputs = fill_up(inputs)
            ids, scores = (found[:rows] for found in find(inputs))
            missing = self._target_lengths[-1] - target_length
            return Hypotheses(tf.pad(ids, [[0, 0], [0, 0], [0, missing]]), scores)

        return tf.cond(
            tf.shape(source_ids)[0] > 0, search, lambda: self._nothing(source_ids)
        )

    def _nothing(self, source_ids):
        shape = [tf.shape(source_ids)[0], self._search.num_hypotheses]
        ids = tf.zeros([*shape, self._target_lengths[-1]], tf.int32)
        return Hypotheses(ids, tf.zeros(shape))


def fill_up(inputs):
    """Repeats the last row until there are a power of two; it ends no later again."""
    rows = tf.shape(inputs)[0]
    powers = 2 ** tf.range(31)
    filled = powers[tf.math.count_nonzero(powers < rows)]
    return tf.gather(inputs, tf.minimum(tf.range(filled), rows - 1))


def compile_search(find, num_slots: int):
    """Lets XLA compile a search; for processors, unless there is a GPU here.

    Args:
        find: Function of source ids, with an even number of rows if there are many.
        num_slots: Hypotheses that grow side by side for each row.
    """
    find = tf.function(find, autograph=False, jit_compile=True)
    return search_in_halves(find, num_slots)


def _next_version(path):
    """Returns the next version of the model that a path names, or a version of."""
    folder = path.parent if path.name.isdecimal() else path
    versions = [int(one.name) for one in folder.glob("*") if one.name.isdecimal()]
    return folder / str(max(versions, default=0) + 1)


def _write_warmup_requests(path, served):
    """Writes requests that TensorFlow Serving answers by itself before any other.

    The first request of each signature takes long, so each gets one.
    """
    text = tf.constant(["1"])
    source_ids, _ = encode_head(text, served.source_tokenizer, max_length=2)
    requests = {
        "serving_default": {"text": text},
        "translate_n_best": {"text": text},
        "translate_ids": {"source_ids": source_ids},
        "score": {"text": text, "target": text},
    }
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature, inputs in requests.items():
            writer.write(_prediction_log(signature, inputs))


def _prediction_log(signature, inputs) -> bytes:
    """Serializes a `PredictionLog` of TensorFlow Serving.

    Its Python package would be a dependency for the sake of these few lines. The
    numbers are those of `prediction_log.proto`, `predict.proto` and `model.proto`.
    """
    model_spec = _field(3, signature.encode())
    request = _field(1, model_spec)
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
