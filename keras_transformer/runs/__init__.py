"""Runs: a recipe trained in a folder that keeps all that made the translator."""

from keras_transformer.runs.folder import Run
from keras_transformer.runs.log import Log, WriteLog
from keras_transformer.runs.train import train

__all__ = ["Log", "Run", "WriteLog", "train"]
