"""Text in, text out, many texts at a time."""

import os
import warnings
from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf

from keras_transformer.checks import check_positive_integers
from keras_transformer.decoding import BeamSearch, Search
from keras_transformer.models import Ensemble, Transformer
from keras_transformer.text import SubwordTokenizer
from keras_transformer.text.encoding import WHITE_SPACE, encode_head
from keras_transformer.translator.batching import BatchingPolicy, unpadded_lengths
from keras_transformer.translator.checks import (
    check_max_source_length,
    check_serves_any_text,
    check_tokenizers_fit,
    list_of_texts,
)
from keras_transformer.translator.formats import export_as
from keras_transformer.translator.saving import SavedTranslator
from keras_transformer.translator.scoring import Scorer, TargetScore
from keras_transformer.translator.text_translator import TextTranslator, Translation

DEFAULT_SEARCH = BeamSearch(4)
"""The search of a translator unless another is named: a beam of 4."""


class Translator(TextTranslator, SavedTranslator):
    """Translates text with a trained model.

    The translation of a text does not depend on the other texts of a call, and few
    shapes are compiled, whatever the texts: see `BatchingPolicy`.

    Args:
        model: A trained `Transformer`, or an `Ensemble` of several.
        source_tokenizer: Tokenizer of the language to translate from.
        target_tokenizer: Tokenizer of the language to translate to; by default the
            same one.
        max_source_length: The most subwords of a text that are read, end token
            included; longer texts are cut.
        search: The search that is used unless a call names another. It is saved with
            the translator.

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
        source_tokenizer: SubwordTokenizer,
        target_tokenizer: SubwordTokenizer | None = None,
        max_source_length: int = 128,
        search: Search = DEFAULT_SEARCH,
    ):
        target_tokenizer = target_tokenizer or source_tokenizer
        check_max_source_length(max_source_length)
        check_tokenizers_fit(model, source_tokenizer, target_tokenizer)
        self.model = model
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.max_source_length = max_source_length
        self.search = search
        self._scorer: Scorer | None = None

    def translate_n_best(
        self,
        texts: Sequence[str],
        search: Search | None = None,
        batch_size: int | None = None,
        max_length: int | None = None,
    ) -> list[list[Translation]]:
        """Translates as `translate` does, and returns every hypothesis with its score.

        The `num_hypotheses` of `search` is the number of translations of each text.

        Returns:
            For each text a list of `Translation`, best first. A score of minus infinity
            means that the search found fewer hypotheses; a blank text scores 0.
        """
        search = search or self.search
        check_serves_any_text(search)
        texts = list_of_texts(texts)
        if not texts:
            return []
        source_ids, is_cut = self.encode(as_bytes(texts))
        if (is_cut := is_cut.numpy()).any():
            warnings.warn(
                f"{is_cut.sum()} of {len(texts)} texts are longer than "
                f"max_source_length={self.max_source_length} subwords and were cut, "
                f"the first of them texts[{is_cut.argmax()}].",
                stacklevel=2,
            )
        found = [[Translation("", 0.0)] * search.num_hypotheses for _ in texts]
        policy = self.batching_policy(max_length)
        for rows, ids, target_length in policy.groups(source_ids):
            ids, scores = self.model.generate(ids, search, target_length, batch_size)
            decoded = self.decode(ids, search).numpy()
            for row, *best_first in zip(rows, decoded, scores, strict=True):
                found[row] = [
                    Translation(text.decode("utf-8", "replace"), float(score))
                    for text, score in zip(*best_first, strict=True)
                ]
        return found

    def score(
        self, texts: Sequence[str], translations: Sequence[str]
    ) -> list[TargetScore]:
        """Returns how likely the model finds given translations.

        Args:
            texts: What is translated, a list of str.
            translations: A translation of each.

        Returns:
            A `TargetScore` for each text. Texts and translations that are too long are
            cut, as the signature `score` of a SavedModel cuts them. What the tokenizer
            puts before every translation, such as its language, does not count.

        Raises:
            ValueError: If one of them is not a list of str, or their lengths differ.

        Example:
            >>> lines = ["a man rides a bike", "a dog rides a man", "a bike"]
            >>> tokenizer = kt.text.SubwordTokenizer.train(lines, vocabulary_size=25)
            >>> model = kt.models.Transformer(
            ...     25, num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16
            ... )
            >>> translator = kt.Translator(model, tokenizer)
            >>> scores = translator.score(["a man", "a man"], ["a bike", "a dog rides"])
            >>> [score.log_probability < 0 for score in scores]
            [True, True]
        """
        texts, translations = list_of_texts(texts), list_of_texts(translations)
        if len(texts) != len(translations):
            raise ValueError(
                "`translations` must have one translation of each text. "
                f"Received: {len(texts)} texts, {len(translations)} translations."
            )
        if not texts:
            return []
        if self._scorer is None or not self._scorer.is_of(self.model):
            longest = self.max_source_length
            longest_target = self.batching_policy().target_length(longest)
            self._scorer = Scorer(
                self.model, (longest, longest_target), self.num_given_tokens()
            )
        source_ids, _ = self.encode(as_bytes(texts))
        return self._scorer(source_ids, self.encode_targets(as_bytes(translations)))

    def export(
        self,
        path: str | os.PathLike,
        search: Search | None = None,
        max_length: int | None = None,
        jit_compile: bool = False,
        format: str = "saved_model",
        quantization: str | None = None,
    ) -> Path:
        """Writes the translator for another system.

        | Format | For | Documented at |
        | --- | --- | --- |
        | `"saved_model"` | TensorFlow Serving | `serving.ServedTranslator` |
        | `"ctranslate2"` | CTranslate2, on CPUs and GPUs | `interop.ctranslate2` |
        | `"hugging_face"` | transformers | `interop.hugging_face.export` |

        The folder appears under its name once it is complete.

        Args:
            path: Folder to write, such as `saved_models/en-de/1`.
            search: As in `translate`; it must have a seed if it draws.
            max_length: As in `translate`.
            jit_compile: For `"saved_model"`: whether XLA compiles the search on the
                server. It is faster then, except for the first request of each length
                and batch size (a power of two), which takes some seconds. The server's
                TensorFlow must have XLA for its device. For a server with a GPU, export
                on a machine with a GPU; otherwise large batches are searched in two
                halves.
            format: Name of a registered format.
            quantization: For `"ctranslate2"`: the type of the weights, such as `"int8"`
                or `"float16"`. None: float32.

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
        options = {"jit_compile": jit_compile, "quantization": quantization}
        search = search or self.search
        return export_as(format, self._merged(), path, search, max_length, **options)

    def _merged(self):
        """Returns the translator with low-rank adaptations merged into its kernels."""
        model = self.model.merge_lora()
        if model is self.model:
            return self
        tokenizers = self.source_tokenizer, self.target_tokenizer
        return Translator(model, *tokenizers, self.max_source_length, self.search)

    def encode(self, texts):
        """Returns texts as the model reads them, with TensorFlow ops only.

        `texts` are a list of str or bytes, or a string tensor of shape `(batch,)`.

        Returns:
            Subwords, end tokens and padding, int32 of shape `(batch, length)`, all
            padding where a text is blank; and which texts were cut, boolean `(batch,)`.
        """
        texts = tf.convert_to_tensor(texts, tf.string)
        tokenizer = self.source_tokenizer
        ids, is_cut = encode_head(texts, tokenizer, self.max_source_length)
        is_blank = tf.strings.regex_full_match(texts, WHITE_SPACE)
        is_blank |= unpadded_lengths(ids, tokenizer) == 0
        return tf.where(is_blank[:, None], tokenizer.pad_id, ids), is_cut & ~is_blank

    def encode_targets(self, texts, max_length: int | None = None):
        """Returns translations as the model is to predict them, with TensorFlow ops.

        Args:
            texts: As in `encode`.
            max_length: The most subwords of a translation, end token included; by
                default twice `max_source_length`, or the number of the model's
                positions if that is less. Others are cut.

        Returns:
            Subwords, end tokens and padding, int32 of shape `(batch, length)`.
        """
        policy = self.batching_policy(max_length)
        max_length = policy.target_length(self.max_source_length)
        return encode_head(texts, self.target_tokenizer, max_length)[0]

    def num_given_tokens(self) -> int:
        """Returns how many tokens, such as a language, begin every translation."""
        return int(self.target_tokenizer([""]).row_lengths()[0])

    def decode(self, ids, search: Search):
        """Returns the texts that a search found, with TensorFlow ops only.

        A text ends before an end token of the search.

        Args:
            ids: Integer tensor of shape `(..., length)`, as in `Hypotheses`.
            search: The search that found them.

        Returns:
            A string tensor of shape `(...)`.
        """
        for end_id in search.end_ids or ():
            ids = tf.where(ids == end_id, self.target_tokenizer.end_id, ids)
        return self.target_tokenizer.detokenize(ids)

    def batching_policy(self, max_length: int | None = None) -> BatchingPolicy:
        """Returns how the sources of this translator are batched."""
        return BatchingPolicy(
            self.max_source_length,
            max_length,
            self.source_tokenizer,
            self.model.max_positions,
        )


def as_bytes(texts: list[str]) -> list[bytes]:
    """Returns texts in UTF-8."""
    # It cannot encode a lone surrogate, which becomes a question mark.
    return [text.encode("utf-8", "replace") for text in texts]
