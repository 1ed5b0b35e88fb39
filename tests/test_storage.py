import contextlib
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from keras_transformer import storage

OLD, NEW = "old\r\n", "new: ä\n"


def contents(folder):
    """The text of every file in a folder, by its name."""
    return {
        str(path.relative_to(folder)): path.read_bytes().decode("utf-8")
        for path in folder.rglob("*")
        if path.is_file()
    }


def write_file(folder):
    with storage.replace_file(folder / "a.txt") as unfinished:
        yield unfinished
        unfinished.write_text(NEW, "utf-8")
        yield unfinished


def write_files(folder):
    with storage.replace_files(folder) as unfinished:
        yield unfinished
        for name in ("b.txt", "a.txt"):
            (unfinished / name).write_text(NEW, "utf-8")
        yield unfinished


def write_folder(folder):
    with storage.create_folder(folder / "sub") as unfinished:
        yield unfinished
        (unfinished / "deep").mkdir()
        (unfinished / "deep" / "a.txt").write_text(NEW, "utf-8")
        yield unfinished


# What each leaves in a folder that holds the file a.txt.
WRITERS = {
    write_file: {"a.txt": NEW},
    write_files: {"a.txt": NEW, "b.txt": NEW},
    write_folder: {"a.txt": OLD, os.path.join("sub", "deep", "a.txt"): NEW},
}
every_writer = pytest.mark.parametrize("writer", WRITERS)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.txt").write_bytes(OLD.encode())
    return tmp_path


@every_writer
def test_nothing_changes_before_the_end_and_nothing_else_remains(writer, folder):
    steps = writer(folder)
    for _ in range(2):
        unfinished = next(steps)
        assert (folder / "a.txt").read_bytes() == OLD.encode()
        assert not (folder / "b.txt").exists()
        assert not (folder / "sub").exists()
        assert unfinished.relative_to(folder).parts[0].startswith(".")
    assert next(steps, None) is None
    assert contents(folder) == WRITERS[writer]
    assert not unfinished.exists()


def test_what_is_no_file_is_written_to_and_a_link_stays(folder):
    (folder / "link.txt").symlink_to("a.txt")
    storage.write_text(folder / "link.txt", NEW)
    assert (folder / "link.txt").is_symlink()
    assert (folder / "a.txt").read_text("utf-8") == NEW
    reader, writer = os.pipe()
    for path in (f"/dev/fd/{writer}", os.devnull):
        storage.write_text(path, NEW)
    assert os.read(reader, 99).decode() == NEW
    assert Path(os.devnull).is_char_device()
    for descriptor in (reader, writer):
        os.close(descriptor)


@every_writer
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_leaves_the_folder_as_it_was(writer, step, error, folder):
    steps = writer(folder)
    for _ in range(step):
        next(steps)
    with pytest.raises(error):
        steps.throw(error("in the block"))
    assert [path.name for path in folder.iterdir()] == ["a.txt"]
    assert contents(folder) == {"a.txt": OLD}


@contextlib.contextmanager
def full_disk():
    """Lets every write beyond two bytes of a file fail."""
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2, unlimited[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)


@every_writer
def test_a_full_disk_leaves_the_folder_as_it_was(writer, folder):
    with full_disk(), pytest.raises(OSError, match="File too large"):
        list(writer(folder))
    assert [path.name for path in folder.iterdir()] == ["a.txt"]
    assert contents(folder) == {"a.txt": OLD}


@every_writer
@pytest.mark.parametrize("failing", range(5))
def test_nothing_is_in_place_before_all_of_it_is_on_disk(
    writer, failing, folder, monkeypatch
):
    """Each call of `fsync` fails in turn, as it does when a disk is found full late."""
    calls = []

    def fsync(descriptor):
        calls.append(descriptor)
        if len(calls) > failing:
            raise OSError("no space")

    is_in_place = []
    for name in ("replace", "rename"):
        move = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *paths, move=move: (is_in_place.append(1), move(*paths))
        )
    monkeypatch.setattr(os, "fsync", fsync)
    with contextlib.suppress(OSError):
        list(writer(folder))
    if not is_in_place:
        assert len(calls) == failing + 1
        assert contents(folder) == {"a.txt": OLD}
    else:
        assert contents(folder) == WRITERS[writer]
        # What was written is flushed before the move, the folder after it.
        assert len(calls) == {write_file: 2, write_files: 3, write_folder: 4}[writer]


WRITE_WITHOUT_END = """
import itertools, sys
from keras_transformer import storage

for number in itertools.count(1):
    with storage.{name}(sys.argv[1] + {end!r}) as unfinished:
        path = unfinished{file}
        with open(path, "wb") as file:
            for _ in range(1000):
                file.write(b"%09d" % number * 100)
    print(number, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "end", "file"),
    [("replace_file", "/a.txt", ""), ("replace_files", "", " / 'a.txt'")],
)
def test_a_kill_while_writing_leaves_a_complete_file(name, end, file, folder):
    program = WRITE_WITHOUT_END.format(name=name, end=end, file=file)
    process = subprocess.Popen(
        [sys.executable, "-c", program, folder],
        cwd=Path(__file__).parents[1],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        saved = [int(process.stdout.readline()) for _ in range(3)]
        while not any(folder.glob(".unfinished-*")):
            pass
        process.send_signal(signal.SIGKILL)
        saved += map(int, process.stdout)
    text = contents(folder)["a.txt"]
    assert len(text) == 900_000
    # The kill may come after the move and before the print.
    assert text in (f"{number:09d}" * 100_000 for number in (saved[-1], saved[-1] + 1))
    storage.remove_unfinished(folder)
    assert [path.name for path in folder.iterdir()] == ["a.txt"]


def test_only_what_is_unfinished_is_removed(folder):
    leftovers = [next(writer(folder)) for writer in (write_files, write_folder)]
    (folder / ".hidden").write_text("mine")
    for leftover in leftovers:
        leftover.mkdir(exist_ok=True)  # left by a generator that is collected
        (leftover / "half").write_text("half")
    storage.remove_unfinished(folder)
    assert sorted(path.name for path in folder.iterdir()) == [".hidden", "a.txt"]
    storage.remove_unfinished(folder / "missing")


@every_writer
def test_what_another_process_of_the_same_number_left_is_not_in_the_way(writer, folder):
    steps = writer(folder)  # in containers every process may be number 1
    next(steps)
    list(writer(folder))
    steps.close()
    assert contents(folder) == WRITERS[writer]


@pytest.mark.parametrize("name", ["model.keras", "log.csv", "tokenizer", "a.b.yaml"])
def test_the_unfinished_file_has_the_suffix_of_the_file(name, tmp_path):
    with storage.replace_file(tmp_path / "new" / name) as unfinished:
        assert unfinished.suffix == Path(name).suffix
        unfinished.write_text(NEW)
    assert (tmp_path / "new" / name).read_text() == NEW


def test_a_folder_with_files_is_never_replaced(folder):
    list(write_folder(folder))
    before = contents(folder)
    with (
        pytest.raises(OSError, match="not empty"),
        storage.create_folder(folder / "sub") as unfinished,
    ):
        (unfinished / "b.txt").write_text(NEW)
    assert contents(folder) == before
    assert sorted(path.name for path in folder.iterdir()) == ["a.txt", "sub"]


def test_files_are_moved_in_the_order_of_their_names(folder, monkeypatch):
    moved, replace = [], os.replace
    monkeypatch.setattr(
        os, "replace", lambda old, new: (moved.append(new.name), replace(old, new))
    )
    list(write_files(folder))
    assert moved == ["a.txt", "b.txt"]


@pytest.mark.parametrize("text", [OLD, NEW, "", "a\n\rb"])
def test_text_is_written_as_it_is(text, tmp_path):
    storage.write_text(tmp_path / "a.txt", text)
    assert contents(tmp_path) == {"a.txt": text}


def test_an_error_names_the_folder_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError) as caught:
        storage.write_text(tmp_path / "file" / "a.txt", NEW)
    assert caught.value.filename == str(tmp_path / "file")


def test_a_full_disk_is_named(tmp_path):
    with (
        pytest.raises(OSError, match="No space left") as caught,
        storage.replace_file(tmp_path / "a.txt"),
        open("/dev/full", "wb", buffering=0) as full,
    ):
        full.write(b"a")
    assert caught.value.filename == str(tmp_path)


def test_a_message_names_the_first_files_of_a_folder(tmp_path):
    assert storage.names_in(tmp_path) == "nothing"
    for name in "cab":
        (tmp_path / name).touch()
    assert storage.names_in(tmp_path) == "a, b, c"
    assert storage.names_in(tmp_path, most=2) == "a, b, ..."
