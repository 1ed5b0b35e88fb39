"""The inputs and results of translators, and checks for results that look wrong."""

import re
from collections.abc import Iterable
from typing import NamedTuple

# The limits of `flags`, chosen on Multi30k's validation text and on pairs of its
# sentences; see benchmarks/flags.py, which measures precision and recall.
MIN_LENGTH_RATIO, MAX_LENGTH_RATIO = 0.55, 1.7
LENGTH_MARGIN = 2  # subwords that count on both sides, since short texts vary more
MAX_REPEATED = 1  # sequences of three words that have stood before, and
WORDS_PER_REPEATED = 20  # one more for this many words
MAX_DROPPED_RATIO = 0.9  # of the lengths, if the translation has fewer sentences

# What a program fills in, in the syntax of Python's expressions and of RE2.
PLACEHOLDER = (
    r"\$?\{\{[^{}]*\}\}|[$%]?\{[^{}\s]*\}|%%(?:[sd]\b)?|%(?:\d+\$)?@"
    r"|%(?:\(\w+\)|\d+\$)?[#0+'-]*(?:\d+|\*)?(?:\.(?:\d+|\*))?"
    r"(?:hh|h|ll|l|L|q|j|z|t)?[diouxXeEfFgGaAcrs]\b"
)
_SENTENCE_END = re.compile(  # A full stop after a digit may be of an ordinal number.
    "(?:[!?\u2026]|(?<!\\d)\\.)+[\"'\u201c\u201d\u2019\u00bb)\\]]*(?=\\s|$)"
    "|[\u3002\uff01\uff1f]+"  # Chinese and Japanese
)
# Letters whose words no space separates: Thai, Lao, Burmese, Khmer, Chinese, Japanese.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
UNSPACED_LETTER = re.compile(f"[{_UNSPACED}]")
_WORD = re.compile(rf"[{_UNSPACED}]|[^\s{_UNSPACED}]+")


class Translation(NamedTuple):
    """A translation and its score.

    Attributes:
        text: The translation.
        score: Its score, as the search defines it.
        flags: The reasons why it looks wrong, such as `"loop"` or `"cut source"`; see
            `translator.flags`.
    """

    text: str
    score: float
    flags: tuple[str, ...] = ()


def as_bytes(texts: Iterable[str]) -> list[bytes]:
    """Returns texts in UTF-8; raises `ValueError` unless each of them is a str."""
    is_single = isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable)
    listed: list = [texts] if is_single else list(texts)
    for index, text in enumerate(listed):
        if is_single or not isinstance(text, str):
            place = "texts" if is_single else f"texts[{index}]"
            raise ValueError(
                "`texts` must be a list of str. "
                f"Received: {place} of type {type(text).__name__}."
            )
    # A lone surrogate, which UTF-8 cannot encode, becomes a question mark.
    return [text.encode("utf-8", "replace") for text in listed]


def flags(
    source: str,
    translation: str,
    source_length: int,
    length: int,
    is_cut: bool = False,
    has_end: bool = True,
    has_unknown: bool = False,
) -> tuple[str, ...]:
    """Returns the reasons why a translation looks wrong.

    - `"cut source"`: only the beginning of the source was read.
    - `"unknown words"`: the source has characters that the vocabulary lacks.
    - `"no end"`: the translation reached its maximum length before its end.
    - `"loop"`: it repeats words that the source does not repeat.
    - `"length"`: it is too short or too long for its source.
    - `"dropped sentence"`: it has fewer sentences than its source, and is short.

    Args:
        source: What was translated.
        translation: Its translation.
        source_length: Number of subwords of the source.
        length: Number of subwords of the translation.
        is_cut: Whether the source was cut.
        has_end: Whether the translation has an end token.
        has_unknown: Whether the source has unknown subwords.

    Returns:
        The reasons, in this order; empty for most translations.

    Example:
        >>> kt.translator.flags("A dog. A man.", "Ein Hund.", 7, 4)
        ('dropped sentence',)
    """
    ratio = (length + LENGTH_MARGIN) / (source_length + LENGTH_MARGIN)
    is_shorter = num_sentences(translation) < num_sentences(source)
    num_allowed = num_repeated(source) + MAX_REPEATED
    num_allowed += len(_WORD.findall(translation)) // WORDS_PER_REPEATED
    reasons = {
        "cut source": is_cut,
        "unknown words": has_unknown,
        "no end": not has_end,
        "loop": num_repeated(translation) > num_allowed,
        "length": not MIN_LENGTH_RATIO <= ratio <= MAX_LENGTH_RATIO,
        "dropped sentence": is_shorter and ratio < MAX_DROPPED_RATIO,
    }
    return tuple(reason for reason, is_so in reasons.items() if is_so)


def num_repeated(text: str) -> int:
    """Returns how many sequences of three words have stood before in a text."""
    words = _WORD.findall(text)
    count = len(words) - 2
    return max(0, count - len(set(zip(words, words[1:], words[2:], strict=False))))


def num_sentences(text: str) -> int:
    """Returns the number of sentences that punctuation ends, and of what follows."""
    ends = list(_SENTENCE_END.finditer(text))
    has_rest = any(map(str.isalpha, text[ends[-1].end() :] if ends else text))
    return len(ends) + has_rest
