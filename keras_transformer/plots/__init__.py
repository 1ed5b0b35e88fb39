"""Figures of attention, positions and training, with Matplotlib or as HTML."""

from keras_transformer.plots.attention import attention_map
from keras_transformer.plots.curves import training_curves
from keras_transformer.plots.page import attention_html
from keras_transformer.plots.position_table import position_table
from keras_transformer.plots.translation import (
    AttendedTranslation,
    translate_n_best_with_attention,
    translate_with_attention,
    translation_attention,
)

__all__ = [
    "AttendedTranslation",
    "attention_html",
    "attention_map",
    "position_table",
    "training_curves",
    "translate_n_best_with_attention",
    "translate_with_attention",
    "translation_attention",
]
