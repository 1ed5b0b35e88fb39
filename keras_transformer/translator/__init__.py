"""Text in, text out: tokenizers, model and search in one object."""

from keras_transformer.translation import Translation, flags
from keras_transformer.translator.alignment import AlignedPair, pharaoh, word_links
from keras_transformer.translator.fragments import translate_fragments, translate_markup
from keras_transformer.translator.scoring import TargetScore
from keras_transformer.translator.terms import Terms
from keras_transformer.translator.translator import DEFAULT_SEARCH, Translator, ensemble

__all__ = [
    "DEFAULT_SEARCH",
    "AlignedPair",
    "TargetScore",
    "Terms",
    "Translation",
    "Translator",
    "ensemble",
    "flags",
    "pharaoh",
    "translate_fragments",
    "translate_markup",
    "word_links",
]
