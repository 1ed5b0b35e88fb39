import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import keras_transformer

ROOT = Path(__file__).parents[1]
SUBMODULES = sorted(set(keras_transformer.__all__) - {"Translator", "__version__"})


def run_python(*arguments):
    """Runs a Python of its own, in which nothing is imported yet."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        text=True,
    )


def test_importing_the_package_loads_neither_keras_nor_tensorflow():
    code = "import sys, keras_transformer; print(*sys.modules)"
    process = run_python("-W", "error", "-c", code)
    assert process.returncode == 0, process.stderr
    roots = {name.partition(".")[0] for name in process.stdout.split()}
    assert "keras_transformer" in roots
    assert not roots & {"keras", "matplotlib", "numpy", "tensorflow"}


@pytest.mark.parametrize("name", SUBMODULES)
def test_naming_a_submodule_loads_it(name, monkeypatch):
    module = importlib.import_module(f"keras_transformer.{name}")
    monkeypatch.delattr(keras_transformer, name)  # as if it were not loaded yet
    assert getattr(keras_transformer, name) is module


def test_translator_is_a_name_of_the_package():
    from keras_transformer.translator import Translator

    assert keras_transformer.Translator is Translator


def test_dir_lists_what_loads_lazily():
    assert set(keras_transformer.__all__) <= set(dir(keras_transformer))


def test_unknown_attribute_is_an_attribute_error():
    message = "module 'keras_transformer' has no attribute 'transformers'"
    with pytest.raises(AttributeError, match=message):
        _ = keras_transformer.transformers


def test_setup_reads_the_version_of_the_package():
    process = run_python("setup.py", "--version")
    assert process.stdout.split()[-1] == keras_transformer.__version__, process.stderr


def test_changelog_speaks_of_this_version():
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert f"## [{keras_transformer.__version__}]" in changelog


def test_the_shell_command_exists():
    from keras_transformer.cli import main

    assert callable(main)
