"""Minimum Bayes risk decoding: the translation that agrees most with the others."""

import functools
import math
from collections import Counter
from collections.abc import Callable, Sequence

from keras_transformer.translator.text_translator import Translation


def sentence_chrf(hypothesis: str, reference: str) -> float:
    """Returns the chrF of one sentence, from 0 to 100, as sacreBLEU computes it."""
    return _chrf().sentence_score(hypothesis, [reference]).score


def minimum_bayes_risk(
    translations: Sequence[Translation],
    utility: Callable[[str, str], float] = sentence_chrf,
) -> Translation:
    """Chooses the translation of the highest expected utility.

    A model's likeliest translation may be an unusual one. This takes the one that is
    most like all that the model finds likely: it maximises the mean over the others of
    `utility(translation, other)`, as if each of them were the reference. The first of
    several equals is chosen. Its time grows with the square of the number of different
    translations.

    Args:
        translations: The `Translation`s of one text, such as samples; see
            `Translator.translate_n_best`. Those that the search did not find, with a
            score of minus infinity, are left out.
        utility: Function from a translation and a reference to a number that is higher
            for better translations.

    Returns:
        One of the translations.

    Raises:
        ValueError: If there is none.

    Example:
        >>> texts = ["Ein Hund.", "Ein Hund läuft.", "Ein Hund läuft!", "Zwei Hunde."]
        >>> samples = [kt.translator.Translation(text, -1.0) for text in texts]
        >>> kt.translator.minimum_bayes_risk(samples).text
        'Ein Hund läuft.'

    Reference:
        [Eikema and Aziz, 2022](https://aclanthology.org/2022.emnlp-main.754)
    """
    if not translations:
        raise ValueError(
            "`translations` must hold the translations of a text. Received: none."
        )
    found = [one for one in translations if one.score > -math.inf]
    counts = Counter(one.text for one in found)
    if len(counts) < 2:
        return (found or translations)[0]

    def utility_of_others(text):
        # Equal translations count as others of each other.
        total = sum(count * utility(text, other) for other, count in counts.items())
        return total - utility(text, text)

    best = max(counts, key=utility_of_others)
    return next(one for one in found if one.text == best)


@functools.cache
def _chrf():
    from sacrebleu.metrics import CHRF

    return CHRF()
