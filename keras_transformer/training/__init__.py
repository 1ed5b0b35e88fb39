"""Losses, metrics, schedules and callbacks for `model.fit`."""

from keras_transformer.training.losses import TokenCrossentropy
from keras_transformer.training.metrics import Perplexity, TokenAccuracy
from keras_transformer.training.schedules import InverseSquareRootSchedule

__all__ = [
    "InverseSquareRootSchedule",
    "Perplexity",
    "TokenAccuracy",
    "TokenCrossentropy",
]
