"""Losses, metrics, schedules, callbacks and checkpoints for `model.fit`."""

from keras_transformer.training.adam import Adam
from keras_transformer.training.averaging import average_checkpoints
from keras_transformer.training.callbacks import BleuCallback, StopAtNaN
from keras_transformer.training.checkpoints import Checkpoints, SaveCheckpoints
from keras_transformer.training.distribution import pick_strategy, split_evenly
from keras_transformer.training.losses import TokenCrossentropy
from keras_transformer.training.metrics import Perplexity, TokenAccuracy
from keras_transformer.training.quality import cased_bleu, chrf, paper_protocol_bleu
from keras_transformer.training.schedules import Cooldown, InverseSquareRootSchedule
from keras_transformer.training.significance import paired_bootstrap
from keras_transformer.training.sliding_window import sliding_window_perplexity
from keras_transformer.training.workers import StopTogether, Workers

__all__ = [
    "Adam",
    "BleuCallback",
    "Checkpoints",
    "Cooldown",
    "InverseSquareRootSchedule",
    "Perplexity",
    "SaveCheckpoints",
    "StopAtNaN",
    "StopTogether",
    "TokenAccuracy",
    "TokenCrossentropy",
    "Workers",
    "average_checkpoints",
    "cased_bleu",
    "chrf",
    "paired_bootstrap",
    "paper_protocol_bleu",
    "pick_strategy",
    "sliding_window_perplexity",
    "split_evenly",
]
