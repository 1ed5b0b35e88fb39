"""A translator as a SavedModel for TensorFlow Serving: strings in, strings out."""

import os
from pathlib import Path

import tensorflow as tf

from keras_transformer.decoding import Hypotheses, Search
from keras_transformer.kernels.attention import no_blocks
from keras_transformer.serving.server_files import (
    check_exportable,
    compiled_batches,
    warmup_requests,
    write_export,
)
from keras_transformer.text.encoding import encoded_spans
from keras_transformer.translator.alignment import aligned_spans, alignment_weights
from keras_transformer.translator.scoring import log_probabilities
from keras_transformer.translator.terms import (
    MAX_PHRASE_LENGTH,
    Terms,
    constrained,
    required_phrases,
    unknown_texts,
)
from keras_transformer.translator.translator import Translator, check_serves_any_text
from keras_transformer.version import __version__


def export_translator(
    translator: Translator,
    path: str | os.PathLike,
    search: Search,
    max_length: int | None = None,
    jit_compile: bool | None = None,
    dtype: str | None = None,
    terms: Terms | None = None,
) -> Path:
    """Writes a translator as a SavedModel.

    Arguments, result and errors are as in `Translator.export`. The folder includes
    warm-up requests for the server, its batching settings in `batching_params.pbtxt`,
    and the settings of this export in `assets.extra/translator.json`.
    `ServedTranslator` has the signatures.
    """
    path = check_exportable(path, search)
    check_serves_any_text(search)
    translator = translator.in_dtype(dtype)
    if jit_compile is None:
        # In half precision, what XLA compiles for each size rounds differently.
        jit_compile = translator.model.compute_dtype == "float32"
    served = ServedTranslator(translator, search, max_length, jit_compile, terms)
    signatures = served.signatures()
    requests = warmup_requests(translator, signatures, jit_compile)
    settings = served.settings()
    # Writing traces the functions: they get texts that were cut, and targets.
    with no_blocks(max(settings["max_source_length"], settings["max_target_length"])):
        return write_export(path, served, signatures, settings, requests)


class ServedTranslator(tf.Module):
    """A translator as TensorFlow functions: the contents of an export.

    It is a plain `tf.Module` rather than a `keras.export.ExportArchive`. A SavedModel
    contains everything that its attributes refer to: here the weights and the
    tokenizers, but nothing else of the Keras model, such as its optimizer.

    Its signatures take any number of texts, of any length. Those that align need a
    tokenizer with `has_offsets`:

    | Signature | Inputs | Outputs |
    | --- | --- | --- |
    | `serving_default` | `text` | `translation`, `score` |
    | `translate_n_best` | `text` | `translations`, `scores` |
    | `translate_ids` | `source_ids` | `ids`, `score` |
    | `score` | `text`, `target` | `log_probability`, `tokens` |
    | `align` | `text`, `target` | `spans`, `weights` |
    | `translate_aligned` | `text` | `translation`, `score`, `spans`, `weights` |

    All have the shape `(batch,)`, except `translations` and `scores`,
    `(batch, num_hypotheses)`, and ids, `(batch, length)`, which include end tokens and
    are padded with the model's `pad_id`. Texts that are too long are truncated as in
    `Translator.translate`; targets are truncated to `max_length`, as in
    `Translator.encode_targets`.

    `spans` `(batch, pairs, 4)` and `weights` `(batch, pairs)` are as in
    `Translator.align`: the first character in the text and the one after the last, then
    the same in the translation. A row with fewer pairs is padded with zeros.

    Texts are grouped as in `Translator.translate`, so a text has the same translation
    as there, regardless of the other texts in its batch. The arguments are as in
    `Translator.export`. With `jit_compile`, XLA compiles the search once for every
    shape. To keep the shapes few, groups are filled up to 1, 8 or a multiple of 32
    texts, and searched 32 at a time.
    """

    def __init__(
        self,
        translator: Translator,
        search: Search,
        max_length: int | None,
        jit_compile: bool = False,
        terms: Terms | None = None,
    ):
        super().__init__(name="translator")
        self._terms = terms
        self.weights = [weight.value for weight in translator.model.weights]
        self.source_tokenizer = translator.source_tokenizer
        self.target_tokenizer = translator.target_tokenizer
        self._translator = translator
        self._search = search
        self._jit_compile = jit_compile
        self._num_given = translator.num_given_tokens()
        longest = translator.max_source_length
        self._policy = translator.batching_policy(max_length)
        self._max_target_length = self._policy.target_length(longest)
        # Traced once, for all signatures that call them.
        ids = tf.TensorSpec([None, None], tf.int32)
        required = tf.TensorSpec([None, None, None], tf.int32)
        find = tf.function(self.find, [ids, required], autograph=False)
        self.find = find  # type: ignore[method-assign]
        tokenizers = self.source_tokenizer, self.target_tokenizer
        self._aligns = all(tokenizer.has_offsets for tokenizer in tokenizers)
        if self._aligns:
            text = tf.TensorSpec([None], tf.string)
            align = tf.function(self.align, [text, text], autograph=False)
            self.align = align  # type: ignore[method-assign]

    def settings(self) -> dict:
        """Returns the settings of the export."""
        search = {"name": type(self._search).__name__, **self._search.get_config()}
        return {
            "keras_transformer": __version__,
            "max_source_length": self._translator.max_source_length,
            "max_target_length": self._max_target_length,
            "search": search,
            "terms": self._terms and self._terms.settings(),
            "jit_compile": self._jit_compile,
            "dtype": self._translator.model.dtype_policy.name,
        }

    def signatures(self) -> dict:
        """Returns the functions by the names under which they are served."""
        text = tf.TensorSpec([None], tf.string, "text")
        target = tf.TensorSpec([None], tf.string, "target")
        source_ids = tf.TensorSpec([None, None], tf.int32, "source_ids")
        signatures = {
            "serving_default": (self.translate, text),
            "translate_n_best": (self.translate_n_best, text),
            "translate_ids": (self.translate_ids, source_ids),
            "score": (self.score, text, target),
        }
        if self._aligns:
            signatures["align"] = self.align, text, target
            signatures["translate_aligned"] = self.translate_aligned, text
        return {
            name: tf.function(_checked(function, specs), specs, autograph=False)
            for name, (function, *specs) in signatures.items()
        }

    def translate(self, text):
        """Returns the best translation of each text `(batch,)`, and its score."""
        found = self.translate_n_best(text)
        translations, scores = found["translations"], found["scores"]
        return {"translation": translations[:, 0], "score": scores[:, 0]}

    def translate_n_best(self, text):
        """Returns translations and scores of shape `(batch, num_hypotheses)`."""
        ids, _ = self._translator.encode(text)
        if self._terms is None:
            found = self.find(ids, _nothing_required(ids))
            translations = self._translator.decode(found.ids, self._search)
            return {"translations": translations, "scores": found.scores}
        lengths = map(self._policy.target_length, self._policy.source_lengths)
        limits = tf.gather([*lengths, 0], self._policy.group_of(ids))
        translator = self._translator
        required, stand_ins = required_phrases(self._terms, text, translator, limits)
        found = self.find(ids, required)
        unknown = unknown_texts(translator, text, ids, found.ids, stand_ins)
        translations = translator.decode(found.ids, self._search, unknown)
        return {"translations": translations, "scores": found.scores}

    def translate_ids(self, source_ids):
        """Translates padded subwords and end tokens `(batch, length)`.

        Long rows are truncated like texts. Ids outside the vocabulary count as unknown.
        """
        ids = self._translator.as_encoded(source_ids)
        found = self.find(ids, _nothing_required(ids))
        return {"ids": found.ids[:, 0], "score": found.scores[:, 0]}

    def score(self, text, target):
        """Returns the log-probability of `target`, given `text`.

        It is summed over `"tokens"` target tokens, including the end token.
        """
        log_probability, tokens = log_probabilities(
            self._translator.model, *self._encode(text, target), self._num_given
        )
        return {"log_probability": log_probability, "tokens": tokens}

    def align(self, text, target):
        """Returns which characters of `text` each subword of `target` renders."""
        translator = self._translator
        source_ids, labels = self._encode(text, target)
        weights = alignment_weights(translator.model, source_ids, labels)
        spans = [
            encoded_spans(text, self.source_tokenizer, translator.max_source_length),
            encoded_spans(target, self.target_tokenizer, self._max_target_length),
        ]
        is_end = source_ids == self.source_tokenizer.end_id
        spans, weights = aligned_spans(weights, *spans, is_end)
        return {"spans": spans.to_tensor(), "weights": weights.to_tensor()}

    def translate_aligned(self, text):
        """Returns the results of `translate`, and of `align` for the translations."""
        found = self.translate(text)
        return {**found, **self.align(text, found["translation"])}

    def _encode(self, text, target):
        """Returns the ids of texts and of as many translations."""
        sizes = tf.size(text), tf.size(target)
        message = "`text` and `target` must have the same length. Received:"
        check = tf.debugging.Assert(sizes[0] == sizes[1], [message, *sizes])
        with tf.control_dependencies([check]):
            source_ids, _ = self._translator.encode(text)
        labels = self._translator.encode_targets(target, self._max_target_length)
        return source_ids, labels

    def find(self, source_ids, required):
        """Searches the translations of subwords `(batch, length)`, group by group.

        The ids of the `Hypotheses` are as long as the longest one. A blank source has
        no ids, and a score of 0.

        Args:
            source_ids: Int32 tensor of shape `(batch, length)`.
            required: The tensor of ids that `required_phrases` returns; used if the
                export has terms.
        """
        groups = self._policy.group_of(source_ids)
        source_lengths = self._policy.source_lengths
        num_groups = len(source_lengths) + 1
        rows = tf.dynamic_partition(tf.range(tf.size(groups)), groups, num_groups)
        *sources, blank = tf.dynamic_partition(source_ids, groups, num_groups)
        required = tf.dynamic_partition(required, groups, num_groups)
        found = list(map(self._search_group, sources, required[:-1], source_lengths))
        found.append(self._empty_hypotheses(blank))
        fields = zip(*found, strict=True)
        ids, scores = (tf.dynamic_stitch(rows, field) for field in fields)
        is_used = tf.reduce_any(ids != self._translator.model.pad_id, axis=(0, 1))
        longest = tf.reduce_max(tf.where(is_used, tf.range(tf.size(is_used)) + 1, 0))
        return Hypotheses(ids[..., :longest], scores)

    def _search_group(self, source_ids, required, source_length):
        """Searches the translations of sources of one padded length."""
        target_length = self._policy.target_length(source_length)

        def find(inputs, required):
            search = self._search
            if self._terms is not None:
                search = constrained(search, required, self.target_tokenizer)
            return search(self._translator.model, inputs, target_length)

        if self._jit_compile:
            find = self._in_compiled_sizes(find, target_length)

        def search():
            # Padded as in `Translator.translate`, for the same rounding errors.
            inputs = self._policy.pad(source_ids, source_length)
            ids, scores = find(inputs, required)
            missing = self._max_target_length - target_length
            padding = [[0, 0], [0, 0], [0, missing]]
            ids = tf.pad(ids, padding, constant_values=self._translator.model.pad_id)
            return Hypotheses(ids, scores)

        is_used = tf.shape(source_ids)[0] > 0
        return tf.cond(is_used, search, lambda: self._empty_hypotheses(source_ids))

    def _in_compiled_sizes(self, find, target_length):
        """Returns a search that XLA compiles for `COMPILED_SIZES` only."""
        find = tf.function(find, autograph=False, jit_compile=True)
        shape = [self._search.num_hypotheses]
        specs = (
            tf.TensorSpec([None, *shape, target_length], tf.int32),
            tf.TensorSpec([None, *shape]),
        )

        def find_in_batches(*tensors):
            def find_rows(rows):
                return tuple(find(*(tf.gather(x, rows) for x in tensors)))

            num_rows = tf.shape(tensors[0])[0]
            batches = compiled_batches(num_rows)
            ids, scores = tf.map_fn(find_rows, batches, fn_output_signature=specs)
            ids = tf.reshape(ids, [-1, *shape, target_length])
            return ids[:num_rows], tf.reshape(scores, [-1, *shape])[:num_rows]

        return find_in_batches

    def _empty_hypotheses(self, source_ids):
        shape = [tf.shape(source_ids)[0], self._search.num_hypotheses]
        shape_of_ids = [*shape, self._max_target_length]
        ids = tf.fill(shape_of_ids, self._translator.model.pad_id)
        return Hypotheses(ids, tf.zeros(shape))


def _nothing_required(source_ids):
    """Returns the ids of `required_phrases` where there are no phrases."""
    return tf.fill([tf.shape(source_ids)[0], 4, MAX_PHRASE_LENGTH], -1)


def _checked(function, specs):
    """`function`, with an error that names the tensor whose shape is not `specs`."""

    # TensorFlow calls a signature with tensors of any shape.
    def call(*tensors):
        pairs = zip(tensors, specs, strict=True)
        return function(*(tf.ensure_shape(x, spec.shape) for x, spec in pairs))

    return call
