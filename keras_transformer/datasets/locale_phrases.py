"""The built-in task: one locale's dates, money and names in another's words."""

import random
import re

from keras_transformer.datasets.splits import ParallelText, Splits


def locale_phrases(
    source_locale: str = "en",
    target_locale: str = "de",
    train: int = 20_000,
    validation: int = 500,
    test: int = 500,
    seed: int = 0,
) -> Splits:
    """Writes dates, times, money, units and names in two locales.

    Both sides come from Unicode CLDR, the data that operating systems and
    browsers format with, as Babel ships it: nothing is downloaded, and every
    phrase has one right answer. All phrases differ, within and across the
    splits. What is held out is new only in its combination, such as a date or
    an amount never seen: each of its words occurs in the training split.

    Text is normalised as SentencePiece does by default (`nmt_nfkc`), so that a
    tokenizer gives back each phrase exactly; marks of writing direction are
    left out.

    Args:
        source_locale: Locale to translate from, such as `"en"` or `"pt_BR"`.
        target_locale: Locale to translate into.
        train: Number of phrases to learn from.
        validation: Number of phrases to choose models and settings by.
        test: Number of phrases to score a finished model on.
        seed: Seed of the draw. Equal arguments give equal phrases.

    Returns:
        `Splits` whose `train`, `validation` and `test` hold lists of strings,
        `source` and `target`, in random order.

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
    # Who wants Multi30k or nothing needs neither Babel nor SentencePiece.
    from keras_transformer.datasets.phrase_kinds import PhraseKinds

    sizes = {"train": train, "validation": validation, "test": test}
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(
                f"`{name}` must be a positive integer. Received: {name}={size}."
            )
    kinds = PhraseKinds(source_locale, target_locale)
    draw = _distinct(kinds, random.Random(seed))
    learnt = [next(draw) for _ in range(train)]
    words = {word for pair in learnt for word in _words(pair)}
    held_out = (pair for pair in draw if _words(pair) <= words)
    return Splits(
        _parallel(learnt),
        _parallel([next(held_out) for _ in range(validation)]),
        _parallel([next(held_out) for _ in range(test)]),
    )


def _parallel(pairs):
    return ParallelText(*(list(side) for side in zip(*pairs, strict=True)))


def _words(pair):
    """Returns the runs of letters on both sides of a pair."""
    return {word for text in pair for word in re.findall(r"[^\W\d_]+", text)}


def _distinct(kinds, rng):
    """Yields phrase pairs, none with a source that came before, without end."""
    seen = set()
    while True:
        source, target = kinds.draw(rng)
        if source not in seen:
            seen.add(source)
            yield source, target
