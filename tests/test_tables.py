"""Parallel text in the columns of CSV and TSV files."""

import gzip
from pathlib import Path

import pytest

from keras_transformer.tables import TableColumn
from keras_transformer.text import check_parallel_files, read_lines
from keras_transformer.text_files import text_lines

CSV = 'ba,"ko, ""li"""\n mu ,ne\n'
PAIRS = [["ba", " mu "], ['ko, "li"', "ne"]]


@pytest.fixture
def columns(tmp_path):
    """Function from a file's text to its two columns."""

    def write(text, name="pairs.csv", names=()):
        path = tmp_path / name
        data = text.encode("utf-8")
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        languages = ("en", "de")
        return [TableColumn.of(path, side, names, languages) for side in (0, 1)]

    return write


@pytest.mark.parametrize(
    ("text", "name", "names"),
    [
        (CSV, "pairs.csv", ()),
        (CSV.replace("\n", "\r\n"), "pairs.CSV", ()),
        ("\ufeff" + CSV, "pairs.csv", ()),
        (CSV, "pairs.csv.gz", ()),
        ('ba\tko, "li"\n mu \tne', "pairs.tsv", ()),
        ("de,id,en\n" + '"ko, ""li""",7,ba\nne,8, mu \n', "pairs.csv", ()),
        ("target,source\n" + '"ko, ""li""",ba\nne, mu \n', "pairs.csv", ()),
        ("a,en,b\n" + 'ba,7,"ko, ""li"""\n mu ,8,ne\n', "pairs.csv", ("a", "b")),
    ],
)
def test_columns_are_read_by_name_or_are_the_first_two(columns, text, name, names):
    sides = columns(text, name, names)
    assert [list(read_lines(side)) for side in sides] == PAIRS
    for side, expected in zip(sides, PAIRS, strict=True):
        found = [line.decode() for line in text_lines([side]).as_numpy_iterator()]
        assert found == expected
    assert check_parallel_files(*sides) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\nc\n", "pairs.csv:2 cannot be read: it has 1 columns, not 2"),
        ("en,de\na,b\n\n", "pairs.csv:3 cannot be read: it has 0 columns"),
        ("en,de\na,b\nc, \n", "pairs.csv:3 is an empty line"),
        ('a,b\n"c\nd",e\n', "pairs.csv:2 cannot be read: a cell has a line break"),
        ('a,b\n"c"d,e\n', "pairs.csv:2 cannot be read: ',' expected after"),
        ("en,de\n", "pairs.csv is empty"),
    ],
)
def test_what_is_wrong_in_a_table_is_named_by_its_line(columns, text, message):
    with pytest.raises(ValueError, match=message):
        check_parallel_files(*columns(text))


def test_columns_that_are_not_there_are_named(columns):
    with pytest.raises(ValueError, match=r"`data.columns` must name.*\['x', 'y'\]"):
        list(read_lines(columns("a,b\n", names=("x", "y"))[0]))


def test_other_files_are_read_line_by_line(tmp_path):
    for name in ("train.en", "train.gz", "csv", "a.csv.txt"):
        path = TableColumn.of(Path(name), 0, (), ("en", "de"))
        assert not isinstance(path, TableColumn)
