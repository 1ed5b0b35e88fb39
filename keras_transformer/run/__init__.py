"""Runs: a recipe trained in a folder that keeps all that made the translator."""

from keras_transformer.run.folder import Run
from keras_transformer.run.log import Log, WriteLog
from keras_transformer.run.train import train

__all__ = ["Log", "Run", "WriteLog", "train"]
