"""Parallel text to train on: a built-in task, and the files of Multi30k."""

from keras_transformer.datasets.locale_phrases import locale_phrases
from keras_transformer.datasets.multi30k import multi30k
from keras_transformer.datasets.splits import ParallelText, Splits

__all__ = ["ParallelText", "Splits", "locale_phrases", "multi30k"]
