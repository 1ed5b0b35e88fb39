import gzip
import os

import pytest
import tensorflow as tf

from keras_transformer.text import check_parallel_files, read_lines
from keras_transformer.text_files import TextFile, as_files, text_lines

GOOD = b"Ein Hund.\nEine Katze.\nEin Pferd.\n"
ZIPPED = gzip.compress(GOOD, mtime=0)  # the time of day would change the names of tests


@pytest.fixture
def write(tmp_path):
    """Writes bytes to a file of that name and returns its path."""

    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


@pytest.mark.parametrize(
    "content",
    [
        GOOD,
        GOOD.rstrip(),
        GOOD.replace(b"\n", b"\r\n"),
        b"a\rb\n c \n\nd",
        "a\u2028b\x85c\x0bd\x0ce\x1cf\nß\n".encode(),
    ],
    ids=["plain", "no last line feed", "DOS", "odd blanks", "odd line ends"],
)
@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_lines_are_those_that_tensorflow_reads(write, content, compress):
    path = write("text", compress(content))
    kind = "GZIP" if compress is gzip.compress else None
    expected = [
        line.numpy().decode() for line in tf.data.TextLineDataset(str(path), kind)
    ]
    assert list(read_lines(path)) == list(read_lines(str(path))) == expected


def test_gzip_is_detected_by_its_bytes_and_may_have_many_members(write):
    path = write("text.txt", gzip.compress(b"a\nb\n") + gzip.compress(b"c\n"))
    assert list(read_lines(path)) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "parts",
    [
        (b"a\n", b"b\nc\n"),
        (b"a\nb\nc\n", b""),  # as bgzip ends a file
        (b"a\n", b"", b"b\nc\n"),
        (b"a\nb\nc\n", None),
    ],
)
def test_a_file_that_is_several_packed_ones_is_read_whole(write, parts):
    packed = (bytes(3) if part is None else gzip.compress(part) for part in parts)
    path = write("a.gz", b"".join(packed))
    assert list(read_lines(path)) == ["a", "b", "c"]
    assert [x.decode() for x in text_lines(path).as_numpy_iterator()] == ["a", "b", "c"]


def test_good_files_are_counted(write):
    one, other = write("a", GOOD), write("b.gz", gzip.compress(GOOD))
    assert check_parallel_files(one, str(other)) == 3
    assert check_parallel_files([one, other], [other, one]) == 6


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"bad is empty\. It must hold one sentence per line"),
        (b"a\nb\n", r"good:3 has no counterpart: \S*bad ends before that line"),
        (GOOD + b"d\ne\n", r"bad:4 has no counterpart: \S*good ends before that line"),
        (b"a\n\nc\n", r"bad:2 is an empty line\. Remove line 2 here and in"),
        (b"a\n \t\xc2\xa0\nc\n", r"bad:2 is an empty line"),
        (b"a\nb\n\xe4hnlich\n", r"bad:3 is not UTF-8: .* at byte 1\. Convert the file"),
        ("a\nb\n".encode("utf-16"), r"bad:1 is not UTF-8"),
        (ZIPPED[:-9], r"bad:\d cannot be read: the compressed data is damaged"),
        (ZIPPED[:-4] + b"abcd", r"bad:\d cannot be read: the compressed data"),
        (b"\x1f\x8bno gzip at all", r"bad:1 cannot be read: the compressed data"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else None,
)
@pytest.mark.parametrize("swap", [False, True], ids=["source", "target"])
def test_a_faulty_side_is_named_with_its_line(write, content, message, swap):
    files = write("bad", content), write("good", GOOD)
    with pytest.raises(ValueError, match=message) as caught:
        check_parallel_files(*(files[::-1] if swap else files))
    assert "\n" not in str(caught.value)


def test_a_faulty_second_file_is_named(write):
    good, bad = write("good", GOOD), write("bad", GOOD + b"d\n")
    with pytest.raises(ValueError, match=r"bad:4 has no counterpart: \S*good ends"):
        check_parallel_files([good, good], [good, bad])


def test_a_missing_file_is_named(write, tmp_path):
    missing = tmp_path / "missing.en"
    with pytest.raises(FileNotFoundError, match=r"missing\.en does not exist"):
        check_parallel_files(missing, write("good", GOOD))


def test_a_folder_is_refused(write, tmp_path):
    with pytest.raises(ValueError, match="is a folder, not a text file"):
        check_parallel_files(write("good", GOOD), tmp_path)


def test_a_pipe_is_refused_before_it_is_read(write, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe is a pipe or a device"):
        check_parallel_files(write("good", GOOD), tmp_path / "pipe")


def test_a_byte_order_mark_is_no_text(write):
    path = write("text", "\ufeffa\n\ufeffb\n".encode())
    assert list(read_lines(path)) == ["a", "\ufeffb"]
    lines = [line.decode() for line in text_lines([path, path]).as_numpy_iterator()]
    assert lines == ["a", "\ufeffb"] * 2


@pytest.mark.parametrize("sides", [(["a"], ["b", "c"]), ([], [])])
def test_sides_have_equally_many_files(sides):
    with pytest.raises(
        ValueError, match=r"must name the same number of files.* Received: \d and \d"
    ):
        check_parallel_files(*sides)


def test_the_files_of_a_pattern_are_sorted(write, tmp_path):
    for name in ("b.2.en", "a.en", "b.10.en", "c.de"):
        write(name, f"{name}\n".encode())
    pattern = str(tmp_path / "*.en")
    assert [x.path.name for x in as_files(pattern)] == ["a.en", "b.10.en", "b.2.en"]
    files = [pattern, tmp_path / "c.de"]
    assert check_parallel_files(files, files[::-1]) == 4
    lines = [line.decode() for line in text_lines(pattern).as_numpy_iterator()]
    assert lines == ["a.en", "b.10.en", "b.2.en"]
    with pytest.raises(FileNotFoundError, match=r"\*\.fr matches no file"):
        check_parallel_files(pattern, str(tmp_path / "*.fr"))


def test_a_tag_is_put_before_every_text(write):
    for name, data in (("a", GOOD), ("a.gz", gzip.compress(b"\xef\xbb\xbf" + GOOD))):
        file = TextFile(write(name, data), tag="<bt>")
        expected = [f"<bt> {line}" for line in GOOD.decode().splitlines()]
        assert list(read_lines(file)) == expected
        found = [line.decode() for line in text_lines(file).as_numpy_iterator()]
        assert found == expected
    empty = write("empty", b"a\n\n")
    with pytest.raises(ValueError, match="empty:2 is an empty line"):
        check_parallel_files(TextFile(empty, tag="<bt>"), write("good", GOOD))


# Zstandard


@pytest.fixture
def zstd():
    """Function from data to what zstd makes of them, in two frames."""
    zstd = pytest.importorskip("backports.zstd")

    def pack(data):
        half = len(data) // 2
        return zstd.compress(data[:half]) + zstd.compress(data[half:])

    return pack


def test_zstd_is_read_whatever_its_name_and_frames(write, zstd):
    path = write("text", zstd(GOOD))
    assert list(read_lines(path)) == GOOD.decode().splitlines()
    found = [line.decode() for line in text_lines(path).as_numpy_iterator()]
    assert found == GOOD.decode().splitlines()


@pytest.mark.parametrize("part", ["cut short", "damaged"])
def test_damaged_zstd_is_named_with_its_line(write, zstd, part):
    data = zstd(b"ba ko li mu\n" * 9973)
    data = data[:-7] if part == "cut short" else data[:-21] + bytes(11) + data[-10:]
    message = r"bad:\d+ cannot be read: the compressed data is damaged or truncated"
    with pytest.raises(ValueError, match=message):
        list(read_lines(write("bad", data)))
