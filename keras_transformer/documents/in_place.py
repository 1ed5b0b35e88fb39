"""Documents in which only the texts change: text, subtitles, HTML, JSON and tables.

The stores of translate-toolkit for these formats write what they have understood. They
drop the styles and notes of subtitles, the columns of a table that they do not know,
and text after an HTML element that nothing closes; they indent JSON anew.
"""

import codecs
import html
import json
import re

from keras_transformer.documents.sentences import (
    ALWAYS_WRAPPED,
    MARKUP,
    Document,
    wrapped_width,
)

_CUE = re.compile(  # a time, where to show it, then lines until an empty one
    r"^[ \t]*[\d:.,]+[ \t]+-->.*\n(?:\{\\[^}\n]*\})*"
    r"(?P<text>(?:[^\S\n]*\S.*(?:\n|\Z))+)",
    re.MULTILINE,
)
_ATTRIBUTES = r"""(?:[\s/](?:"[^"]*"|'[^']*'|[^"'<>])*)?"""
_HTML_TAG = re.compile(
    # As in browsers, what nothing closes extends to the end.
    r"<!--.*?(?:-->|\Z)|<[!?][^>]*(?:>|\Z)"
    rf"|<(?P<code>script|style){_ATTRIBUTES}>.*?(?:</(?P=code)\s*>|\Z)"
    r"|<(?P<kept>\w+)(?=\s)[^<>]*\stranslate=[\"']?no\b[^<>]*>"
    r".*?(?:</(?P=kept)\s*>|\Z)"
    rf"|</?(?P<name>[A-Za-z][\w:-]*){_ATTRIBUTES}>",
    re.DOTALL | re.IGNORECASE,
)
_INLINE_TAG = re.compile(
    "a|abbr|acronym|b|bdi|bdo|big|br|cite|code|data|del|dfn|em|font|i|img|ins|kbd|mark|"
    "q|rp|rt|ruby|s|samp|small|span|strong|sub|sup|time|tt|u|var|wbr",
    re.IGNORECASE,
)
_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*"(?P<is_key>\s*:)?')
_QUOTED_CELL = r'"(?:[^"]|"")*"'


def read_text(data: bytes, **settings) -> Document:
    """Reads paragraphs of plain text."""
    text = _decoded(data)
    document = _changed_in_place(data, [(0, len(text))], [text])
    return document._replace(width=wrapped_width(text), has_tags=False)


def read_subtitles(data: bytes, **settings) -> Document:
    """Reads the cues of SRT or WebVTT."""
    text = _decoded(data)
    cues = [cue.span("text") for cue in _CUE.finditer(text)]
    spans = [(start, start + len(text[start:end].rstrip())) for start, end in cues]
    texts = [text[slice(*span)] for span in spans]

    def written(translation, source):
        # SRT has tags, but no entities.
        return translation if text.startswith("WEBVTT") else html.unescape(translation)

    document = _changed_in_place(data, spans, texts, written)
    return document._replace(width=ALWAYS_WRAPPED)


def read_html(data: bytes, **settings) -> Document:
    """Reads the text between the tags of blocks, with its inline tags."""
    charset = re.search(rb"""charset=["']?([\w-]+)""", data[:1024])
    encoding = charset[1].decode() if charset else "utf-8"
    text = _decoded(data, encoding)
    spans = html_spans(text)

    def written(translation, source):
        is_markup = MARKUP.search(source)
        return translation if is_markup else html.escape(translation, quote=False)

    texts = [text[slice(*span)] for span in spans]
    document = _changed_in_place(data, spans, texts, written, encoding)
    return document._replace(width=ALWAYS_WRAPPED)


def html_spans(text: str, has_inline_tags: bool = True) -> list[tuple[int, int]]:
    """Returns where the texts between the tags of HTML stand, without the space around.

    They hold inline tags, such as `<b>`, unless `has_inline_tags` is False.
    """
    spans, start = [], 0
    for tag in [*_HTML_TAG.finditer(text), None]:
        if has_inline_tags and tag and _INLINE_TAG.fullmatch(tag["name"] or ""):
            continue
        run = text[start : tag.start() if tag else len(text)]
        if run.strip():
            begin = start + len(run) - len(run.lstrip())
            spans.append((begin, begin + len(run.strip())))
        start = tag.end() if tag else len(text)
    return spans


def read_json(data: bytes, **settings) -> Document:
    """Reads all strings of JSON that are no keys."""
    text = _decoded(data)
    json.loads(text)
    spans = [x.span() for x in _JSON_STRING.finditer(text) if not x["is_key"]]
    texts = [json.loads(text[slice(*span)]) for span in spans]
    is_ascii = text.isascii() and "\\u" in text

    def written(translation, token):
        if translation == json.loads(token):
            return token  # which may have other escapes
        return json.dumps(translation, ensure_ascii=is_ascii)

    return _changed_in_place(data, spans, texts, written)


def read_csv(data: bytes, columns: tuple[str, ...] = (), **settings) -> Document:
    """Reads a column of a table that commas or semicolons separate (RFC 4180)."""
    delimiter = max(",;", key=_decoded(data).partition("\n")[0].count)

    def value(cell):
        return cell[1:-1].replace('""', '"') if cell.startswith('"') else cell

    def written(translation, cell):
        if translation == value(cell):
            return cell
        if cell.startswith('"') or re.search(f'["\r\n{delimiter}]', translation):
            return '"{}"'.format(translation.replace('"', '""'))
        return translation

    pattern = rf'{_QUOTED_CELL}|(?!")[^{delimiter}\r\n]*'
    return _read_table(data, delimiter, pattern, columns, value, written)


def read_tsv(data: bytes, columns: tuple[str, ...] = (), **settings) -> Document:
    """Reads a column of a table that tabs separate; quotes are text."""

    def written(translation, cell):
        return re.sub(r"[\t\r\n]", " ", translation)

    return _read_table(data, "\t", r"[^\t\r\n]*", columns, str, written)


def _read_table(data, delimiter, pattern, columns, value, written):
    text = _decoded(data)
    cell = re.compile(f"({pattern})(?P<end>{delimiter}|\r?\n|\\Z)")
    rows, row, position = [], [], 0
    while position < len(text) or row:
        found = cell.match(text, position)
        if found is None:
            line = text.count("\n", 0, position) + 1
            raise ValueError(f"a cell with a quote in line {line} does not end")
        row.append(found.span(1))
        position = found.end()
        if found["end"] != delimiter:
            rows.append(row)
            row = []
    names = [value(text[slice(*span)]) for span in rows[0]] if rows else []
    columns = columns or ("source", "target")
    if len(columns) > 2 or not set(columns) <= set(names):
        raise ValueError(
            f"its first line must name the columns {' and '.join(columns)}. It has "
            f"{', '.join(names)}. Name the column to translate, or that of the source "
            "and that of the target (--column)"
        )
    source, target = names.index(columns[0]), names.index(columns[-1])
    rows = [row for row in rows[1:] if len(row) > max(source, target)]
    if source != target:  # what is translated stays
        rows = [row for row in rows if not value(text[slice(*row[target])]).strip()]
    texts = [value(text[slice(*row[source])]) for row in rows]
    return _changed_in_place(data, [row[target] for row in rows], texts, written)


def _decoded(data, encoding="utf-8"):
    """Returns text without its byte order mark."""
    return data.removeprefix(codecs.BOM_UTF8).decode(encoding)


def _changed_in_place(
    data, spans, texts, written=lambda translation, old: translation, encoding="utf-8"
):
    """Returns a document in which translations take the place of spans of its text.

    `written` is a function from a translation, and what stands in its place, to what
    is written there.
    """
    text = _decoded(data, encoding)
    mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""

    def assemble(translations):
        parts, end = [], 0
        for (start, stop), translation in zip(spans, translations, strict=True):
            parts += [text[end:start], written(translation, text[start:stop])]
            end = stop
        whole = "".join([*parts, text[end:]])
        return mark + whole.encode(encoding, "xmlcharrefreplace")

    return Document(texts, assemble)
