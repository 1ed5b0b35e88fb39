"""Translators as SavedModels that TensorFlow Serving runs from string to string."""

from keras_transformer.serving.versions import next_version

__all__ = ["ServedTranslator", "export_translator", "next_version"]


def __getattr__(name):
    """Loads TensorFlow only when it is needed: `next_version` works without it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from keras_transformer.serving import saved_model

    return getattr(saved_model, name)
