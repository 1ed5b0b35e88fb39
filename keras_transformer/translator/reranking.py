"""Reranking translations by a translator of the other direction."""

import math
from collections.abc import Sequence

from keras_transformer.decoding import BeamSearch, Search
from keras_transformer.decoding.length_penalty import length_penalty_of
from keras_transformer.translator.checks import list_of_texts
from keras_transformer.translator.text_translator import TextTranslator, Translation
from keras_transformer.translator.translator import Translator, as_bytes


class RerankedTranslator(TextTranslator):
    """Chooses the translations from which their source can be told best.

    A model may prefer a translation that leaves something out. The probability of the
    source, given the translation, tells: each score becomes `score + weight *
    reverse_score`, where `reverse_score` is the log-probability of the text that
    `reverse` gives, divided by the length penalty of the search, if it has one. A beam
    search ranks all `beam_width` hypotheses so, and returns `num_hypotheses` of them.

    Args:
        translator: A `Translator`.
        reverse: A `Translator` of the other direction; `translator` itself if it
            translates both ways.
        weight: How much the reverse score counts. 0.2 was best on Multi30k:
            benchmarks/QUALITY.md.

    Raises:
        ValueError: If `weight` is negative or not finite.

    Example:
        >>> lines = ["a man rides a bike", "a dog rides a man", "a bike"]
        >>> tokenizer = kt.text.SubwordTokenizer.train(lines, vocabulary_size=25)
        >>> model = kt.models.Transformer(
        ...     25, num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16
        ... )
        >>> both_ways = kt.Translator(model, tokenizer)
        >>> reranked = kt.translator.RerankedTranslator(both_ways, both_ways)
        >>> len(reranked.translate(["a man", ""], max_length=5))
        2

    Reference:
        [Li and Jurafsky, 2016](https://arxiv.org/abs/1601.00372), section 4
    """

    def __init__(
        self, translator: Translator, reverse: Translator, weight: float = 0.2
    ):
        if not 0 <= weight < math.inf:
            raise ValueError(
                f"`weight` must be at least 0 and finite. Received: weight={weight}."
            )
        self.translator = translator
        self.reverse = reverse
        self.weight = weight

    def translate_n_best(
        self,
        texts: Sequence[str],
        search: Search | None = None,
        batch_size: int | None = None,
        max_length: int | None = None,
    ) -> list[list[Translation]]:
        """Translates as `Translator.translate_n_best` does, and ranks by both scores.

        Translations that the search did not find stay last. A blank text keeps its
        score of 0.
        """
        search = search or self.translator.search
        texts = list_of_texts(texts)
        found = self.translator.translate_n_best(
            texts, _with_whole_beam(search), batch_size, max_length
        )
        source_ids, _ = self.translator.encode(as_bytes(texts))
        is_blank = (source_ids.numpy() == self.translator.model.pad_id).all(axis=1)
        pairs = [
            (row, index)
            for row, translations in enumerate(found)
            for index, one in enumerate(translations)
            if not is_blank[row] and one.score > -math.inf
        ]
        scores = self.reverse.score(
            [found[row][index].text for row, index in pairs],
            [texts[row] for row, _ in pairs],
        )
        penalty = length_penalty_of(getattr(search, "length_penalty", 0.0))
        for (row, index), score in zip(pairs, scores, strict=True):
            divisor = float(penalty.divisors(score.tokens)[-1])
            reverse_score = score.log_probability / divisor
            text, forward_score = found[row][index]
            total = forward_score + self.weight * reverse_score
            found[row][index] = Translation(text, total)
        return [
            sorted(each, key=lambda one: -one.score)[: search.num_hypotheses]
            for each in found
        ]


def _with_whole_beam(search):
    """Returns a search that returns all hypotheses of its beam, if it has one."""
    if not isinstance(search, BeamSearch):
        return search
    return search.replace(num_hypotheses=search.beam_width)
