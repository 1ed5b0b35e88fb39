"""Which parts of a source a translation renders, by cross-attention."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf
from keras import ops

from keras_transformer.models import Ensemble
from keras_transformer.placement import words_in

# What a source subword receives in total if next to nothing in the target renders it.
_LITTLE_ATTENTION = 0.01


class AlignedPair(NamedTuple):
    """A subword of a translation, and the source subword that it renders.

    Attributes:
        source: First character in the source, and the one after the last.
        target: The same in the translation.
        weight: The attention weight between the two.
    """

    source: tuple[int, int]
    target: tuple[int, int]
    weight: float


def alignment_weights(model, source_ids, labels):
    """Returns how much the prediction of each target subword attends to the source.

    These are the weights of the cross-attention, averaged over the heads of all layers
    but the first. `benchmarks/alignments.py` compares layers, and the step that
    predicts a subword with the step that reads it. The models of an `Ensemble` are
    averaged. `labels`, of shape `(batch, target_length)`, have end tokens and padding;
    the weights are float32 of shape `(batch, target_length, source_length)`.
    """
    starts = ops.full_like(labels[:, :1], model.start_id)
    target_ids = ops.concatenate([starts, labels[:, :-1]], axis=1)
    weights = []
    for one in model.models if isinstance(model, Ensemble) else [model]:
        # (layers, batch, heads, target_length, source_length)
        scores = one.attention_scores(source_ids, target_ids)["cross"]
        scores = scores[min(1, len(one.decoder.blocks) - 1) :]
        weights.append(ops.mean(ops.cast(scores, "float32"), axis=(0, 2)))
    return sum(weights) / len(weights)


def aligned_spans(weights, source_spans, target_spans, is_end):
    """Aligns each target subword to the source subword with the largest weight.

    Some source subwords, such as full stops, attract attention regardless of the
    prediction. Therefore each weight is compared after division by what the source
    subword receives from the whole target. If the end token wins, the target subword is
    not aligned. Subwords without text are left out.

    Spans have the shape `(batch, length, 2)`, and `is_end`, the end tokens of sources,
    `(batch, source_length)`. Returns the two spans of each pair, ragged of shape
    `(batch, None, 4)`, and the weights of the pairs, of shape `(batch, None)`.
    """
    is_source = (source_spans[..., 0] < source_spans[..., 1]) | is_end
    is_target = target_spans[..., 0] < target_spans[..., 1]
    received = tf.where(is_target[..., None], weights, 0.0)
    received = tf.reduce_sum(received, axis=1, keepdims=True)
    scores = weights / (received + _LITTLE_ATTENTION)
    scores = tf.where(is_source[:, None], scores, -1.0)
    # Another column, since TensorFlow finds no maximum where there are no texts.
    scores = tf.pad(scores, [[0, 0], [0, 0], [0, 1]], constant_values=-1.0)
    best = tf.argmax(scores, axis=2)
    weights = tf.gather(weights, best, batch_dims=2)
    sources = tf.gather(source_spans, best, batch_dims=1)
    is_pair = is_target & (sources[..., 0] < sources[..., 1])
    spans = tf.concat([sources, target_spans], axis=2)
    return [tf.ragged.boolean_mask(x, is_pair) for x in (spans, weights)]


def aligned_pairs(weights, source_spans, target_spans, is_end):
    """Returns a list of `AlignedPair` for each row; arguments as in `aligned_spans`.

    The weights may be padded.
    """
    target_spans = target_spans[:, : weights.shape[1]]
    source_spans, is_end = (x[:, : weights.shape[2]] for x in (source_spans, is_end))
    weights = weights[:, : target_spans.shape[1], : source_spans.shape[1]]
    spans, weights = aligned_spans(weights, source_spans, target_spans, is_end)
    rows = zip(spans.to_list(), weights.to_list(), strict=True)
    return [
        [AlignedPair((a, b), (c, d), x) for (a, b, c, d), x in zip(*row, strict=True)]
        for row in rows
    ]


def word_links(
    text: str, translation: str, pairs: Sequence[AlignedPair]
) -> list[tuple[int, int]]:
    """Returns which words are aligned, by their subwords.

    Words are separated by white space, as in `str.split`.

    Args:
        text: A source.
        translation: Its translation.
        pairs: The aligned subwords, as returned by `Translator.align`.

    Returns:
        Sorted pairs of indices: of a word of `text` and a word of `translation`.

    Example:
        >>> from keras_transformer.translator import AlignedPair, word_links
        >>> pairs = [AlignedPair((0, 1), (0, 3), 0.9), AlignedPair((2, 5), (4, 8), 0.7)]
        >>> word_links("a man", "ein Mann", pairs)
        [(0, 0), (1, 1)]
    """
    source_ends = [word.end() for word in re.finditer(r"\S+", text)]
    target_ends = [word.end() for word in re.finditer(r"\S+", translation)]
    links = {
        (source, target)
        for pair in pairs
        for source in words_in(pair.source, source_ends)
        for target in words_in(pair.target, target_ends)
    }
    return sorted(links)


def pharaoh(links: Sequence[tuple[int, int]]) -> str:
    """Formats links in Pharaoh format, which alignment tools read.

    Args:
        links: Pairs of indices, as returned by `word_links`.

    Returns:
        The links of one line, such as `"0-0 1-2"`, with the source word first.
    """
    return " ".join(f"{source}-{target}" for source, target in links)
