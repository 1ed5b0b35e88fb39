"""The common form of all data sets: splits of parallel text."""

from typing import NamedTuple


class ParallelText(NamedTuple):
    """Two texts that are translations of each other, line by line.

    Attributes:
        source: Text to translate: a list of lines, or the path of a file.
        target: Its translation, in the same form and order.
    """

    source: list[str] | str
    target: list[str] | str


class Splits(NamedTuple):
    """A data set, split for training, validation and test.

    Attributes:
        train: `ParallelText` to learn from.
        validation: `ParallelText` to choose models and settings by.
        test: `ParallelText` to evaluate a finished model on, once.
    """

    train: ParallelText
    validation: ParallelText
    test: ParallelText
