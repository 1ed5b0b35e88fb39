"""Phrases of several languages as ids of letters or of words."""

import functools
import re

import numpy as np

from keras_transformer.datasets import locale_phrases

PAD, UNKNOWN, START, END, MASK = range(5)
LANGUAGES = ("de", "fr", "es")


@functools.cache
def phrases(language):
    """Returns phrases in a language, for training and for test."""
    data = locale_phrases("en", language, train=2000, test=300)
    return data.train.target, data.test.target


def words(line):
    """Splits at spaces; replaces digits by 0, so that numbers are few words."""
    return re.sub(r"\d", "0", line).split()


@functools.cache
def vocabulary(split):
    """Returns the ids of all tokens that `split`, `list` or `words`, returns."""
    lines = [line for language in LANGUAGES for line in phrases(language)[0]]
    tokens = sorted({token for line in lines for token in split(line)})
    return {token: i for i, token in enumerate(tokens, start=MASK + 1)}


def vocabulary_size(split):
    return MASK + 1 + len(vocabulary(split))


def to_ids(lines, length, split):
    """Returns int32 ids of shape `(lines, length)`, cut or padded to that length."""
    table = vocabulary(split)
    ids = np.full((len(lines), length), PAD, "int32")
    for row, line in zip(ids, lines, strict=True):
        found = [table.get(token, UNKNOWN) for token in split(line)[:length]]
        row[: len(found)] = found
    return ids


def to_text(ids, split=list):
    """Returns the text of one row, without special tokens."""
    tokens = {i: token for token, i in vocabulary(split).items()}
    return "".join(tokens.get(int(i), "") for i in ids)


def labelled(part, length, limit=None):
    """Returns shuffled phrases of every language, as ids of words, and their languages.

    Phrases of few letters, numbers above all, are the same in many languages. They are
    left out.

    Args:
        part: 0 for training phrases, 1 for test phrases.
        length: Number of words that a phrase is cut or padded to.
        limit: Number of phrases; by default all.
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
