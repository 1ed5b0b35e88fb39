"""HTML: the text between the tags of blocks, with its inline tags."""

import re

from keras_transformer.documents.document import (
    ALWAYS_WRAPPED,
    Document,
    Source,
    changed_in_place,
    decoded,
)
from keras_transformer.markup import (
    INLINE,
    Fragment,
    Tag,
    fragment_of_tags,
    html_tags,
    is_empty,
    translated_tags,
    write_markup,
)

_PREFORMATTED = {"listing", "pre", "textarea"}
# Which encoding browsers mean by other names.
_ENCODINGS = dict.fromkeys(["ascii", "iso-8859-1", "latin1", "us-ascii"], "cp1252")


def read_html(data: bytes, **settings) -> Document:
    """Reads the text between the tags of blocks, with its inline tags."""
    start = data[:1024].decode("latin-1")  # where browsers look for the encoding
    named = re.match(r"""<\?xml[^>]*\sencoding\s*=\s*["']([^"']+)""", start)
    names = [named[1]] if named else []
    for tag in html_tags(start):
        if tag.name == "meta":
            content = tag.attributes.get("content", "")
            named = re.search(r"""charset\s*=\s*["']?([^\s"';]+)""", content)
            header = named[1] if named and "http-equiv" in tag.attributes else ""
            names.append(tag.attributes.get("charset", header))
    name = next((name.strip().lower() for name in names if name.strip()), "utf-8")
    # A page that could be read so far is not in UTF-16.
    name = "utf-8" if name.startswith("utf-16") else _ENCODINGS.get(name, name)
    return html_document(decoded(data, name))


def html_document(source: Source) -> Document:
    """Returns a page as a document; of preformatted text, each line is a text."""
    text = source.text
    spans: list[tuple[int, int]] = []
    texts: list[Fragment] = []
    inline: list[Tag] = []  # since the last text
    start, num_preformatted = 0, 0

    def end_text(end, next_start):
        nonlocal start
        fragment = fragment_of_tags(text, inline, start, end)
        if not is_empty(fragment):
            spans.append((start, end))
            texts.append(fragment)
        inline.clear()
        start = next_start

    position = 0
    for tag in [*translated_tags(text), Tag(len(text), len(text), name="html")]:
        while num_preformatted and (line := text.find("\n", position, tag.start)) >= 0:
            end_text(line, line + 1)
            position = line + 1
        position = tag.end
        if tag.name in INLINE or not tag.name:
            inline.append(tag)
            continue
        end_text(tag.start, tag.end)
        if tag.name in _PREFORMATTED:
            change = {"open": 1, "close": -1, "alone": 0}[tag.kind]
            num_preformatted = max(0, num_preformatted + change)
    return changed_in_place(source, spans, texts, write_markup, width=ALWAYS_WRAPPED)
