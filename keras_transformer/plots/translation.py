"""The attention weights of a translation."""

import warnings
from typing import NamedTuple

import keras
import numpy as np
from matplotlib.figure import Figure

from keras_transformer.decoding import Search
from keras_transformer.plots.attention import attention_map
from keras_transformer.translator.translator import Translator, check_one_transformer


class AttendedTranslation(NamedTuple):
    """A translation with its attention weights.

    Attributes:
        text: The translation.
        source_tokens: The subwords of the source, including the end token.
        target_tokens: The subwords of the translation, including the end token.
        scores: NumPy arrays of attention weights, of shape
            `(layers, heads, query, key)`: `"encoder"`, from source to source;
            `"cross"`, from target to source; and `"decoder"`, from target to the
            decoder's inputs, `["<s>", *target_tokens[:-1]]`.
        score: The score of the translation, as the search defines it, if known.
    """

    text: str
    source_tokens: list[str]
    target_tokens: list[str]
    scores: dict[str, np.ndarray]
    score: float | None = None


def translation_attention(
    translator: Translator,
    text: str,
    search: Search | None = None,
    max_length: int | None = None,
) -> Figure:
    """Translates a text and plots which source subwords each new one attended to.

    It plots the cross-attention weights that `Translator.align` compares: the mean over
    the heads of all layers except the first. For other layers and heads, pass the
    scores of `translate_with_attention` to `attention_map`.

    Args:
        translator: A `Translator`.
        text: The text to translate.
        search: A search of `keras_transformer.decoding`; the translator's own unless
            given.
        max_length: As in `Translator.translate`.

    Returns:
        A `matplotlib.figure.Figure`, as `attention_map` returns it.

    Raises:
        ValueError: If `text` is blank, or if processors forbid every token.
    """
    seen = translate_with_attention(translator, text, search, max_length)
    cross = seen.scores["cross"]
    scores = cross[min(1, len(cross) - 1) :].mean(axis=(0, 1))
    figure = attention_map(seen.target_tokens, seen.source_tokens, scores)
    figure.supxlabel("source")
    figure.supylabel("translation")
    return figure


def translate_with_attention(
    translator: Translator,
    text: str,
    search: Search | None = None,
    max_length: int | None = None,
) -> AttendedTranslation:
    """Translates like `translator.translate`, and keeps the attention weights.

    Arguments and errors are as in `translation_attention`.

    Returns:
        An `AttendedTranslation`.
    """
    found = translate_n_best_with_attention(translator, text, search, max_length)
    if not found:
        raise ValueError(
            "`search` must find a translation, but its processors forbid every token. "
            f"Received: a {type(search or translator.search).__name__}."
        )
    return found[0]


def translate_n_best_with_attention(
    translator: Translator,
    text: str,
    search: Search | None = None,
    max_length: int | None = None,
) -> list[AttendedTranslation]:
    """Translates like `translator.translate_n_best`, and keeps attention weights.

    Arguments and errors are as in `translation_attention`.

    Returns:
        A list of `AttendedTranslation`, best first: the `num_hypotheses` of `search`,
        or fewer if it found fewer; empty if processors forbid every token.
    """
    check_one_transformer(translator, "Attention")
    model = translator.model
    search = search or translator.search
    encoded = text.encode("utf-8", "replace") if isinstance(text, str) else b""
    source_ids, is_cut = translator.encode([encoded])
    if (source_ids.numpy() == model.pad_id).all():
        raise ValueError(f"`text` must be a str with a word. Received: text={text!r}.")
    if is_cut[0]:
        warnings.warn(
            "`text` is longer than the translator's "
            f"max_source_length={translator.max_source_length} subwords and was cut.",
            stacklevel=2,
        )
    policy = translator.batching_policy(max_length)
    ((_, padded_ids, target_length),) = policy.groups(source_ids)
    found = model.generate(padded_ids, search, target_length)
    return [
        _attended(translator, search, source_ids, ids, float(score))
        for ids, score in zip(found.ids[0], found.scores[0], strict=True)
        if score > -np.inf
    ]


def _attended(translator, search, source_ids, target_ids, score):
    model = translator.model
    target_ids = target_ids[target_ids != model.pad_id]
    inputs = np.append(model.start_id, target_ids[:-1])
    scores = model.attention_scores(source_ids, inputs[None])
    return AttendedTranslation(
        text=translator.decode(target_ids, search).numpy().decode("utf-8", "replace"),
        source_tokens=translator.source_tokenizer.pieces(source_ids[0].numpy()),
        target_tokens=translator.target_tokenizer.pieces(target_ids),
        scores={
            name: keras.ops.convert_to_numpy(each)[:, 0].astype("float32")
            for name, each in scores.items()
        },
        score=score,
    )
