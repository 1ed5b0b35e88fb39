"""Text in, text out: tokenizers, model and search in one object."""

from keras_transformer.translator.translator import (
    DEFAULT_SEARCH,
    Translation,
    Translator,
    check_serves_any_text,
)

__all__ = ["DEFAULT_SEARCH", "Translation", "Translator", "check_serves_any_text"]
