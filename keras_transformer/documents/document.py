"""What reading a document gives: its texts, and how to write their translations."""

from collections.abc import Callable
from typing import NamedTuple

from keras_transformer.documents.sentences import NEVER_WRAPPED


class Document(NamedTuple):
    """The texts of a document.

    Attributes:
        texts: What to translate.
        assemble: Function from their translations to the bytes of a document.
        width: The width that lines are wrapped to; see `sentences.wrapped_width`.
        has_tags: Whether the texts may hold inline tags, such as `<b>`.
    """

    texts: list[str]
    assemble: Callable[[list[str]], bytes]
    width: float = NEVER_WRAPPED
    has_tags: bool = True
