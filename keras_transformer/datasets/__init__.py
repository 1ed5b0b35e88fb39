"""Parallel text to train on: the built-in task."""

from keras_transformer.datasets.locale_phrases import (
    ParallelText,
    Splits,
    locale_phrases,
)

__all__ = ["ParallelText", "Splits", "locale_phrases"]
