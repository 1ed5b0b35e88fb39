"""The shape that every data set here comes in."""

from typing import NamedTuple


class ParallelText(NamedTuple):
    """Two sides of a text, line by line translations of each other.

    Attributes:
        source: What to translate: a list of lines, or the path of a file.
        target: Its translation, in the same form and order.
    """

    source: list[str] | str
    target: list[str] | str


class Splits(NamedTuple):
    """A data set: what to learn from, what to choose by, what to score on.

    Attributes:
        train: `ParallelText` to learn from.
        validation: `ParallelText` to choose models and settings by.
        test: `ParallelText` to score a finished model on, once.
    """

    train: ParallelText
    validation: ParallelText
    test: ParallelText
