"""Text files: read line by line, plain or gzipped, and checked before training."""

import gzip
import itertools
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

Paths = str | os.PathLike | Iterable[str | os.PathLike]


def as_paths(files: Paths) -> list[Path]:
    """Returns one path or several as a list of `Path`s."""
    if isinstance(files, (str, os.PathLike)):
        files = [files]
    return [Path(file) for file in files]


def is_gzipped(path: Path) -> bool:
    """Tells by its first two bytes whether a file is gzipped."""
    with open(path, "rb") as file:
        return file.read(2) == b"\x1f\x8b"


def read_lines(path: str | os.PathLike) -> Iterator[str]:
    """Yields the lines of a plain or gzipped UTF-8 file, one in memory at a time.

    Lines end at a line feed alone, as they do for `tf.data.TextLineDataset`;
    line ends are left out.

    Args:
        path: A text file; gzip is recognised by its first bytes.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the path is a folder, the gzip data are damaged or cut
            short, or a line is not UTF-8.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder; a text file is needed.")
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist.")
    number = 0
    with gzip.open(path) if is_gzipped(path) else open(path, "rb") as file:
        try:
            for number, line in enumerate(file, start=1):
                yield line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}:{number} is not UTF-8 ({error.reason} at byte "
                f"{error.start + 1} of the line); convert the file, for example "
                f"with iconv."
            ) from None
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(
                f"{path}: the gzip data are damaged or cut short after line "
                f"{number} ({error}); make or fetch the file again."
            ) from None


def numbered_lines(paths: list[Path]) -> Iterator[tuple[str, str]]:
    """Yields `("file:line", text)` over several files, as one run of lines."""
    for path in paths:
        number = 0
        for number, line in enumerate(read_lines(path), start=1):
            yield f"{path}:{number}", line
        if number == 0:
            raise ValueError(f"{path} is empty; it must hold one sentence a line.")


def parallel_lines(
    source_files: Paths, target_files: Paths
) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Yields pairs of `("file:line", text)`, and raises where they are no pairs."""
    sources, targets = as_paths(source_files), as_paths(target_files)
    end = None
    pairs = itertools.zip_longest(numbered_lines(sources), numbered_lines(targets))
    for source, target in pairs:
        if source is end or target is end:
            place, side = (
                (target[0], sources) if source is end else (source[0], targets)
            )
            raise ValueError(
                f"{', '.join(map(str, side))} ends before {place}: both sides must "
                f"have the same number of lines."
            )
        for place, line in (source, target):
            if not line.strip():
                raise ValueError(
                    f"{place} is empty; remove the line here and in the other side."
                )
        yield source, target


def check_parallel_files(source_files: Paths, target_files: Paths) -> int:
    """Reads both sides of a parallel corpus once, and returns the number of pairs.

    Raises:
        FileNotFoundError, ValueError: With the file and, where there is one, the
            number of the line that is wrong.
    """
    return sum(1 for _ in parallel_lines(source_files, target_files))
