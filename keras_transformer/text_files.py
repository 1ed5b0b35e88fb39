"""Text files: read text by text, and checked before training."""

import contextlib
import dataclasses
import functools
import glob
import gzip
import itertools
import os
import zlib
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # the shell checks files before it loads TensorFlow
    import tensorflow as tf

from keras_transformer.checks import optional
from keras_transformer.tables import cells, table_format

BYTE_ORDER_MARK = "\ufeff"
# The first bytes of packed files.
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"


@dataclasses.dataclass(frozen=True)
class TextFile:
    """A text file with one text per line, or one column of a table.

    Pass it wherever a path is expected, to read a column or to tag every text.

    Args:
        path: A file, plain or compressed with gzip or zstd. Tables are named `.csv`,
            `.tsv`, `.jsonl` or `.parquet`.
        column: Name of the table's column, in CSV and TSV files as in their first line
            or, if that is text, the column's number, from 0. None: every line is a
            text.
        tag: Token to put before each text, such as `<bt>` for back-translations; see
            `symbols` of `SubwordTokenizer.train`.
        min_hash: In a source file, pairs with a lower `pair_hash` are left out: they
            are held out for validation.

    Example:
        >>> kt.text.TextFile("pairs.tsv", column="en", tag="<bt>")
        TextFile(path=PosixPath('pairs.tsv'), column='en', tag='<bt>')
    """

    path: Path
    column: str | int | None = None
    tag: str = ""
    min_hash: int = dataclasses.field(default=0, repr=False)

    def __post_init__(self):
        object.__setattr__(self, "path", Path(self.path))
        if self.column is not None and table_format(self.path) is None:
            raise ValueError(
                "`column` must be None unless the file is a .csv, .tsv, .jsonl or "
                f".parquet table. Received: column={self.column!r}, path={self.path}."
            )

    def __str__(self):
        return str(self.path)


# Paths are read as they are; files may be patterns, columns of tables, and have tags.
Paths = str | os.PathLike | Iterable[str | os.PathLike]
Files = str | os.PathLike | TextFile | Iterable[str | os.PathLike | TextFile]


class SentencePair(NamedTuple):
    """A sentence, its translation, and where the sentence stands."""

    source: str
    target: str
    location: str  # "file:line"


def as_paths(files: Paths) -> list[Path]:
    """Returns one path or several as a list."""
    if isinstance(files, (str, os.PathLike)):
        files = [files]
    return list(map(Path, files))


def as_files(files: Files) -> list[TextFile]:
    """Returns files, and the sorted files of glob patterns, as a list."""
    if isinstance(files, (str, os.PathLike, TextFile)):
        files = [files]
    found = []
    for file in files:
        paths = [file] if isinstance(file, TextFile) else expanded(file)
        if not paths:
            raise FileNotFoundError(f"{file} matches no file. Check the pattern.")
        found += [x if isinstance(x, TextFile) else TextFile(x) for x in paths]
    return found


def expanded(pattern: str | os.PathLike, folder: str | os.PathLike = "") -> list[Path]:
    """Returns the sorted files of a glob pattern; any other path as it is."""
    path, name = Path(folder, pattern), os.fspath(pattern)
    if not glob.has_magic(name) or path.exists():
        return [path]
    names = glob.glob(name, root_dir=folder or None, recursive=True)
    return [Path(folder, name) for name in sorted(names)]


def _begins_with(path, mark):
    with open(path, "rb") as file:
        return file.read(len(mark)) == mark


def read_lines(path: str | os.PathLike | TextFile) -> Iterator[str]:
    r"""Yields the lines of a UTF-8 text file, plain or compressed, one at a time.

    As in `tf.data.TextLineDataset`, only a line feed ends a line, and line feeds,
    carriage returns and a byte order mark are left out. The first bytes of the file,
    not its name, show whether it is compressed with gzip or zstd.

    Args:
        path: Path of the file, or a `TextFile`, whose texts are read with their tag.

    Yields:
        The lines, without what ends them.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is a folder or a pipe, if it is not UTF-8 (the message names
            the line), or if its compressed data is damaged or truncated.
        ImportError: If it is compressed with zstd, without `backports.zstd` installed.
    """
    file = path if isinstance(path, TextFile) else TextFile(Path(path))
    return (text for _, text in _numbered_texts(file))


def _numbered_texts(file: TextFile) -> Iterator[tuple[int, str]]:
    """Returns the number of each line and its text with the tag, as an iterator."""
    path = file.path
    _check_is_file(path)
    texts: Iterator[tuple[int, str]] = enumerate(_lines_in(path), start=1)
    if file.column is not None:
        texts = cells(path, file.column, _lines_in(path))
    tag = f"{file.tag} " if file.tag else ""
    return ((number, f"{tag}{text}") for number, text in texts)


def _check_is_file(path):
    if path.is_dir():
        raise ValueError(f"{path} is a folder, not a text file. Pass a file's path.")
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist. Check the path.")
    if not path.is_file():
        raise ValueError(
            f"{path} is a pipe or a device, and text is read more than once. Write it "
            "to a file first."
        )


def _lines_in(path):
    # What opens the file, and the errors of damaged data.
    unpack, errors = contextlib.nullcontext, ()
    if _begins_with(path, _GZIP):
        unpack, errors = gzip.open, (EOFError, gzip.BadGzipFile, zlib.error)
    elif _begins_with(path, _ZSTD):
        # Python has it from 3.14 on, as compression.zstd.
        with optional("backports", "corpora", "A file compressed with zstd"):
            from backports import zstd

        unpack, errors = zstd.open, (EOFError, zstd.ZstdError)
    number = 0
    with open(path, "rb") as packed, unpack(packed) as file:
        try:
            for line in decode_lines(file, path):
                number += 1
                yield line
        except errors as error:
            raise ValueError(
                f"{path}:{number + 1} cannot be read: the compressed data is damaged "
                f"or truncated ({error}). Create or download the file again."
            ) from None


def decode_lines(file: Iterable[bytes], name) -> Iterator[str]:
    """Yields the lines of an open file; errors name the file and the line."""
    for number, line in enumerate(file, start=1):
        try:
            text = line.decode("utf-8").replace("\r", "").removesuffix("\n")
            yield text.removeprefix(BYTE_ORDER_MARK) if number == 1 else text
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{name}:{number} is not UTF-8: {error.reason} at byte "
                f"{error.start + 1}. Convert the file, for example with iconv."
            ) from None


def text_lines(files: Files) -> "tf.data.Dataset":
    """Returns the lines of all files, one after the other, as a dataset of strings."""
    import tensorflow as tf

    return functools.reduce(
        tf.data.Dataset.concatenate, map(_texts_of, as_files(files))
    )


def _texts_of(file):
    import tensorflow as tf

    path = file.path
    # Of a file that is several packed ones in a row, TensorFlow may read the first.
    is_packed = _begins_with(path, _GZIP) or _begins_with(path, _ZSTD)
    if file.column is not None or is_packed:
        blocks = tf.data.Dataset.from_generator(
            # A list of lines costs TensorFlow one call of Python.
            lambda: chunks_of(read_lines(file), 1024),
            output_signature=tf.TensorSpec((None,), "string"),
        )
        return blocks.unbatch()
    lines = tf.data.TextLineDataset(str(path))
    mark = BYTE_ORDER_MARK.encode()
    if _begins_with(path, mark):
        first = lines.take(1).map(lambda x: tf.strings.substr(x, len(mark), -1))
        lines = first.concatenate(lines.skip(1))
    if file.tag:
        lines = lines.map(lambda x: tf.strings.join([file.tag, " ", x]))
    return lines


def paired_files(
    source_files: Files, target_files: Files
) -> list[tuple[TextFile, TextFile]]:
    """Returns each source file with the target file that translates it."""
    sources, targets = as_files(source_files), as_files(target_files)
    if not sources or len(sources) != len(targets):
        raise ValueError(
            "`source_files` and `target_files` must name the same number of files, "
            f"each the translation of its counterpart. Received: {len(sources)} and "
            f"{len(targets)} files."
        )
    return list(zip(sources, targets, strict=True))


def pair_hash(source: str, target: str, tags: Container[str] = ()) -> int:
    """Returns a 32-bit hash of a pair, the same in both directions and for any tag."""
    word, _, rest = source.partition(" ")
    sides = sorted((rest if word and word in tags else source, target))
    return zlib.crc32("\n".join(sides).encode())


def read_pairs(files: Iterable[tuple[TextFile, TextFile]]) -> Iterator[SentencePair]:
    """Yields the sentence pairs of pairs of files, holding one pair in memory.

    Pairs that are held out are left out. Errors are as in `check_parallel_files`.
    """
    for sides in files:
        for pair in itertools.zip_longest(*map(_sentences, sides)):
            if None in pair:
                longer, shorter = sides if pair[1] is None else reversed(sides)
                number, _ = pair[0] or pair[1]
                raise ValueError(
                    f"{longer}:{number} has no counterpart: {shorter} ends before that "
                    "line. Both sides must have the same number of lines, each the "
                    "translation of the other."
                )
            (number, source), (_, target) = pair
            min_hash = sides[0].min_hash
            if not min_hash or pair_hash(source, target, [sides[0].tag]) >= min_hash:
                yield SentencePair(source, target, f"{sides[0].path}:{number}")


def _sentences(file: TextFile) -> Iterator[tuple[int, str]]:
    """Yields the numbered lines of a file; raises `ValueError` if one is empty."""
    number = 0
    for number, text in _numbered_texts(file):
        if not text.removeprefix(file.tag).strip():
            raise ValueError(
                f"{file}:{number} is an empty line. Remove line {number} here and in "
                "the file that translates it."
            )
        yield number, text
    if number == 0:
        raise ValueError(f"{file} is empty. It must hold one sentence per line.")


def check_parallel_files(source_files: Files, target_files: Files) -> int:
    """Reads both sides of a parallel corpus once, line by line.

    Args:
        source_files: As in `parallel_dataset`.
        target_files: The same number of files, matching the sources line by line.

    Returns:
        The number of sentence pairs.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is a folder, a pipe, empty, not UTF-8 or damaged, if a
            line is empty, or if the sides differ in their numbers of files or lines.
            The message names file and line.
    """
    return sum(1 for _ in read_pairs(paired_files(source_files, target_files)))


def checksum(files: Files) -> str:
    """Returns a checksum of the contents of files, in their order."""
    checksum = 0
    for path in dict.fromkeys(file.path for file in as_files(files)):
        _check_is_file(path)
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                checksum = zlib.crc32(block, checksum)
    return f"crc32:{checksum:08x}"


def chunks_of(items: Iterable, size: int) -> Iterator[list]:
    """Splits items into lists of `size`; the first is an eighth, to be ready sooner."""
    items = iter(items)
    next_size = -(-size // 8)
    while chunk := list(itertools.islice(items, next_size)):
        yield chunk
        next_size = size
