"""Which parts of a source a translation renders, by cross-attention."""

import itertools
import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf
from keras import ops

from keras_transformer.models import Ensemble


class AlignedPair(NamedTuple):
    """A subword of a translation, and the subword of the source that it renders.

    Attributes:
        source: First character in the source, and the one after the last.
        target: The same in the translation.
        weight: The attention weight between the two.
    """

    source: tuple[int, int]
    target: tuple[int, int]
    weight: float


class AlignmentHeads(NamedTuple):
    """Which cross-attention tells what a target subword renders.

    Attributes:
        layer: Index of a layer of the decoder.
        heads: Indices of its heads whose weights are averaged; None for all.
        when_read: Whether to take the step that reads the subword rather than the one
            that predicts it.

    Reference:
        [Garg et al., 2019](https://arxiv.org/abs/1909.02074) (layers);
        [Chen et al., 2020](https://arxiv.org/abs/2004.14837) (the step that reads)
    """

    layer: int = -1
    heads: tuple[int, ...] | None = None
    when_read: bool = False


DEFAULT_HEADS = AlignmentHeads()


def alignment_weights(model, source_ids, labels, heads: AlignmentHeads):
    """Returns the attention weights from each target to each source subword.

    Args:
        model: A `Transformer`, or an `Ensemble`, whose first model aligns.
        source_ids: Integer tensor of shape `(batch, source_length)`.
        labels: Integer tensor of shape `(batch, target_length)`: targets with end
            tokens and padding.
        heads: Which weights.

    Returns:
        A float32 tensor of shape `(batch, target_length, source_length)`.
    """
    model = model.models[0] if isinstance(model, Ensemble) else model
    starts = ops.full_like(labels[:, :1], model.start_id)
    target_ids = ops.concatenate([starts, labels[:, :-1]], axis=1)
    weights = model.attention_scores(source_ids, target_ids)["cross"][heads.layer]
    if heads.heads is not None:
        weights = ops.take(weights, heads.heads, axis=1)
    weights = ops.mean(ops.cast(weights, "float32"), axis=1)
    # The last label is an end token or padding, which no step needs to read.
    return ops.roll(weights, -1, axis=1) if heads.when_read else weights


def aligned_spans(weights, source_spans, target_spans, is_end):
    """Aligns each target subword to the source subword with the largest weight.

    Where that is the end token, the target subword is not aligned. Subwords without
    text are left out.

    Args:
        weights: As `alignment_weights` returns them.
        source_spans: Integer tensor of shape `(batch, source_length, 2)`.
        target_spans: Integer tensor of shape `(batch, target_length, 2)`.
        is_end: Boolean tensor of shape `(batch, source_length)`: the end tokens of
            sources.

    Returns:
        The two spans of each pair, ragged of shape `(batch, None, 4)`; and the weights
        of the pairs, ragged of shape `(batch, None)`.
    """
    has_text = source_spans[..., 0] < source_spans[..., 1]
    weights = tf.where((has_text | is_end)[:, None], weights, -1.0)
    best = tf.argmax(weights, axis=2)
    spans = tf.gather(source_spans, best, batch_dims=1)
    spans = tf.concat([spans, target_spans], axis=2)
    is_pair = (spans[..., 0] < spans[..., 1]) & (spans[..., 2] < spans[..., 3])
    weights = tf.reduce_max(weights, axis=2)
    return (tf.ragged.boolean_mask(x, is_pair) for x in (spans, weights))


def aligned_pairs(weights, source_spans, target_spans, is_end):
    """Returns a list of `AlignedPair` for each row; arguments as in `aligned_spans`.

    The weights may be padded.
    """
    target_spans = target_spans[:, : weights.shape[1]]
    source_spans, is_end = (x[:, : weights.shape[2]] for x in (source_spans, is_end))
    weights = weights[:, : target_spans.shape[1], : source_spans.shape[1]]
    spans, weights = aligned_spans(weights, source_spans, target_spans, is_end)
    return [
        [
            AlignedPair((a, b), (c, d), weight)
            for (a, b, c, d), weight in zip(*row, strict=True)
        ]
        for row in zip(spans.to_list(), weights.to_list(), strict=True)
    ]


def word_links(
    text: str, translation: str, pairs: Sequence[AlignedPair]
) -> list[tuple[int, int]]:
    """Returns which words are aligned: those with subwords that are.

    Words are what white space separates, as `str.split` does.

    Args:
        text: A source.
        translation: Its translation.
        pairs: Their pairs, as `Translator.align` returns them.

    Returns:
        Pairs of indices of a word of `text` and of one of `translation`, sorted.

    Example:
        >>> from keras_transformer.translator import AlignedPair, word_links
        >>> pairs = [AlignedPair((0, 1), (0, 3), 0.9), AlignedPair((2, 5), (4, 8), 0.7)]
        >>> word_links("a man", "ein Mann", pairs)
        [(0, 0), (1, 1)]
    """
    source_ends, target_ends = (
        [word.end() for word in re.finditer(r"\S+", side)]
        for side in (text, translation)
    )
    links: set[tuple[int, int]] = set()
    for pair in pairs:
        links.update(
            itertools.product(
                _words_in(pair.source, source_ends), _words_in(pair.target, target_ends)
            )
        )
    return sorted(links)


def _words_in(span, ends):
    """Returns which words a span touches, by the ends of all words."""
    return range(bisect_right(ends, span[0]), bisect_right(ends, span[1] - 1) + 1)


def pharaoh(links: Sequence[tuple[int, int]]) -> str:
    """Writes links as Pharaoh did, and as tools for alignments read: `"0-0 1-2"`."""
    return " ".join(f"{source}-{target}" for source, target in links)
