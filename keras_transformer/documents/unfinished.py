"""Translations that are kept beside an output until it is complete."""

import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path


class Journal:
    """A file that translations are appended to, one a line.

    Those for another `question` than what is translated now, and how, are removed, and
    so is a line that a killed process has not completed.
    """

    def __init__(self, file, question: str):
        self._file, self.count = file, -1
        file.seek(0)
        size = 0
        for line in file:
            is_whole = line.endswith(b"\n")
            if not is_whole or (self.count < 0 and json.loads(line) != question):
                break
            size += len(line)
            self.count += 1
        file.truncate(size)
        if self.count < 0:
            self.append([question])

    def append(self, lines: Iterable) -> None:
        """Writes translations, each a line of JSON, and counts them."""
        written = [f"{json.dumps(line)}\n".encode() for line in lines]
        self._file.seek(0, os.SEEK_END)
        self._file.writelines(written)
        self._file.flush()
        self.count += len(written)

    def __iter__(self) -> Iterator:
        """Yields the translations."""
        self._file.seek(0)
        next(self._file)
        yield from map(json.loads, self._file)


@contextlib.contextmanager
def journal(output: Path | None, question: str) -> Iterator[Journal]:
    """Opens the journal of an output, which is removed once the block has ended.

    If the block raises an error, the journal stays if it holds translations. Without an
    output, or for one that is no file, such as a pipe, it is a temporary file.
    """
    if output is None or (output.exists() and not output.is_file()):
        with tempfile.TemporaryFile() as file:
            yield Journal(file, question)
        return
    path = output.with_name(f"{output.name}.unfinished")
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"{output} is being written by another process. Wait for its end, or "
                "name another output."
            ) from None
        except OSError:
            pass  # a file system without locks
        kept = None
        try:
            kept = Journal(file, question)
            yield kept
        except BaseException:
            if kept is None or kept.count == 0:
                path.unlink(missing_ok=True)
            raise
        path.unlink()
