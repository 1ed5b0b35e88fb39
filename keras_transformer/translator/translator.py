"""Text in, text out, many texts at a time: tokenizers, model and search in one."""

import hashlib
import importlib
import inspect
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_transformer.checks import check_positive_integers
from keras_transformer.decoding import (
    BeamSearch,
    ConstrainedBeamSearch,
    ForcedPrefix,
    Search,
)
from keras_transformer.decoding.search import check_search
from keras_transformer.kernels import target
from keras_transformer.kernels.compiled import CompiledFunction
from keras_transformer.models import Ensemble, Transformer
from keras_transformer.text import Tokenizer
from keras_transformer.text.encoding import WHITE_SPACE, encode, encoded_spans
from keras_transformer.text.tokenizer import check_tokenizer
from keras_transformer.text_files import chunks_of
from keras_transformer.translation import Translation, as_bytes, flags
from keras_transformer.translator.alignment import (
    AlignedPair,
    aligned_pairs,
    alignment_weights,
)
from keras_transformer.translator.batching import BatchingPolicy, unpadded_lengths
from keras_transformer.translator.saving import read_translator, save_translator
from keras_transformer.translator.scoring import TargetScore, log_probabilities
from keras_transformer.translator.terms import (
    ROWS_PER_ALIGNMENT,
    Terms,
    constrained,
    required_phrases,
    unknown_texts,
    with_spaces,
)

DEFAULT_SEARCH = BeamSearch(4)
"""The default search of translators: a beam of 4."""

# The module and the function that write each format. They import the translator, so
# they are imported when they are called.
_EXPORTERS = {
    "saved_model": ("serving.saved_model", "export_translator"),
    "ctranslate2": ("interop.ctranslate2", "export_ctranslate2"),
    "litert": ("interop.litert", "export_litert"),
    "hugging_face": ("interop.hugging_face.export", "export_hugging_face"),
}


class Translator:
    """Translates text with a trained model.

    The translation of a text does not depend on the other texts in a call, and a few
    shapes are compiled for all texts; see `BatchingPolicy`.

    Args:
        model: A trained `Transformer`, or an `Ensemble` of several.
        source_tokenizer: Tokenizer of the language to translate from.
        target_tokenizer: Tokenizer of the language to translate to; by default the
            same one.
        max_source_length: Maximum number of subwords to read from a text, including the
            end token, limited by the model's positions; longer texts are cut.
        search: The default search of all calls. It is saved with the translator.

    Raises:
        ValueError: If a tokenizer does not fit the model, or `max_source_length` is
            less than 2.

    Example:
        >>> lines = ["a man rides a bike", "a dog rides a man", "a bike"]
        >>> tokenizer = kt.text.SubwordTokenizer.train(lines, vocabulary_size=25)
        >>> model = kt.models.Transformer(
        ...     25, num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16
        ... )
        >>> translator = kt.Translator(model, tokenizer)
        >>> len(translator.translate(["a man", "", "a dog rides"], max_length=5))
        3
    """

    def __init__(
        self,
        model: Transformer | Ensemble,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer | None = None,
        max_source_length: int = 128,
        search: Search = DEFAULT_SEARCH,
    ):
        target_tokenizer = target_tokenizer or source_tokenizer
        if not isinstance(max_source_length, int) or max_source_length < 2:
            raise ValueError(
                "`max_source_length` must be an integer of at least 2, for a subword "
                f"and its end token. Received: max_source_length={max_source_length!r}."
            )
        _check_tokenizers_fit(model, source_tokenizer, target_tokenizer)
        self.model = model
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        limit = model.max_positions or max_source_length
        self.max_source_length = min(max_source_length, limit)
        self.search = search
        self._programs: dict[Callable, tuple[list, CompiledFunction]] = {}

    def __repr__(self):
        model, source, target = self.model, self.source_tokenizer, self.target_tokenizer
        return (
            f"<Translator: {type(model).__name__} of {model.count_params():,} weights "
            f"in {model.dtype_policy.name}, from {source.vocabulary_size} to "
            f"{target.vocabulary_size} subwords, max_source_length="
            f"{self.max_source_length}, search={self.search!r}>"
        )

    def translate(
        self,
        texts: Sequence[str],
        search: Search | None = None,
        batch_size: int | None = None,
        max_length: int | None = None,
        terms: Terms | None = None,
    ) -> list[str]:
        """Translates a list of texts of any length.

        When one translation ends, the next text takes its place. An empty text, or one
        with only white space, has an empty translation. End tokens of the search are
        removed from translations.

        Args:
            texts: What to translate, a list of str.
            search: A search of `keras_transformer.decoding`. Default: the translator's.
            batch_size: Number of texts to translate at a time, limited by memory; by
                default the fastest number on CPUs.
            max_length: Maximum number of subwords in a translation, including the end
                token; by default twice the padded length of its source, limited by the
                model's positions.
            terms: What the translations must contain.

        Returns:
            The translation of each text, in the order of the texts. A warning says how
            many texts were too long and were cut.

        Raises:
            ValueError: If `texts` is not a list of str, if `search` forces a different
                prefix for each text, since texts are sorted, or if it draws and there
                are `terms`.
        """
        found = self.translate_n_best(texts, search, batch_size, max_length, terms)
        best = [translations[0] for translations in found]
        cut = [index for index, one in enumerate(best) if "cut source" in one.flags]
        if cut:
            warnings.warn(
                f"{len(cut)} of {len(best)} texts are longer than "
                f"max_source_length={self.max_source_length} subwords and were cut, "
                f"the first of them texts[{cut[0]}].",
                stacklevel=2,
            )
        return [one.text for one in best]

    def translate_n_best(
        self,
        texts: Sequence[str],
        search: Search | None = None,
        batch_size: int | None = None,
        max_length: int | None = None,
        terms: Terms | None = None,
    ) -> list[list[Translation]]:
        """Translates as `translate` does, and returns every hypothesis with its score.

        The `num_hypotheses` of `search` is the number of translations of each text.
        There is no warning about texts that are cut: the flags of each `Translation`
        show what looks wrong with it.

        Returns:
            For each text a list of `Translation`, best first. A score of minus infinity
            means that the search found fewer hypotheses; a blank text scores 0.
        """
        search = search or self.search
        check_serves_any_text(search)
        encoded = as_bytes(texts)
        if not encoded:
            return []
        source_ids, is_cut = self.encode(encoded)
        is_cut = is_cut.numpy()
        is_unknown = source_ids.numpy() == self.source_tokenizer.unknown_id
        end_ids = search.end_ids or (self.model.end_id,)
        # Of a text whose beginning is blank, too.
        blanks = [Translation("", 0.0, ("cut source",) * bool(x)) for x in is_cut]
        found = [[blank] * search.num_hypotheses for blank in blanks]
        policy = self.batching_policy(max_length)
        for rows, sources, target_length in policy.groups(source_ids):
            some_texts, asked = tf.gather(encoded, rows), search
            if terms is not None:
                limits = tf.fill([len(rows)], target_length)
                required, stand_ins = required_phrases(terms, some_texts, self, limits)
                asked = constrained(search, required, self.target_tokenizer)
            ids, scores = self.model.generate(sources, asked, target_length, batch_size)
            ids = ops.convert_to_numpy(ids)
            decoded = self.decode(ids, search).numpy()
            if terms is not None:
                without_text = ids == self.target_tokenizer.unknown_id
                with_unknown = np.flatnonzero(without_text.any(axis=(1, 2)))
                for start in range(0, len(with_unknown), ROWS_PER_ALIGNMENT):
                    some = with_unknown[start : start + ROWS_PER_ALIGNMENT]
                    given = some_texts, sources, ids, stand_ins
                    unknown = unknown_texts(self, *(tf.gather(x, some) for x in given))
                    decoded[some] = self.decode(ids[some], search, unknown).numpy()
            source_lengths = unpadded_lengths(sources, self.source_tokenizer).numpy()
            lengths = np.sum(ids != self.target_tokenizer.pad_id, axis=2)
            has_end = np.isin(ids, end_ids).any(axis=2)
            columns: list = [rows, source_lengths, decoded, scores, lengths, has_end]
            for row, source_length, *best_first in zip(*columns, strict=True):
                source, found[row] = encoded[row].decode(), []
                has_unknown = is_unknown[row].any()
                for text, score, length, is_ended in zip(*best_first, strict=True):
                    text = text.decode("utf-8", "replace")
                    facts = source_length, length, is_cut[row], is_ended, has_unknown
                    reasons = flags(source, text, *facts)
                    found[row].append(Translation(text, float(score), reasons))
        return found

    def translate_ids(
        self, source_ids: Sequence[Sequence[int]]
    ) -> list[tuple[list[int], float]]:
        """Translates texts given as ids of subwords and end tokens, as an export does.

        Long rows are cut, and ids outside the vocabulary count as unknown.

        Returns:
            For each row the ids of its best translation, with the end token, and its
            score. A row without subwords has no ids and scores 0.
        """
        pad_id, limit = self.target_tokenizer.pad_id, self.max_source_length
        read = [row[: limit + 1] for row in source_ids]
        ragged = tf.ragged.constant(read, tf.int32, ragged_rank=1)
        found: list[tuple[list[int], float]] = [([], 0.0)] * len(source_ids)
        encoded = self.as_encoded(ragged.to_tensor(self.source_tokenizer.pad_id))
        for rows, sources, length in self.batching_policy().groups(encoded):
            ids, scores = self.model.generate(sources, self.search, length)
            best = ops.convert_to_numpy(ids)[:, 0]
            for row, ids, score in zip(rows, best, scores[:, 0], strict=True):
                found[row] = ids[ids != pad_id].tolist(), float(score)
        return found

    def translate_iterable(
        self,
        texts: Iterable[str],
        search: Search | None = None,
        batch_size: int | None = None,
        max_length: int | None = None,
        terms: Terms | None = None,
        chunk_size: int = 8192,
    ) -> Iterator[list[Translation]]:
        """Translates texts of any number, such as the lines of a large file.

        Texts are read and translated in chunks, each before its first result is
        yielded, so memory does not grow with the number of texts. Other arguments,
        results and errors are as in `translate_n_best`.

        Args:
            texts: Texts to translate, any iterable of str, read as needed.
            search: As in `translate`, like the next three.
            batch_size: Number of texts to translate at a time.
            max_length: Maximum number of subwords in a translation.
            terms: What the translations must contain.
            chunk_size: Number of texts in a chunk.

        Yields:
            For each text, in their order, a list of `Translation`, best first.
        """
        for chunk in chunks_of(texts, chunk_size):
            yield from self.translate_n_best(
                chunk, search, batch_size, max_length, terms
            )

    def score(
        self, texts: Sequence[str], translations: Sequence[str]
    ) -> list[TargetScore]:
        """Returns how likely given translations are, according to the model.

        Args:
            texts: The source texts, a list of str.
            translations: A translation of each.

        Returns:
            A `TargetScore` for each text. Texts and translations that are too long are
            cut, as the signature `score` of a SavedModel cuts them. Tokens that the
            tokenizer puts before every translation, such as its language, do not count.

        Raises:
            ValueError: If one of them is not a list of str, or their lengths differ.

        Example:
            >>> scores = translator.score(["a man", "a man"], ["a bike", "a dog rides"])
            >>> [score.log_probability < 0 for score in scores]
            [True, True]
        """
        sources, targets = _as_pairs(texts, translations)
        if not sources:
            return []
        ids = self.encode(sources)[0], self.encode_targets(targets)
        scores = [TargetScore(0.0, 0)] * len(sources)
        computed = self._on_pairs(log_probabilities, *ids, self.num_given_tokens())
        for rows, found in computed:
            for row, *score in zip(rows, *(x.tolist() for x in found), strict=True):
                scores[row] = TargetScore(*score)
        return scores

    def align(
        self, texts: Sequence[str], translations: Sequence[str]
    ) -> list[list[AlignedPair]]:
        """Returns which subwords of a source each subword of a translation renders.

        A subword of the translation is aligned to the subword of the source that the
        model attends to most when it predicts it, or to none if that is the end
        token. The translations may come from anywhere, such as all hypotheses of one
        text: `align([text] * n, hypotheses)`.

        Args:
            texts: The source texts, a list of str.
            translations: A translation of each.

        Returns:
            For each text a list of `AlignedPair`, in the order of the translation.
            Texts that are too long are aligned only at their beginning.

        Raises:
            ValueError: As in `score`.

        Example:
            >>> text, translation = "a man", "a dog rides"
            >>> (pairs,) = translator.align([text], [translation])
            >>> all(text[slice(*pair.source)] in "a man" for pair in pairs)
            True
        """
        sources, targets = _as_pairs(texts, translations)
        if not sources:
            return []
        source_ids, labels = self.encode(sources)[0], self.encode_targets(targets)
        limit = self.batching_policy().target_length(self.max_source_length)
        spans = [
            encoded_spans(sources, self.source_tokenizer, self.max_source_length),
            encoded_spans(targets, self.target_tokenizer, limit),
        ]
        is_end = source_ids.numpy() == self.source_tokenizer.end_id
        found: list[list[AlignedPair]] = [[] for _ in sources]
        for rows, weights in self._on_pairs(alignment_weights, source_ids, labels):
            given = (np.asarray(x)[rows] for x in (*spans, is_end))
            for row, pairs in zip(rows, aligned_pairs(weights, *given), strict=True):
                found[row] = pairs
        return found

    def _on_pairs(self, function, source_ids, labels, *arguments):
        """Yields rows of pairs, and what a function of the model returns for them."""
        # It is recompiled if the model or its variables have been replaced.
        model = self.model
        current = [model, *model.variables]
        used, program = self._programs.get(function, ([], None))
        if program is None or list(map(id, used)) != list(map(id, current)):

            def call(source_ids, labels):
                return function(model, source_ids, labels, *arguments)

            program = CompiledFunction(call, model, jit_compile="auto")
            self._programs[function] = current, program
        batches = list(self.batching_policy().scored_batches(source_ids, labels))
        computed = program.run_all(ids for _, ids in batches)
        for (rows, _), found in zip(batches, computed, strict=True):
            unpadded = itemgetter(slice(len(rows)))
            yield rows, keras.tree.map_structure(unpadded, found)

    def save(self, folder: str | os.PathLike) -> None:
        """Saves the translator to a folder, which may already exist.

        The folder then holds `model.keras`, without optimizer state; `source.model` and
        `target.model`, or one `shared.model`; and `translator.json`, with the search.
        In a new folder they appear once all are written; in an existing one they are
        replaced one by one, `translator.json` last. Other files stay.
        """
        save_translator(self, folder)

    def in_dtype(self, dtype: str | None = None) -> "Translator":
        """Returns a translator whose model computes in another dtype.

        Args:
            dtype: A dtype policy, such as `"float32"`. Default: the model's, but
                float32, with a warning, if the processor has no instructions for half
                precision.
        """
        model, policy = self.model, self.model.dtype_policy
        if dtype is None and not target.has_instructions_for(policy.compute_dtype):
            dtype = "float32"
            warnings.warn(
                f"The model, trained in {policy.name}, decodes in float32: this "
                f"processor has no instructions for {policy.compute_dtype}. Pass a "
                "`dtype` to `Translator.load` or `export` to choose.",
                stacklevel=3,
            )
        if dtype in (None, policy.name):
            return self
        return self._with(in_dtype(model, dtype))

    def _with(self, model):
        tokenizers = self.source_tokenizer, self.target_tokenizer
        return type(self)(model, *tokenizers, self.max_source_length, self.search)

    @classmethod
    def load(cls, folder: str | os.PathLike, dtype: str | None = None) -> "Translator":
        """Reads a translator that `save` wrote.

        Args:
            folder: The folder, or the folder of a finished run.
            dtype: As in `in_dtype`.

        Raises:
            FileNotFoundError: If the folder holds no translator, or a file is missing.
            ValueError: If a file is damaged, or the files do not fit each other.
        """
        return cls._made_of(read_translator(folder), folder).in_dtype(dtype)

    @classmethod
    def _made_of(cls, arguments, where):
        try:
            return cls(**arguments)
        except ValueError as error:
            raise ValueError(f"{where} cannot be loaded. {error}") from None

    @classmethod
    def from_preset(
        cls,
        where: str | os.PathLike,
        source_language: str | None = None,
        target_language: str | None = None,
        **kwargs,
    ) -> "Translator":
        """Reads a pretrained translator.

        It may be one that `save` wrote, a checkpoint of Marian (OPUS-MT), M2M100, NLLB
        or Pegasus in Hugging Face's layout.

        Args:
            where: A folder, or `"hf://user/model"` on the Hugging Face Hub, such as
                `"hf://Helsinki-NLP/opus-mt-en-de"`. Downloads need the extra `hub`.
            source_language: Language of the texts, for M2M100 and NLLB.
            target_language: Language to translate to, for multilingual models, such as
                `"deu_Latn"`; by default the one in the checkpoint's settings.
            **kwargs: Arguments of the `Transformer` that do not change its weights,
                such as `dropout=0.3`. Default of `dtype`: as in `in_dtype`.

        Returns:
            A translator with the search of the checkpoint, such as its beam.

        Raises:
            FileNotFoundError: If there is no such folder, model or file.
            PermissionError: If the model is gated.
            ConnectionError: If the Hub cannot be reached, and no copy is in its cache.
            ValueError: If a file is damaged, is of an unknown family, or holds anything
                that is not supported.

        Example:
            >>> name = "hf://Helsinki-NLP/opus-mt-en-de"
            >>> translator = kt.Translator.from_preset(name)  # doctest: +SKIP
            >>> translator.translate(["A man rides a bike."])  # doctest: +SKIP
            ['Ein Mann fährt Fahrrad.']
        """
        # It imports the translator, so it is imported when it is called.
        presets = importlib.import_module("keras_transformer.interop.presets")
        languages = source_language, target_language
        arguments = presets.read_translator(where, *languages, **kwargs)
        translator = cls._made_of(arguments, where)
        return translator if "dtype" in kwargs else translator.in_dtype()

    def export(
        self,
        path: str | os.PathLike,
        search: Search | None = None,
        max_length: int | None = None,
        jit_compile: bool | None = None,
        format: str = "saved_model",
        quantization: str | None = None,
        dtype: str | None = None,
        terms: Terms | None = None,
    ) -> Path:
        """Writes the translator for another system.

        | Format | For | Documented at |
        | --- | --- | --- |
        | `"saved_model"` | TensorFlow Serving | `serving.ServedTranslator` |
        | `"ctranslate2"` | CTranslate2, on CPUs and GPUs | `interop.ctranslate2` |
        | `"litert"` | LiteRT, on phones | `interop.litert` |
        | `"hugging_face"` | transformers | `interop.hugging_face.export` |

        The folder appears under its name only once it is complete.

        Args:
            path: Folder to write, such as `saved_models/en-de/1`.
            search: As in `translate`; it must have a seed if it draws.
            max_length: As in `translate`.
            jit_compile: For `"saved_model"`: whether XLA compiles the search on the
                server: for batches of 1, 8 and 32 texts of each padded length, which
                takes some seconds each while the server warms up. The server's
                TensorFlow must have XLA for its device. Default: if the model computes
                in float32.
            format: A name in the table above.
            quantization: The type of the weights: for `"ctranslate2"` such as `"int8"`
                or `"float16"`, for `"litert"` `"int8"`. None: float32.
            dtype: For `"saved_model"`: as in `in_dtype`. Default: chosen for this
                machine.
            terms: For `"saved_model"`: as in `translate`.

        Returns:
            The path.

        Raises:
            FileExistsError: If `path` exists.
            ValueError: If `format` is unknown or lacks an option, if it cannot express
                the model or the search, which the error names, or if `search` draws
                without a seed or forces a different prefix for each text.
        """
        if max_length is not None:
            check_positive_integers(max_length=max_length)
        if format not in _EXPORTERS:
            raise ValueError(
                f"`format` must be one of {', '.join(map(repr, _EXPORTERS))}. "
                f"Received: format={format!r}."
            )
        name, function = _EXPORTERS[format]
        module = importlib.import_module(f"keras_transformer.{name}")
        write = getattr(module, function)
        options = {"jit_compile": jit_compile, "quantization": quantization}
        options |= {"dtype": dtype, "terms": terms}
        options = {name: x for name, x in options.items() if x is not None}
        for name in options.keys() - inspect.signature(write).parameters.keys():
            raise ValueError(
                f"`{name}` must be left out for format={format!r}, which has no such "
                f"option. Received: {name}={options[name]!r}."
            )
        model = self.model.merge_lora()
        merged = self if model is self.model else self._with(model)
        return write(merged, path, search or self.search, max_length, **options)

    def encode(self, texts):
        """Returns texts `(batch,)` as the model reads them, with TensorFlow ops only.

        That is: subwords, end tokens and padding, int32 of shape `(batch, length)`, all
        padding where a text is blank; and which texts were cut, boolean `(batch,)`.
        """
        texts = tf.convert_to_tensor(texts, tf.string)
        tokenizer = self.source_tokenizer
        ids, is_cut = encode(texts, tokenizer, self.max_source_length)
        is_space = tf.strings.regex_full_match(texts, WHITE_SPACE)
        is_blank = is_space | (unpadded_lengths(ids, tokenizer) == 0)
        return tf.where(is_blank[:, None], tokenizer.pad_id, ids), is_cut & ~is_space

    def as_encoded(self, source_ids):
        """Returns ids as `encode` would, with TensorFlow ops only.

        Long rows are cut, and ids outside the vocabulary are unknown.
        """
        tokenizer, limit = self.source_tokenizer, self.max_source_length
        is_id = (source_ids >= 0) & (source_ids < tokenizer.vocabulary_size)
        ids = tf.where(is_id, source_ids, max(tokenizer.unknown_id, 0))
        is_cut = tf.reduce_any(ids[:, limit:] != tokenizer.pad_id, axis=1)
        ids = ids[:, :limit]
        is_last = tf.range(tf.shape(ids)[1]) == limit - 1
        return tf.where(is_cut[:, None] & is_last, tokenizer.end_id, ids)

    def are_cut(self, texts: Sequence[str]) -> list[bool]:
        """Returns which texts are too long to be read completely."""
        return self.encode(as_bytes(texts))[1].numpy().tolist() if texts else []

    def checksum(self) -> str:
        """Returns a checksum of the weights and the search."""
        known = hashlib.blake2b(repr(self.search).encode())
        for weight in self.model.get_weights():
            known.update(weight.tobytes())
        return known.hexdigest()

    def encode_targets(self, texts, max_length: int | None = None):
        """Returns translations as the model should predict them, with TensorFlow ops.

        They are int32 of shape `(batch, length)`, as in `encode`. They are cut to
        `max_length`, by default the maximum for the longest source.
        """
        policy = self.batching_policy(max_length)
        max_length = policy.target_length(self.max_source_length)
        return encode(texts, self.target_tokenizer, max_length)[0]

    def num_given_tokens(self) -> int:
        """Returns how many tokens, such as a language, begin every translation."""
        with tf.init_scope():  # not part of a graph that is being traced
            return int(self.target_tokenizer([""]).row_lengths()[0])

    def decode(self, ids, search: Search, unknown=None):
        """Returns the texts found by a search, with TensorFlow ops only.

        A text ends before an end token of the search. Control characters, such as a
        line feed, become spaces.

        Args:
            ids: Integer tensor of shape `(..., length)`, as in `Hypotheses`.
            search: The search that found them.
            unknown: String tensor with what to write for unknown tokens, or None.
        """
        for end_id in search.end_ids or ():
            ids = tf.where(ids == end_id, self.target_tokenizer.end_id, ids)
        texts = self.target_tokenizer.detokenize(ids, unknown)
        texts = texts if unknown is None else with_spaces(texts)
        # A tokenizer with bytes can write line feeds, and a text has one line.
        return tf.strings.regex_replace(texts, r"[\p{Cc}\p{Zl}\p{Zp}]", " ")

    def batching_policy(self, max_length: int | None = None) -> BatchingPolicy:
        """Returns how the sources of this translator are batched."""
        return BatchingPolicy(
            self.max_source_length,
            max_length,
            self.source_tokenizer,
            self.model.max_positions,
        )


def ensemble(translators: Sequence[Translator]) -> Translator:
    """Returns a translator that averages the probabilities of several.

    It takes as long as all of them together.

    Args:
        translators: Translators with the same tokenizers, such as from runs that differ
            in their seeds.

    Returns:
        A `Translator` with the search and the longest source of the first. It is saved,
        loaded and exported to TensorFlow Serving like any other.

    Raises:
        ValueError: If there is no translator, or if their tokenizers differ.

    Example:
        >>> runs = "runs/seed-1", "runs/seed-2"
        >>> translators = [kt.Translator.load(run) for run in runs]  # doctest: +SKIP
        >>> both = kt.translator.ensemble(translators)  # doctest: +SKIP

    Reference:
        [Sutskever et al., 2014](https://arxiv.org/abs/1409.3215), section 3.6
    """
    if not translators:
        raise ValueError("`translators` must be one translator or more. Received: [].")
    first = translators[0]
    for number, other in enumerate(translators):
        for side in ("source_tokenizer", "target_tokenizer"):
            if not getattr(other, side).equals(getattr(first, side)):
                raise ValueError(
                    "`translators` must have the same tokenizers. Received: another "
                    f"{side} in translators[{number}]. Train runs on the same text, "
                    "with the same settings of `tokenizer`."
                )
    model = Ensemble([translator.model for translator in translators])
    tokenizers = first.source_tokenizer, first.target_tokenizer
    return Translator(model, *tokenizers, first.max_source_length, first.search)


def check_serves_any_text(search: Search) -> None:
    """Refuses what is not a search, or has settings for each text of one batch."""
    check_search(search)
    if isinstance(search, ConstrainedBeamSearch) and search.required is not None:
        raise ValueError(
            "`search` must require no phrases, because texts are sorted. Received: "
            f"phrases for {len(search.required)} texts. Pass `terms`, or call "
            "`model.generate`."
        )
    for processor in search.processors:
        if isinstance(processor, ForcedPrefix) and processor.num_sequences != 1:
            raise ValueError(
                "`search` must force one prefix for all texts, because texts are "
                f"sorted. Received: prefixes for {processor.num_sequences} texts. "
                "Translate each text with its own search, or call `model.generate`."
            )


def _check_tokenizers_fit(model, source_tokenizer, target_tokenizer) -> None:
    """Raises `ValueError` unless a model has the tokenizers' vocabularies."""
    if not isinstance(model, Transformer | Ensemble):
        raise ValueError(
            "`model` must be a Transformer or an Ensemble. "
            f"Received: a {type(model).__name__}."
        )
    sizes = model.settings
    for side, tokenizer, names in (
        ("source", source_tokenizer, ["pad_id"]),
        ("target", target_tokenizer, ["pad_id", "start_id", "end_id"]),
    ):
        check_tokenizer(f"{side}_tokenizer", tokenizer)
        # None of the target: one vocabulary for both.
        size = sizes[f"{side}_vocabulary_size"] or sizes["source_vocabulary_size"]
        if tokenizer.vocabulary_size != size:
            raise ValueError(
                f"`{side}_tokenizer` must have the model's {side} vocabulary of {size} "
                f"subwords. Received: one of {tokenizer.vocabulary_size} subwords. "
                "Pass the tokenizer that the model was trained with."
            )
        for name in names:
            expected, received = getattr(tokenizer, name), getattr(model, name)
            if received != expected:
                raise ValueError(
                    f"`model` must have the {name} of its tokenizers, {expected}. "
                    f"Received: {name}={received}."
                )


def in_dtype(model, dtype: str):
    """Returns a model of the same weights that computes in a dtype."""
    if isinstance(model, Ensemble):
        return Ensemble([in_dtype(x, dtype) for x in model.models])
    other = type(model).from_config({**model.get_config(), "dtype": dtype})
    other.set_weights(model.get_weights())
    return other


def check_one_transformer(translator: Translator, what: str) -> None:
    """Refuses what is not a translator of one model; `what` needs one."""
    model = getattr(translator, "model", None)
    if not isinstance(model, Transformer):
        received = f"a {type(translator).__name__}"
        if isinstance(model, Ensemble):
            received = f"an ensemble of {len(model.models)}"
        raise ValueError(
            f"{what} needs a translator of one Transformer. Received: {received}. Pass "
            "one that it was made of."
        )


def _as_pairs(texts, translations) -> tuple[list[bytes], list[bytes]]:
    """Returns texts and translations in UTF-8; raises `ValueError` unless they fit."""
    sources, targets = as_bytes(texts), as_bytes(translations)
    if len(sources) != len(targets):
        raise ValueError(
            "`translations` must have one translation of each text. "
            f"Received: {len(sources)} texts, {len(targets)} translations."
        )
    return sources, targets
