"""Text files: plain or gzipped, read line by line and checked before training."""

import functools
import gzip
import itertools
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # the shell checks files before it loads TensorFlow
    import tensorflow as tf

from keras_transformer.tables import TableColumn

BYTE_ORDER_MARK = "\ufeff"
_BLOCK = 1 << 16  # bytes that are read or unpacked at a time
Paths = str | os.PathLike | Iterable[str | os.PathLike]


class SentencePair(NamedTuple):
    """A sentence, its translation, and where the sentence stands."""

    source: str
    target: str
    file: int  # number of its file, from 0
    location: str  # "file:line"


def as_paths(files: Paths) -> list[Path]:
    """Returns one path or several as a list."""
    if isinstance(files, (str, os.PathLike)):
        files = [files]
    return [file if isinstance(file, Path) else Path(file) for file in files]


def is_gzipped(path: Path) -> bool:
    """Returns whether a file begins with gzip's two bytes, whatever its name."""
    with open(path, "rb") as file:
        return file.read(2) == b"\x1f\x8b"


def read_lines(path: str | os.PathLike) -> Iterator[str]:
    r"""Yields the lines of a UTF-8 text file, plain or gzipped, one at a time.

    As in `tf.data.TextLineDataset`, only a line feed ends a line, and both line feeds
    and carriage returns are left out. So is a byte order mark. The first bytes of the
    file, not its name, show whether it is gzipped.

    Args:
        path: Path of the file.

    Yields:
        The lines, without what ends them.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is a folder or a pipe, if it is not UTF-8 (the message names
            the line), or if its gzip data are damaged or cut short.
    """
    yield from (text for _, text in _numbered_lines(*as_paths(path)))


def _numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the number of each line and its text, in a table that of a column."""
    lines = _lines_in(path)
    if isinstance(path, TableColumn):
        yield from path.cells(lines)
    else:
        yield from enumerate(lines, start=1)


def _check_is_file(path):
    if path.is_dir():
        raise ValueError(f"{path} is a folder, not a text file. Pass a file's path.")
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist. Check the path.")
    if not path.is_file():
        raise ValueError(
            f"{path} is not a file but a pipe or a device, and text is read more than "
            "once. Write it to a file first."
        )


def _lines_in(path):
    _check_is_file(path)
    number = 0
    with gzip.open(path) if is_gzipped(path) else open(path, "rb") as file:
        try:
            for line in decode_lines(file, path):
                number += 1
                yield line
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(
                f"{path}:{number + 1} cannot be read: the gzip data are damaged or "
                f"cut short ({error}). Create or download the file again."
            ) from None


def decode_lines(file: Iterable[bytes], name) -> Iterator[str]:
    """Yields the lines of an open file; errors give its name and the line."""
    for number, line in enumerate(file, start=1):
        try:
            text = line.decode("utf-8").replace("\r", "").removesuffix("\n")
            yield text.removeprefix(BYTE_ORDER_MARK) if number == 1 else text
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{name}:{number} is not UTF-8: {error.reason} at byte "
                f"{error.start + 1}. Convert the file, for example with iconv."
            ) from None


def check_gzip(files: Paths) -> None:
    """Raises `ValueError` if TensorFlow would not read all of a gzipped file.

    A file may be several compressed ones in a row. TensorFlow stops at one that is
    empty, and refuses zeros after the last one; Python reads on.
    """
    for path in filter(is_gzipped, filter(Path.is_file, as_paths(files))):
        if not _is_plain_gzip(path):
            raise ValueError(
                f"{path} has parts that are empty, or zeros at its end, and TensorFlow "
                "would not read all of it. Pack it again: gzip -dc FILE | gzip > NEW."
            )


def _is_plain_gzip(path):
    part, is_new, is_empty = zlib.decompressobj(wbits=31), True, True
    after_empty = False
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            while block:
                if is_new and block.startswith(b"\0"):
                    return False
                try:
                    is_empty = not part.decompress(block, _BLOCK) and is_empty
                except zlib.error:
                    return True  # damaged: `read_lines` says where
                if after_empty and not is_empty:
                    return False
                is_new = part.eof
                block = part.unused_data if is_new else part.unconsumed_tail
                if is_new:
                    after_empty |= is_empty
                    part, is_empty = zlib.decompressobj(wbits=31), True
    return True


def text_lines(files: Paths) -> "tf.data.Dataset":
    """Returns the lines of all files, one after the other, as a dataset of strings."""
    import tensorflow as tf

    return functools.reduce(
        tf.data.Dataset.concatenate, map(_lines_of, as_paths(files))
    )


def _lines_of(path):
    import tensorflow as tf

    if isinstance(path, TableColumn):
        blocks = tf.data.Dataset.from_generator(
            lambda: _blocks(read_lines(path)),
            output_signature=tf.TensorSpec((None,), "string"),
        )
        return blocks.unbatch()
    is_zipped = is_gzipped(path)
    lines = tf.data.TextLineDataset(str(path), "GZIP" if is_zipped else None)
    mark = BYTE_ORDER_MARK.encode()
    with gzip.open(path) if is_zipped else open(path, "rb") as file:
        if file.read(len(mark)) != mark:
            return lines
    first = lines.take(1).map(lambda x: tf.strings.substr(x, len(mark), -1))
    return first.concatenate(lines.skip(1))


def _blocks(lines):
    """Yields lists of lines, each of which costs TensorFlow one call of Python."""
    while block := list(itertools.islice(lines, 1024)):
        yield block


def paired_files(source_files: Paths, target_files: Paths) -> list[tuple[Path, Path]]:
    """Returns each source file with the target file that translates it."""
    sources, targets = as_paths(source_files), as_paths(target_files)
    if not sources or len(sources) != len(targets):
        raise ValueError(
            "`source_files` and `target_files` must name equally many files, each the "
            "translation of its counterpart. "
            f"Received: {len(sources)} and {len(targets)} files."
        )
    return list(zip(sources, targets, strict=True))


def read_pairs(files: Iterable[tuple[Path, Path]]) -> Iterator[SentencePair]:
    """Yields the sentence pairs of pairs of files, holding one pair in memory.

    Errors are as in `check_parallel_files`.
    """
    for file, paths in enumerate(files):
        lines = map(_sentences, paths)
        for pair in itertools.zip_longest(*lines):
            if None in pair:
                longer, shorter = paths if pair[1] is None else reversed(paths)
                number, _ = pair[0] or pair[1]
                raise ValueError(
                    f"{longer}:{number} has no counterpart: {shorter} ends before that "
                    "line. Both sides must have the same number of lines, each the "
                    "translation of the other."
                )
            (number, source), (_, target) = pair
            yield SentencePair(source, target, file, f"{paths[0]}:{number}")


def _sentences(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the numbered lines of a file; raises `ValueError` if one is empty."""
    number = 0
    for number, text in _numbered_lines(path):
        if not text or text.isspace():
            raise ValueError(
                f"{path}:{number} is an empty line. Remove line {number} here and in "
                "the file that translates it."
            )
        yield number, text
    if number == 0:
        raise ValueError(f"{path} is empty. It must hold one sentence a line.")


def check_parallel_files(source_files: Paths, target_files: Paths) -> int:
    """Reads both sides of a parallel corpus once, line by line.

    Args:
        source_files: One path or several, plain or gzipped.
        target_files: As many; the nth translates the nth, line by line.

    Returns:
        The number of sentence pairs.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is a folder, a pipe, empty, not UTF-8 or damaged, if a
            line is empty, or if the sides differ in their numbers of files or lines.
            The message names file and line.
    """
    return sum(1 for _ in read_pairs(paired_files(source_files, target_files)))


def checksum(files: Paths) -> str:
    """Returns a checksum of the contents of files, in their order."""
    checksum = 0
    for path in as_paths(files):
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
