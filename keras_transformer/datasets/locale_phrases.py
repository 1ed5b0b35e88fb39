"""The built-in task: translating dates, money, units and names between locales."""

import itertools
import random
import re

from keras_transformer.checks import check_positive_integers
from keras_transformer.datasets.splits import ParallelText, Splits


def locale_phrases(
    source_locale: str = "en",
    target_locale: str = "de",
    train: int = 20_000,
    validation: int = 500,
    test: int = 500,
    seed: int = 0,
) -> Splits:
    """Generates a parallel corpus of dates, times, money, units and names.

    Both sides come from Unicode CLDR, which operating systems and browsers use for
    formatting. Babel contains it, so nothing is downloaded. Every phrase has one
    correct translation. All phrases differ, within and across the splits. Each word of
    the validation and test splits occurs in the training split; only its combination
    with others is new, such as a date or an amount.

    Text is normalised by SentencePiece's default rule (`nmt_nfkc`), so that a tokenizer
    restores each phrase exactly; marks of writing direction are removed.

    Args:
        source_locale: Locale to translate from, such as `"en"` or `"pt_BR"`.
        target_locale: Locale to translate into.
        train: Number of phrases to learn from.
        validation: Number of phrases to choose models and settings by.
        test: Number of phrases to evaluate a finished model on.
        seed: Random seed. Equal arguments give equal phrases.

    Returns:
        `Splits` of lists of strings, `source` and `target`, in random order.

    Raises:
        ValueError: If a locale is unknown, if both are the same, if CLDR lacks
            names in one of them, or if a size is not positive.

    Example:
        >>> data = locale_phrases("en", "de", train=2000, validation=11, test=7)
        >>> len(data.train.source), len(data.train.target), len(data.test.source)
        (2000, 2000, 7)

    Reference:
        [Unicode CLDR](https://cldr.unicode.org)
    """
    # Babel and SentencePiece are loaded only for this task.
    from keras_transformer.datasets.phrase_kinds import PhraseKinds

    check_positive_integers(train=train, validation=validation, test=test)
    kinds = PhraseKinds(source_locale, target_locale)
    phrases = _distinct_phrases(kinds, random.Random(seed))
    training = list(itertools.islice(phrases, train))
    vocabulary = {word for phrase in training for word in _words(phrase)}
    held_out = (phrase for phrase in phrases if _words(phrase) <= vocabulary)
    return Splits(
        _parallel_text(training),
        _parallel_text(itertools.islice(held_out, validation)),
        _parallel_text(itertools.islice(held_out, test)),
    )


def _parallel_text(phrases):
    return ParallelText(*(list(side) for side in zip(*phrases, strict=True)))


def _words(phrase):
    """Returns the words, runs of letters, on both sides of a phrase."""
    return {word for text in phrase for word in re.findall(r"[^\W\d_]+", text)}


def _distinct_phrases(kinds, rng):
    """Yields phrases without end, each a `(source, target)` with a new source."""
    seen = set()
    while True:
        phrase = kinds.draw(rng)
        if phrase[0] not in seen:
            seen.add(phrase[0])
            yield phrase
