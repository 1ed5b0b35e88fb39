"""Text in, text out: tokenizers, model and search in one object."""

from keras_transformer.translator.scoring import TargetScore
from keras_transformer.translator.terms import Terms
from keras_transformer.translator.translator import (
    DEFAULT_SEARCH,
    Translation,
    Translator,
    check_one_transformer,
    check_serves_any_text,
    ensemble,
)

__all__ = [
    "DEFAULT_SEARCH",
    "TargetScore",
    "Terms",
    "Translation",
    "Translator",
    "check_one_transformer",
    "check_serves_any_text",
    "ensemble",
]
