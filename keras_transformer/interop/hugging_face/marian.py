"""Marian, the family of the OPUS-MT translators.

Reference:
    [Junczys-Dowmunt et al., 2018](https://arxiv.org/abs/1804.00344);
    [Tiedemann et al., 2024](https://arxiv.org/abs/2212.01936)
"""

import re
from collections.abc import Iterable

from keras_transformer.interop.checkpoint import read_json, read_sentencepiece
from keras_transformer.interop.hugging_face.config import stack_arguments
from keras_transformer.layers import SinusoidalPositionalEncoding
from keras_transformer.text import VocabularyTokenizer


def transformer_arguments(config) -> dict:
    """Returns the arguments of the `Transformer` that equals a Marian model."""
    size = config.take("vocab_size")
    target_size = config.take("decoder_vocab_size", size)
    is_shared = config.take("share_encoder_decoder_embeddings", True)
    if is_shared and target_size != size:
        raise ValueError(
            "`decoder_vocab_size` must be `vocab_size` for shared embeddings. Received:"
            f" decoder_vocab_size={target_size}, vocab_size={size}."
        )
    return {
        **stack_arguments(config, normalize_first=False),
        "source_vocabulary_size": size,
        "target_vocabulary_size": None if is_shared else target_size,
        "positions": SinusoidalPositionalEncoding(layout="halves"),
        "output_bias": True,
    }


def tokenizers(folder, arguments, source_language=None, target_language=None):
    """Returns the tokenizers of source and target, and no id that begins targets.

    The languages are as in `_language_prefix`.
    """
    settings = read_json(folder / "tokenizer_config.json", is_optional=True)
    is_separate = settings.get("separate_vocabs")
    names = ("vocab.json", "target_vocab.json" if is_separate else "vocab.json")
    source, target = (read_json(folder / name) for name in names)
    piece_of = {index: piece for piece, index in target.items()}
    unknown = settings.get("unk_token", "<unk>")
    is_wrapped = isinstance(unknown, dict)  # with how to strip spaces around it
    shared = {
        "unknown": unknown.get("content") if is_wrapped else unknown,
        "reads_language_codes": True,
    }
    for name in ("pad", "start", "end"):
        index = arguments[f"{name}_id"]
        if index not in piece_of:
            raise ValueError(
                f"{folder / names[1]} has no subword of id {index}, which config.json "
                f"gives as the id of the {name}."
            )
        shared[name] = piece_of[index]
    prefix = _language_prefix(source, source_language, target_language)
    source_model, _ = read_sentencepiece(folder / "source.spm")
    target_model, _ = read_sentencepiece(folder / "target.spm")
    return (
        VocabularyTokenizer(source_model, source, prefix=prefix, **shared),
        VocabularyTokenizer(target_model, target, **shared),
        None,
    )


def _language_prefix(
    vocabulary: Iterable[str], source_language: str | None, target_language: str | None
) -> list[str]:
    """Returns the subword of the target language, which begins every source, if any.

    A multilingual model reads the language of the target from the text, as in
    `">>fra<< A man rides a bike."`; `target_language="fra"` puts it there.
    """
    if source_language is not None:
        raise ValueError(
            "A Marian model reads its source language from the text: leave out "
            f"`source_language`. Received: source_language={source_language!r}."
        )
    if target_language is None:
        return []
    prefix = f">>{target_language}<<"
    if prefix not in vocabulary:
        known = sorted(x[2:-2] for x in vocabulary if re.fullmatch(">>.*<<", x))
        raise ValueError(
            f"`target_language` must be one of {known}. "
            f"Received: target_language={target_language!r}."
        )
    return [prefix]
