"""JSON and tables, CSV and TSV, whose texts are plain."""

import json
import re

from keras_transformer.documents.document import Document, changed_in_place, decoded
from keras_transformer.markup import plain_text

_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*"(?P<is_key>\s*:)?')
_QUOTED_CELL = r'"(?:[^"]|"")*"'


def read_json(data: bytes, **settings) -> Document:
    """Reads all strings of JSON that are not keys."""
    source = decoded(data)
    json.loads(source.text)
    strings = [x for x in _JSON_STRING.finditer(source.text) if not x["is_key"]]
    texts = [[json.loads(x[0])] if x[0] != '""' else [] for x in strings]
    is_ascii = source.text.isascii() and "\\u" in source.text

    def write(text, token):
        return json.dumps(plain_text(text), ensure_ascii=is_ascii)

    return changed_in_place(source, [x.span() for x in strings], texts, write)


def read_csv(data: bytes, columns: tuple[str, ...] = (), **settings) -> Document:
    """Reads a column of a table that commas or semicolons separate (RFC 4180)."""
    source = decoded(data)
    delimiter = max(",;", key=source.text.partition("\n")[0].count)

    def value(cell):
        return cell[1:-1].replace('""', '"') if cell.startswith('"') else cell

    def write(text, cell):
        written = plain_text(text)
        if cell.startswith('"') or re.search(f'["\r\n{delimiter}]', written):
            return '"{}"'.format(written.replace('"', '""'))
        return written

    pattern = rf'{_QUOTED_CELL}|(?!")[^{delimiter}\r\n]*'
    return _read_table(source, delimiter, pattern, columns, value, write)


def read_tsv(data: bytes, columns: tuple[str, ...] = (), **settings) -> Document:
    """Reads a column of a table that tabs separate; quotes are text."""

    def write(text, cell):
        return re.sub(r"[\t\r\n]", " ", plain_text(text))

    return _read_table(decoded(data), "\t", r"[^\t\r\n]*", columns, str, write)


def _read_table(source, delimiter, pattern, columns, value, write):
    text = source.text
    cell = re.compile(f"({pattern})(?P<end>{delimiter}|\r?\n|\\Z)")
    rows, row, position = [], [], 0
    while position < len(text) or row:
        found = cell.match(text, position)
        if found is None:
            line = text.count("\n", 0, position) + 1
            raise ValueError(f"a cell in line {line} has a quote that is not closed")
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
            f"{', '.join(names)}. Pass the column to translate, or the source and the "
            "target column (--column)"
        )
    first, last = names.index(columns[0]), names.index(columns[-1])
    rows = [row for row in rows[1:] if len(row) > max(first, last)]
    if first != last:  # what is translated stays
        rows = [row for row in rows if not value(text[slice(*row[last])]).strip()]
    texts = [list(filter(None, [value(text[slice(*row[first])])])) for row in rows]
    spans = [row[last] for row in rows]
    return changed_in_place(source, spans, texts, write, keeps_same=first == last)
