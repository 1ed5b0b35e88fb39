"""Files translated in their formats: books, pages, subtitles, tables, catalogues."""

from keras_transformer.documents.translation import translate

__all__ = ["translate"]
