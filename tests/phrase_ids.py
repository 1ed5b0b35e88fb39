"""Phrases of several languages as ids, letter by letter or word by word."""

import functools
import re

import numpy as np

from keras_transformer.datasets import locale_phrases

PAD, UNKNOWN, START, END, MASK = range(5)
LANGUAGES = ("de", "fr", "es")


@functools.cache
def phrases(language):
    """Dates, amounts and names in a language: lines to learn from, and others."""
    data = locale_phrases("en", language, train=2000, test=300)
    return data.train.target, data.test.target


def words(line):
    """Splits at spaces; all digits become one, so that numbers are few words."""
    return re.sub(r"\d", "0", line).split()


@functools.cache
def vocabulary(split):
    """Ids of the tokens that `split`, `list` or `words`, makes of all phrases."""
    lines = [line for language in LANGUAGES for line in phrases(language)[0]]
    tokens = sorted({token for line in lines for token in split(line)})
    return {token: i for i, token in enumerate(tokens, start=MASK + 1)}


def vocabulary_size(split):
    return MASK + 1 + len(vocabulary(split))


def to_ids(lines, length, split):
    """Returns an int32 array `(lines, length)`, cut or padded to that length."""
    table = vocabulary(split)
    ids = np.full((len(lines), length), PAD, "int32")
    for row, line in zip(ids, lines, strict=True):
        found = [table.get(token, UNKNOWN) for token in split(line)[:length]]
        row[: len(found)] = found
    return ids


def to_text(ids, split=list):
    """Returns the tokens of one row, without what is special."""
    tokens = {i: token for token, i in vocabulary(split).items()}
    return "".join(tokens.get(int(i), "") for i in ids)


def labelled(part, length, limit=None):
    """Words of phrases in every language, and which language each is in, mixed.

    Phrases of few letters, numbers above all, are alike in many languages: they
    are left out.

    Args:
        part: 0 for phrases to learn from, 1 for others.
        length: Words of a phrase; it is cut or padded to that.
        limit: Number of phrases; all unless given.
    """
    pairs = [
        (line, label)
        for label, language in enumerate(LANGUAGES)
        for line in phrases(language)[part]
        if sum(map(str.isalpha, line)) >= 8
    ]
    order = np.random.default_rng(0).permutation(len(pairs))[:limit]
    lines, labels = zip(*(pairs[i] for i in order), strict=True)
    return to_ids(lines, length, words), np.array(labels)
