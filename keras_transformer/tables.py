"""Texts in a column of a table: CSV, TSV, JSON lines or Parquet."""

import csv
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from keras_transformer.checks import optional

csv.field_size_limit((1 << 31) - 1)  # of a cell; Python's own is 131,072 characters
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_SIDES = r"source|src|target|trg|tgt|text|original|translation|[a-z]+_?[0-9]+"
_FORMATS = (*_DELIMITERS, ".jsonl", ".parquet")


def table_format(path: Path) -> str | None:
    """Returns the suffix of a table, such as `".csv"`; None if the file is no table.

    A suffix of compression, `.gz` or `.zst`, may follow.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    suffixes = [suffix for suffix in suffixes if suffix not in (".gz", ".zst")]
    return suffixes[-1] if suffixes and suffixes[-1] in _FORMATS else None


def first_row(path: Path, lines: Iterable[str]) -> list[str]:
    """Returns the names of the columns; in CSV and TSV files, their first row.

    The `lines` of a Parquet file are not read.
    """
    if table_format(path) == ".parquet":
        return _parquet(path).schema_arrow.names
    if table_format(path) == ".jsonl":
        return list(_json_object(next(iter(lines), "")))
    try:
        return next(_rows(path, lines), [])
    except csv.Error:
        return []  # `cells` says what is wrong


def is_header(row: list[str]) -> bool:
    """Returns whether a first row looks like names: of languages, sides or numbers."""
    found = {language_of(x) or (re.fullmatch(_SIDES, x, re.I) and x) for x in row}
    return len(found - {None}) > 1


def language_of(name: str) -> str | None:
    """Returns the code of the language in a name, such as `"French text"`, `"en_1"`."""
    from babel import Locale  # which takes a while, and few files need it

    languages = Locale("en").languages
    codes = {english.lower(): code for code, english in languages.items()}
    words = re.findall("[A-Za-z]+", name)
    for word in words if len(words) < 4 else ():
        if code := codes.get(word.lower()):
            return code
        # In a text, "No" and "is" are words; and a column "id" has numbers.
        is_code = len(word) == 2 and not word.istitle() and word != "id"
        if is_code and " " not in name and word.lower() in languages:
            return word.lower()
    return None


def cells(
    path: Path, column: str | int, lines: Iterable[str]
) -> Iterator[tuple[int, str]]:
    """Yields the number of each line and the text in one of its columns.

    In CSV files, cells with commas or quotes are quoted, as in RFC 4180; in TSV files
    quotes are text. Parquet files have rows instead of `lines`, which are then not
    read. Errors name the line. `column` is as in `TextFile`.
    """
    if table_format(path) in _DELIMITERS:
        yield from _csv_cells(path, column, lines)
        return
    if table_format(path) == ".jsonl":
        texts = (_json_object(line).get(column) for line in lines)
    else:
        table = _parquet(path)
        if column not in table.schema_arrow.names:
            raise _no_column(path, column, table.schema_arrow.names)
        batches = table.iter_batches(columns=[column])
        texts = (text for batch in batches for text in batch.column(0).to_pylist())
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str) or "\n" in text:
            problem = "has a line break" if isinstance(text, str) else "is missing"
            raise _fault(path, number, f"its text {column!r} {problem}")
        yield number, text


def _csv_cells(path, column, lines):
    number, index = 1, column
    rows = _rows(path, lines)
    try:
        for row in rows:
            if rows.line_num != number:
                raise csv.Error("a cell has a line break, or a quote is not closed")
            if isinstance(index, str):
                if index not in row:
                    raise _no_column(path, column, row)
                index = row.index(index)
            else:
                if len(row) <= index:
                    raise csv.Error(f"it has {len(row)} columns, not {index + 1}")
                yield number, row[index]
            number += 1
    except csv.Error as error:
        raise _fault(path, number, error) from None


def _rows(path, lines):
    delimiter = _DELIMITERS[str(table_format(path))]
    quoting: Any = csv.QUOTE_MINIMAL if delimiter == "," else csv.QUOTE_NONE
    texts = (f"{line}\n" for line in lines)
    return csv.reader(texts, delimiter=delimiter, quoting=quoting, strict=True)


def _json_object(line):
    """Returns the object that a line holds; an empty one if it holds none."""
    try:
        row = json.loads(line)
    except ValueError:
        return {}
    return row if isinstance(row, dict) else {}


def _parquet(path):
    with optional("pyarrow", "corpora", "A Parquet file"):
        import pyarrow.parquet
    try:
        return pyarrow.parquet.ParquetFile(path)
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"{path} is not a Parquet file: {error}") from None


def _fault(path, number, problem):
    return ValueError(
        f"{path}:{number} cannot be read: {problem}. Write each pair in one line; in "
        "CSV files, quote cells as in RFC 4180."
    )


def _no_column(path, column, names):
    return ValueError(
        f"`column` must name a column of {path}, which has {list(names)}. Received: "
        f"column={column!r}."
    )
