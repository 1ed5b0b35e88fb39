"""A small invented language and its translation."""

import random

import pytest

from keras_transformer.text import SubwordTokenizer

SYLLABLES = ["ba", "ko", "li", "mu", "ne", "ri", "sa", "to", "vu", "ze"]


def sentences(count, seed):
    draw = random.Random(seed)
    words = ["".join(draw.choices(SYLLABLES, k=draw.randint(1, 4))) for _ in range(101)]
    return [" ".join(draw.choices(words, k=draw.randint(1, 17))) for _ in range(count)]


@pytest.fixture(scope="session")
def pairs():
    """Sentence pairs, every one of which differs from the others."""
    sources, targets = sentences(229, seed=2), sentences(229, seed=3)
    return [
        (f"{s} ba{i}", f"{t} zu{i}")
        for i, (s, t) in enumerate(zip(sources, targets, strict=True))
    ]


@pytest.fixture(scope="session")
def corpus(pairs, tmp_path_factory):
    """Paths of the source and the target file."""
    folder = tmp_path_factory.mktemp("corpus")
    paths = folder / "train.src", folder / "train.tgt"
    for path, side in zip(paths, zip(*pairs, strict=True), strict=True):
        path.write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    return paths


@pytest.fixture(scope="session")
def source_tokenizer(corpus):
    return SubwordTokenizer.train(corpus[0], vocabulary_size=89)


@pytest.fixture(scope="session")
def target_tokenizer(corpus):
    return SubwordTokenizer.train(corpus[1], vocabulary_size=73)
