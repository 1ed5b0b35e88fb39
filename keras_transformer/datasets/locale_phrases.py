"""The built-in task: translating dates, money, units and names between locales."""

import itertools
import random
import re
from collections.abc import Sequence
from typing import NamedTuple

from keras_transformer.checks import check_positive_integers

_MAX_MISSES = 10_000


class ParallelText(NamedTuple):
    """Two texts that are translations of each other, line by line.

    Attributes:
        source: Lines to translate.
        target: Their translations, in the same order.
    """

    source: list[str]
    target: list[str]


class Splits(NamedTuple):
    """A data set, split for training, validation and test.

    Attributes:
        train: `ParallelText` to train on.
        validation: `ParallelText` to choose models and settings with.
        test: `ParallelText` to evaluate the final model on, once.
    """

    train: ParallelText
    validation: ParallelText
    test: ParallelText


def locale_phrases(
    source_locale: str = "en",
    target_locale: str = "de",
    train: int = 20_000,
    validation: int = 500,
    test: int = 500,
    seed: int = 0,
    kinds: Sequence[str] | None = None,
) -> Splits:
    """Generates a parallel corpus of dates, times, money, units and names.

    Both sides come from Unicode CLDR, which operating systems and browsers use for
    formatting. Babel contains it, so nothing is downloaded. Every phrase has one
    correct translation. All phrases differ, within and across the splits. Each word of
    the validation and test splits also occurs in the training split; only combinations
    of words, such as a date or an amount, are new.

    Text is normalized with SentencePiece's default rule (`nmt_nfkc`), so that a
    tokenizer restores each phrase exactly; marks of writing direction are removed.

    Args:
        source_locale: Locale to translate from, such as `"en"` or `"pt_BR"`.
        target_locale: Locale to translate into.
        train: Number of phrases to train on.
        validation: Number of phrases to choose models and settings with.
        test: Number of phrases to evaluate the final model on.
        seed: Random seed. Equal arguments give equal phrases.
        kinds: Names of the kinds of phrases, in any order; by default all.
            Time: `"date"`, `"part_of_date"`, `"date_and_time"`, `"date_interval"`,
            `"time"`, `"time_interval"`, `"relative_time"`, `"duration"`. Amounts:
            `"money"`, `"named_money"`, `"quantity"`, `"number"`, `"percentage"`. Lists
            of names: `"countries"`, `"languages"`.

    Returns:
        `Splits` of lists of strings, `source` and `target`, in random order.

    Raises:
        ValueError: If a locale or a kind is unknown, if both locales are the same, if
            CLDR lacks names in one of them, if a size is not positive, or if the kinds
            have too few phrases.

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
    phrase_kinds = PhraseKinds(source_locale, target_locale, kinds)
    rng = random.Random(seed)
    drawn = (phrase_kinds.draw(rng) for _ in itertools.count())
    by_source: dict[str, tuple] = {}
    phrases = _until_rare(drawn, lambda x: by_source.setdefault(x[0], x) is x)
    training = list(itertools.islice(phrases, train))
    vocabulary = {word for phrase in training for word in _words(phrase)}
    held_out = _until_rare(phrases, lambda phrase: _words(phrase) <= vocabulary)
    held_out_splits = (list(itertools.islice(held_out, n)) for n in (validation, test))
    splits = [training, *held_out_splits]
    found, wanted = sum(map(len, splits)), train + validation + test
    if found < wanted:
        raise ValueError(
            f"`kinds` must have enough phrases for all splits, {wanted} of them; only "
            f"{found} were found. Name more kinds, or ask for fewer phrases. "
            f"Received: kinds={kinds!r}."
        )
    sides = (zip(*phrases, strict=True) for phrases in splits)
    return Splits(*(ParallelText(*map(list, text)) for text in sides))


def _words(phrase):
    """Returns the words, runs of letters, on both sides of a phrase."""
    return {word for text in phrase for word in re.findall(r"[^\W\d_]+", text)}


def _until_rare(phrases, is_usable):
    """Yields usable phrases, until `_MAX_MISSES` in a row are not usable."""
    misses = 0
    for phrase in phrases:
        if is_usable(phrase):
            misses = 0
            yield phrase
        else:
            misses += 1
            if misses == _MAX_MISSES:
                return
