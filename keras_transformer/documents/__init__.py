"""Files translated in their formats: books, pages, subtitles, tables, catalogues."""

from keras_transformer.documents.translation import FORMATS, translate

__all__ = ["FORMATS", "translate"]
