"""Documents without a translator: their texts, and what is written for others."""

from keras_transformer.documents.translation import read_document
from keras_transformer.markup import plain_text, write_markup


def texts_of(data, format, **settings):
    """Returns the texts of a document, with tags as in HTML."""
    return list(map(write_markup, read(data, format, **settings).texts))


def read(data, format, **settings):
    data = data if isinstance(data, bytes) else data.encode()
    return read_document(data, format, "file", **settings)


def changed(data, format, change=str.upper, **settings):
    """Returns a document after a change of its strings."""
    document = read(data, format, **settings)
    texts = [
        [change(item) if isinstance(item, str) else item for item in text]
        for text in document.texts
    ]
    return document.assemble(texts).decode()


def plain_texts_of(data, format, **settings):
    return list(map(plain_text, read(data, format, **settings).texts))
