"""Whatever is typed, the shell answers in a line and never with a traceback."""

import os

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from small_corpus import SETTINGS, write_corpus, write_recipe
from typer.testing import CliRunner

from keras_transformer.cli import app
from keras_transformer.cli.evaluate import files_of_recipe, read_text

# All that need a file; `demo` needs none, and would train.
SHELL = typer.main.get_command(app).commands
COMMANDS = [
    *([name] for name in SHELL if name not in ("demo", "plot")),
    *(["plot", name] for name in SHELL["plot"].commands),
]


def params(command):
    found = SHELL
    for name in command[:-1]:
        found = found[name].commands
    return found[command[-1]].params


def options(command):
    return [word for param in params(command) for word in param.opts]


VALUES = st.one_of(
    st.integers().map(str),
    st.floats().map(str),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=11),
    st.sampled_from(["", "-", "--", "-1", "0", ".", "/", "no/such.keras", "\0"]),
)


@pytest.fixture(scope="module", autouse=True)
def empty_folder(tmp_path_factory):
    """Where the shell runs, so that no name that is typed is that of a file."""
    before = os.getcwd()
    folder = tmp_path_factory.mktemp("empty")
    os.chdir(folder)
    yield folder
    os.chdir(before)


@pytest.mark.quick("evaluate", "plot attention")
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@settings(max_examples=30)
@given(data=st.data())
def test_no_arguments_bring_a_traceback(command, empty_folder, data):
    words = st.one_of(VALUES, st.sampled_from(options(command)))
    typed = data.draw(st.lists(words, max_size=7))
    result = CliRunner().invoke(app, [*command, *typed], input="")
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert result.exit_code in (0, 1, 2)
    if result.exit_code == 1:
        assert len(result.stderr.splitlines()) == 1
    if result.exit_code == 0:  # a recipe that `init` wrote
        for path in empty_folder.iterdir():
            path.unlink()
    assert not any(empty_folder.iterdir()), "a call that failed left a file"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_swallows_nothing_of_what_is_written(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    shown = CliRunner().invoke(app, [*command, "--help"]).stdout.replace("`", "")
    shown = " ".join(shown.split())
    for param in params(command):
        assert " ".join((param.help or "").replace("`", "").split()) in shown


def test_references_are_tokenized_if_the_files_for_it_are_missing(tmp_path):
    write_corpus(tmp_path)
    path, written = tmp_path / "small.yaml", tmp_path / "val.tok"
    values = {**SETTINGS["data"]["test"], "tokenized": written.name}
    write_recipe(path, {"data": {**SETTINGS["data"], "test": values}})
    (tmp_path / "val.bb").write_text("Ein Hund (braun) läuft.\n" * 7, "utf-8")

    def references():
        *files, _ = files_of_recipe("no/run", str(path), "test", tmp_path)
        return read_text(*files)[2]

    assert references() == ["ein hund ( braun ) läuft ."] * 7
    written.write_text("was geschrieben steht\n" * 7, "utf-8")
    assert references() == ["was geschrieben steht"] * 7
