"""A translation, and what the model looked at while it wrote."""

import warnings
from typing import NamedTuple

import keras
import numpy as np
from matplotlib.figure import Figure

from keras_transformer.decoding import Search
from keras_transformer.plots.attention import attention_map
from keras_transformer.translator import DEFAULT_SEARCH, Translator


class AttendedTranslation(NamedTuple):
    """A translation, and what the model looked at while it wrote.

    `source_tokens` and `target_tokens` are subwords, end symbol included. `scores`
    are NumPy arrays of shape `(layers, heads, query, key)`: `"encoder"`, of source to
    source; `"cross"`, of target to source; and `"decoder"`, of target to the tokens
    that came before each, `["<s>", *target_tokens[:-1]]`.
    """

    text: str
    source_tokens: list[str]
    target_tokens: list[str]
    scores: dict[str, np.ndarray]


def translation_attention(
    translator: Translator, text: str, search: Search = DEFAULT_SEARCH
) -> Figure:
    """Translates a text and draws which source subwords each new one looked at.

    It is the cross-attention of the last layer, averaged over its heads. For other
    layers and heads, give the scores of `translate_with_attention` to `attention_map`.

    Args:
        translator: A `Translator`.
        text: What to translate.
        search: A search of `keras_transformer.decoding`.

    Returns:
        A `matplotlib.figure.Figure`, as of `attention_map`.

    Raises:
        ValueError: If there is no word in `text`.
    """
    seen = translate_with_attention(translator, text, search)
    scores = seen.scores["cross"][-1].mean(axis=0)
    figure = attention_map(seen.target_tokens, seen.source_tokens, scores)
    figure.supxlabel("source")
    figure.supylabel("translation")
    return figure


def translate_with_attention(
    translator: Translator, text: str, search: Search = DEFAULT_SEARCH
) -> AttendedTranslation:
    """Translates a text as `translator.translate` does, and keeps the attention.

    Args:
        translator: A `Translator`.
        text: What to translate.
        search: A search of `keras_transformer.decoding`.

    Returns:
        An `AttendedTranslation`.

    Raises:
        ValueError: If there is no word in `text`.
    """
    model, target_tokenizer = translator.model, translator.target_tokenizer
    words = text.encode("utf-8", "replace") if isinstance(text, str) else b""
    source_ids, is_cut = translator.encode([words])
    source_ids = source_ids.numpy()
    if not source_ids.any():
        raise ValueError(f"`text` must be a str with a word. Received: text={text!r}.")
    if is_cut[0]:
        warnings.warn(
            "`text` is longer than the translator's "
            f"max_source_length={translator.max_source_length} subwords and was cut.",
            stacklevel=2,
        )
    # Padded as `translate` pads it, so that what that compiled serves here too.
    length = min(n for n in translator.padded_lengths() if n >= source_ids.shape[1])
    padded_ids = np.pad(source_ids, ((0, 0), (0, length - source_ids.shape[1])))
    limit = translator.max_target_length(length)
    target_ids = model.generate(padded_ids, search, limit).ids[0, 0]
    target_ids = target_ids[target_ids != model.pad_id]
    before = np.append(model.start_id, target_ids[:-1])
    scores = model.attention_scores(source_ids, before[None])
    return AttendedTranslation(
        text=target_tokenizer.detokenize(target_ids).numpy().decode("utf-8", "replace"),
        source_tokens=translator.source_tokenizer.pieces(source_ids[0]),
        target_tokens=target_tokenizer.pieces(target_ids),
        scores={
            name: keras.ops.convert_to_numpy(each)[:, 0].astype("float32")
            for name, each in scores.items()
        },
    )
