"""Parallel text in the columns of tables."""

import gzip
import json
import pickle
from pathlib import Path

import pytest

from keras_transformer.runs.recipe import DataSettings
from keras_transformer.text import TextFile, check_parallel_files, read_lines
from keras_transformer.text_files import text_lines

CSV = 'ba,"ko, ""li"""\n mu ,ne\n'
PAIRS = [["ba", " mu "], ['ko, "li"', "ne"]]
LINES = [{"de": 'ko, "li"', "id": 7, "en": "ba"}, {"de": "ne", "id": 8, "en": " mu "}]
JSON = "".join(f"{json.dumps(row)}\n" for row in LINES)


def sides_of(path, names=()):
    """Returns the two columns of a table, as a recipe finds them."""
    table = {"source": path.name, "target": path.name}
    data = DataSettings(
        source="en",
        target="de",
        train=table,
        validation=table,
        columns=names,
        folder=str(path.parent),
    )
    return [data.paths("train", side)[0] for side in ("source", "target")]


@pytest.fixture
def columns(tmp_path):
    """Function from a file's text to its two columns."""

    def write(text, name="pairs.csv", names=()):
        path = tmp_path / name
        data = text.encode("utf-8")
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return sides_of(path, names)

    return write


def test_a_cell_may_be_long(columns):
    long = "ba " * 100_000
    for name, cell in (("pairs.csv", f'"{long}"'), ("pairs.tsv", long)):
        separator = "," if name.endswith("csv") else "\t"
        source, _ = columns(f"kok{separator}li\n{cell}{separator}mu\n", name)
        assert list(read_lines(source)) == ["kok", long]


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
        (JSON, "pairs.jsonl", ()),
        (JSON.replace('"en"', '"x"'), "pairs.jsonl.gz", ("x", "de")),
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
    "header",
    [
        *("english,french", "English words/sentences,French words/sentences"),
        *("id,german_text,English", "text_en,text_de", "EN,FR", "Source,Target"),
        *("src,tgt", "en,fr", "text,translation", "col1,col2", "Text_1,Text_2"),
    ],
)
def test_a_header_is_no_text_and_its_columns_are_asked_for(columns, header):
    with pytest.raises(ValueError, match="--set 'data.columns=.*if that line is text"):
        columns(f"{header}\nba,ko,li\n")


@pytest.mark.parametrize(
    "row", ["No,So", "French,Französisch", "It is,Es ist", "dog,chien", "Hi,Hallo"]
)
def test_a_first_line_of_text_is_text(columns, row):
    source, _ = columns(f"{row}\nba,ko\n")
    assert list(read_lines(source)) == [row.partition(",")[0], "ba"]


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


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "'en' is missing"),
        ('{"en": "ba"', "'en' is missing"),
        ('["ba", "ko"]', "'en' is missing"),
        ('{"en": "ba"}', "'de' is missing"),
        ('{"en": 7, "de": "ko"}', "'en' is missing"),
        ('{"en": "ba\\nko", "de": "ko"}', "'en' has a line break"),
    ],
)
def test_what_is_wrong_in_json_lines_is_named_by_its_line(columns, line, problem):
    message = f"pairs.jsonl:3 cannot be read: its text {problem}. Write each pair"
    with pytest.raises(ValueError, match=message):
        check_parallel_files(*columns(f"{JSON}{line}\n", "pairs.jsonl"))


@pytest.fixture
def parquet(tmp_path):
    """Function from rows to the columns of a Parquet file, in groups of two rows."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    def write(rows):
        path = tmp_path / "pairs.parquet"
        write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=2)
        return sides_of(path)

    return write


def test_parquet_is_read_by_groups_of_rows(parquet):
    sides = parquet(LINES * 3)
    for side, expected in zip(sides, PAIRS, strict=True):
        assert list(read_lines(side)) == expected * 3
        found = [line.decode() for line in text_lines([side]).as_numpy_iterator()]
        assert found == expected * 3
    with pytest.raises(ValueError, match="`column` must name a column of .*'id', 'en'"):
        next(read_lines(TextFile(sides[0].path, "fr")))
    sides[0].path.write_text("en,de")
    with pytest.raises(ValueError, match="pairs.parquet is not a Parquet file"):
        next(read_lines(sides[0]))


def test_what_is_missing_in_parquet_is_named_by_its_row(parquet):
    with pytest.raises(ValueError, match="pairs.parquet:4 cannot .* 'de' is missing"):
        check_parallel_files(*parquet([*LINES, LINES[0], {"en": "ba"}]))


def test_a_column_and_a_tag_survive_a_pickle(columns):
    side = columns("en,de\na,b\n")[1]
    assert pickle.loads(pickle.dumps(side)) == side
    assert side.column == "de"


def test_columns_that_are_not_there_are_named(columns):
    with pytest.raises(ValueError, match=r"`data.columns` must name.*\['x', 'y'\]"):
        columns("a,b\n", names=("x", "y"))
    with pytest.raises(ValueError, match=r"`data.columns` must name.*\['a', 'b'\]"):
        columns('{"a": "ba", "b": "ko"}\n', "pairs.jsonl")
    table = columns("a,b\n")[0].path
    with pytest.raises(ValueError, match=r"`column` must name .*pairs.csv, .*'a', 'b'"):
        list(read_lines(TextFile(table, "c")))


def test_other_files_have_no_columns():
    for name in ("train.en", "train.gz", "csv", "a.csv.txt"):
        with pytest.raises(ValueError, match="`column` must be None unless the file"):
            TextFile(Path(name), 0)
