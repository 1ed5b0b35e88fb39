"""Losses, metrics, schedules, callbacks and checkpoints for `model.fit`."""

from keras_transformer.training.adam import Adam
from keras_transformer.training.callbacks import BleuCallback, StopAtNaN
from keras_transformer.training.checkpoints import (
    Checkpoints,
    SaveCheckpoints,
    average_checkpoints,
)
from keras_transformer.training.distribution import (
    StopTogether,
    Workers,
    pick_strategy,
    split_evenly,
)
from keras_transformer.training.layouts import all_devices, layout_map
from keras_transformer.training.losses import TokenCrossentropy
from keras_transformer.training.metrics import Padding, Perplexity, TokenAccuracy
from keras_transformer.training.muon import Muon
from keras_transformer.training.position import KeepPosition
from keras_transformer.training.progress import ShowProgress
from keras_transformer.training.schedules import Cooldown, InverseSquareRootSchedule

__all__ = [
    "Adam",
    "BleuCallback",
    "Checkpoints",
    "Cooldown",
    "InverseSquareRootSchedule",
    "KeepPosition",
    "Muon",
    "Padding",
    "Perplexity",
    "SaveCheckpoints",
    "ShowProgress",
    "StopAtNaN",
    "StopTogether",
    "TokenAccuracy",
    "TokenCrossentropy",
    "Workers",
    "all_devices",
    "average_checkpoints",
    "layout_map",
    "pick_strategy",
    "split_evenly",
]
