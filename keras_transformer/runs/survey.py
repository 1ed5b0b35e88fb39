"""The size of a training text, and a sample of it, in one pass."""

import unicodedata
from collections import Counter
from typing import NamedTuple

from keras_transformer.runs.settings import TextSize
from keras_transformer.text_files import Files, paired_files, read_pairs

_MEASURED_PAIRS = 1 << 17  # beyond this, words and characters are estimates
_SAMPLED_PAIRS = 1_000_000


class Survey(NamedTuple):
    """The size of a parallel text, and lines of both sides for tokenizers."""

    size: TextSize
    source_lines: list[str]
    target_lines: list[str]


def survey(source_files: Files, target_files: Files) -> Survey:
    """Reads a parallel text once.

    A file counts as often as it is named. Of large texts, the lines are a uniform
    sample, and numbers of words are estimated from one pair of eight.
    """
    num_pairs, words, length, number, stride = 0, 0, 0, 0, 1
    characters: set[str] = set()
    sample: list[tuple[str, str]] = []
    for files, weight in Counter(paired_files(source_files, target_files)).items():
        for pair in read_pairs([files]):
            num_pairs += weight
            if number % stride == 0:
                sample += [(pair.source, pair.target)] * weight
                if len(sample) > _SAMPLED_PAIRS:
                    sample, stride = sample[::2], 2 * stride
            step = 1 if number < _MEASURED_PAIRS else 8
            if number % step == 0:
                text = unicodedata.normalize("NFKC", f"{pair.source} {pair.target}")
                words += step * weight * len(text.split())
                length += step * weight * len(text)
                characters.update(text)
            number += 1
    # Where no spaces separate words, characters are counted instead.
    size = TextSize(num_pairs, max(words, length // 8), len(characters))
    sources, targets = zip(*sample, strict=True)
    return Survey(size, list(sources), list(targets))
