"""Crash-safe writing: files and folders appear complete or not at all.

Unfinished files are in a folder named `.unfinished-...`, beside where they will appear.
A process that is killed may leave it behind: see `remove_unfinished`.
"""

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

_UNFINISHED = ".unfinished-"
LOCK = ".lock"


@contextlib.contextmanager
def replace_file(path: str | os.PathLike) -> Iterator[Path]:
    """Replaces a file by what the block writes, once that is on disk.

    The block gets the path to write to, which has the same name. The folder is created
    if missing. If the block raises an error, or the process is killed, the file stays
    as it was. `write_text` shows its use. Pipes, /dev/stdout and the like are written
    to directly; for a symbolic link, the file it points to is replaced.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        yield path
        return
    path = path.resolve()
    with replace_files(path.parent) as unfinished:
        yield unfinished / path.name


@contextlib.contextmanager
def replace_files(folder: str | os.PathLike) -> Iterator[Path]:
    """Moves the files that the block writes into a folder, once all are on disk.

    The block gets an empty folder to write to. Its files replace files of the same
    name, in the order of their names: a reader that finds the last one finds all of
    them. The folder is created if missing; its other files stay.
    """
    folder = Path(folder)
    with _temporary_folder(folder) as unfinished:
        yield unfinished
        paths = sorted(unfinished.iterdir())
        for path in paths:
            _flush(path)
        for path in paths:
            os.replace(path, folder / path.name)
        _flush(folder)


@contextlib.contextmanager
def create_folder(path: str | os.PathLike) -> Iterator[Path]:
    """Creates a folder that appears under its name once the block has filled it.

    The block gets an empty folder to write to. `path` must be missing or empty.
    """
    path = Path(path)
    with _temporary_folder(path.parent) as unfinished:
        yield unfinished
        for written in unfinished.rglob("*"):
            _flush(written)
        _flush(unfinished)
        os.rename(unfinished, path)
        _flush(path.parent)


@contextlib.contextmanager
def locked(folder: str | os.PathLike, waits: bool = False) -> Iterator[None]:
    """Lets one process at a time work in a folder, which is created if missing.

    Args:
        folder: The folder, in which the file `.lock` stays.
        waits: Whether to wait for another process, rather than to raise an error.

    Raises:
        BlockingIOError: If another process works there.
    """
    from filelock import FileLock, Timeout  # most commands lock nothing

    Path(folder).mkdir(parents=True, exist_ok=True)
    lock = FileLock(Path(folder, LOCK), timeout=-1 if waits else 0)
    try:
        lock.acquire()
    except Timeout:
        raise BlockingIOError(
            f"Another process is writing to {folder}. Wait for it, or choose another "
            "folder."
        ) from None
    except NotImplementedError:
        pass  # a file system without locks
    try:
        yield
    finally:
        lock.release()


def is_unfinished(path: Path) -> bool:
    """Returns whether this is left over from a killed process."""
    return path.name.startswith(_UNFINISHED)


def remove_unfinished(folder: str | os.PathLike) -> None:
    """Removes what killed processes left in a folder, while no other writes there."""
    for leftover in Path(folder).glob(f"{_UNFINISHED}*"):
        shutil.rmtree(leftover, ignore_errors=True)


def names_in(folder: str | os.PathLike, most: int = 10) -> str:
    """Returns the names of the files in a folder for a message, or `"nothing"`."""
    names = sorted(path.name for path in Path(folder).glob("*"))
    more = ["..."] if len(names) > most else []
    return ", ".join(names[:most] + more) or "nothing"


def write_text(path: str | os.PathLike, text: str) -> None:
    """Writes a UTF-8 file by `replace_file`, with line ends as they are."""
    with replace_file(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8", newline="")


@contextlib.contextmanager
def _temporary_folder(parent):
    # Not the number of the process: in a container each one may be number 1.
    unfinished = parent / f"{_UNFINISHED}{uuid.uuid4().hex}"
    try:
        unfinished.mkdir(parents=True)
    except OSError as error:  # names the unfinished folder, which nobody knows
        raise type(error)(error.errno, error.strerror, str(parent)) from None
    try:
        yield unfinished
    except OSError as error:
        is_own = error.filename2 is None and str(unfinished) in str(error.filename)
        if error.errno is None or not (error.filename is None or is_own):
            raise
        # Without a file name, as when the disk is full, or with one that nobody knows.
        raise type(error)(error.errno, error.strerror, str(parent)) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _flush(path):
    """Waits until a file or folder is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
