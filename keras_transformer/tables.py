"""Parallel text in two columns of a CSV or TSV file."""

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

_DELIMITERS = {".csv": ",", ".tsv": "\t"}


class TableColumn(type(Path())):  # type: ignore[misc]
    """The path of a CSV or TSV file of which one column is read, a text a line.

    In CSV files, cells with commas or quotes are quoted, as RFC 4180 has it; in TSV
    files quotes are text.
    """

    side: int
    headers: tuple[tuple[str, ...], ...]
    is_named: bool

    @classmethod
    def of(
        cls, path: Path, side: int, names: tuple[str, ...], languages: tuple
    ) -> Path:
        """Returns a column of a table, or another file as it is.

        Args:
            path: Path of a file; `.csv` and `.tsv` are tables, also before `.gz`.
            side: 0 for the source, 1 for the target.
            names: Names of both columns, which the first line must hold; if empty,
                the first line may name the languages, or `source` and `target`. If it
                does not, it is text, and the columns are the first two.
            languages: The two languages.
        """
        if delimiter_of(path) is None:
            return path
        column = cls(path)
        column.side = side
        column.headers = (names,) if names else (languages, ("source", "target"))
        column.is_named = bool(names)
        return column

    def position(self, first_row: list[str]) -> int | None:
        """Returns the number of the column that the first row names, None if none."""
        for names in self.headers:
            if set(names) <= set(first_row):
                return first_row.index(names[self.side])
        if self.is_named:
            raise ValueError(
                f"`data.columns` must name columns of {self}, whose first line has "
                f"{first_row}. Received: columns={list(self.headers[0])}."
            )
        return None

    def cells(self, lines: Iterable[str]) -> Iterator[tuple[int, str]]:
        """Yields the number of each line of text, and its cell.

        Args:
            lines: The lines of the file.

        Raises:
            ValueError: If a cell is missing, is not closed or has a line break.
        """
        delimiter, number, index = delimiter_of(self) or ",", 1, self.side
        quoting: Any = csv.QUOTE_MINIMAL if delimiter == "," else csv.QUOTE_NONE
        texts = (f"{line}\n" for line in lines)
        rows = csv.reader(texts, delimiter=delimiter, quoting=quoting, strict=True)
        try:
            for row in rows:
                if rows.line_num != number:
                    raise csv.Error("a cell has a line break, or a quote is not closed")
                named = self.position(row) if number == 1 else None
                index = index if named is None else named
                if len(row) <= index:
                    raise csv.Error(f"it has {len(row)} columns, not {index + 1}")
                if named is None:
                    yield number, row[index]
                number += 1
        except csv.Error as error:
            raise ValueError(
                f"{self}:{number} cannot be read: {error}. Write a pair in one line, "
                "with quotes as RFC 4180 has them."
            ) from None


def delimiter_of(path: Path) -> str | None:
    """Returns what separates the columns of a table; None if the file is no table."""
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    return _DELIMITERS.get(suffixes[-1]) if suffixes else None
