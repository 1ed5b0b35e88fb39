"""What reading a document gives, and how translations are written into it."""

import codecs
import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from keras_transformer.markup import Fragment, plain_text

ALWAYS_WRAPPED, NEVER_WRAPPED = 0.0, math.inf
_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}


class Document(NamedTuple):
    """The texts of a document, and how to write their translations."""

    texts: list[Fragment]
    assemble: Callable[[Sequence[Fragment]], bytes]  # from translations to the file
    width: float = NEVER_WRAPPED  # see `sentences.wrapped_width`
    keeps_placeholders: bool = False  # whether translations must have the same, as `%s`


class Source(NamedTuple):
    """The text of a file, and how it was encoded."""

    text: str
    encoding: str
    mark: bytes = b""

    def changed(self, edits: Iterable[tuple[int, int, str]] = ()) -> bytes:
        """Returns the file, `edited`."""
        text = edited(self.text, edits)
        # Only HTML and XML may have an encoding without all characters.
        return self.mark + text.encode(self.encoding, "xmlcharrefreplace")


def edited(text: str, edits: Iterable[tuple[int, int, str]]) -> str:
    """Returns a text with others in place of its spans, each from start to stop."""
    parts, end = [], 0
    for start, stop, new in sorted(edits, key=lambda edit: edit[:2]):
        parts += [text[end:start], new]
        end = stop
    return "".join([*parts, text[end:]])


def decoded(data: bytes, encoding: str = "utf-8") -> Source:
    """Decodes a file; a byte order mark overrules the encoding."""
    mark = next((mark for mark in _MARKS if data.startswith(mark)), b"")
    encoding = _MARKS.get(mark, encoding)
    try:
        text = data[len(mark) :].decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(f"line {line} is not {encoding.upper()}") from None
    except LookupError:
        raise ValueError(f"its encoding {encoding} is unknown") from None
    found = Source(text, encoding, mark)
    if found.changed() != data:
        raise ValueError(f"it would not stay as it is in {encoding}; convert it")
    return found


def changed_in_place(
    source: Source,
    spans: Sequence[tuple[int, int]],
    texts: Sequence[Fragment],
    write: Callable[[Fragment, str], str] = lambda text, old: plain_text(text),
    keeps_same: bool = True,
    **settings,
) -> Document:
    """Returns a document in which translations take the place of spans of its text.

    `write` returns what is written for a translation, and what stood in its place. With
    `keeps_same`, texts that equal their translations stay as they are written.
    """

    def assemble(translations):
        edits = []
        for (start, end), text, translation in zip(
            spans, texts, translations, strict=True
        ):
            if not keeps_same or translation != text:
                edits.append((start, end, write(translation, source.text[start:end])))
        return source.changed(edits)

    return Document(list(texts), assemble, **settings)
