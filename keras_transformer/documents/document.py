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
    """The texts of a document, and how to write their translations.

    Attributes:
        texts: What to translate.
        assemble: Function from their translations to the bytes of a document.
        width: The width that lines are wrapped to; see `sentences.wrapped_width`.
        keeps_placeholders: Whether translations must have the same placeholders, such
            as `%s`.
    """

    texts: list[Fragment]
    assemble: Callable[[Sequence[Fragment]], bytes]
    width: float = NEVER_WRAPPED
    keeps_placeholders: bool = False


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
    """Returns a text with others in some places.

    Args:
        text: The text.
        edits: For each, where what it replaces begins and ends, and the new text.
    """
    parts, end = [], 0
    for start, stop, new in sorted(edits, key=lambda edit: edit[:2]):
        parts += [text[end:start], new]
        end = stop
    return "".join([*parts, text[end:]])


def decoded(data: bytes, encoding: str = "utf-8") -> Source:
    """Decodes a file; a byte order mark overrules the encoding.

    Raises:
        ValueError: If it cannot be decoded, with the line.
    """
    mark = next((mark for mark in _MARKS if data.startswith(mark)), b"")
    encoding = _MARKS.get(mark, encoding)
    try:
        text = data[len(mark) :].decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(f"line {line} is not {encoding.upper()}") from None
    except LookupError:
        raise ValueError(f"its encoding {encoding} is not known") from None
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

    Args:
        source: The text of the file.
        spans: Where its texts stand, in order.
        texts: The texts.
        write: Function from a translation, and what stands in its place, to what is
            written there.
        keeps_same: Whether a text whose translation is the same stays as it is written.
        **settings: Attributes of the `Document`.
    """

    def assemble(translations):
        edits = []
        for (start, end), text, translation in zip(
            spans, texts, translations, strict=True
        ):
            if not keeps_same or translation != text:
                new = write(translation, source.text[start:end])
                edits.append((start, end, new))
        return source.changed(edits)

    return Document(list(texts), assemble, **settings)
