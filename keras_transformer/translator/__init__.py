"""Text in, text out: tokenizers, model and search in one object."""

from keras_transformer.translator.checks import check_serves_any_text
from keras_transformer.translator.ensembles import ensemble
from keras_transformer.translator.minimum_bayes_risk import minimum_bayes_risk
from keras_transformer.translator.reranking import RerankedTranslator
from keras_transformer.translator.scoring import TargetScore
from keras_transformer.translator.text_translator import Translation
from keras_transformer.translator.translator import DEFAULT_SEARCH, Translator

__all__ = [
    "DEFAULT_SEARCH",
    "RerankedTranslator",
    "TargetScore",
    "Translation",
    "Translator",
    "check_serves_any_text",
    "ensemble",
    "minimum_bayes_risk",
]
