"""Whole networks, each a Keras model."""

from keras_transformer.models.ensemble import Ensemble
from keras_transformer.models.exports import export
from keras_transformer.models.language_model import LanguageModel
from keras_transformer.models.masked_language_model import MaskedLanguageModel
from keras_transformer.models.text_classifier import TextClassifier
from keras_transformer.models.text_encoder import TextEncoder
from keras_transformer.models.transformer import Transformer
from keras_transformer.models.vision_transformer import VisionTransformer

__all__ = [
    "Ensemble",
    "LanguageModel",
    "MaskedLanguageModel",
    "TextClassifier",
    "TextEncoder",
    "Transformer",
    "VisionTransformer",
    "export",
]
