"""Text in, text out: tokenizers, model and search in one object."""

from keras_transformer.translation import Translation
from keras_transformer.translator.scoring import TargetScore
from keras_transformer.translator.translator import (
    DEFAULT_SEARCH,
    Translator,
    check_one_transformer,
    check_serves_any_text,
    ensemble,
)

__all__ = [
    "DEFAULT_SEARCH",
    "TargetScore",
    "Translation",
    "Translator",
    "check_one_transformer",
    "check_serves_any_text",
    "ensemble",
]
