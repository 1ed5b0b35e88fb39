"""SavedModels for TensorFlow Serving: strings in, strings out."""

from keras_transformer.serving.batch_translator import BatchTranslator
from keras_transformer.serving.language_model import export_language_model
from keras_transformer.serving.saved_model import ServedTranslator, export_translator
from keras_transformer.serving.server_files import next_version

__all__ = [
    "BatchTranslator",
    "ServedTranslator",
    "export_language_model",
    "export_translator",
    "next_version",
]
