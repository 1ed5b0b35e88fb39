import importlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet

import keras_transformer
from keras_transformer import checks

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


IMPORTS = """
import importlib
import json
import pkgutil
import sys

import keras_transformer
found = {"modules": list(sys.modules)}

import keras
before = set(keras.saving.get_custom_objects())

import keras_transformer.datasets
found["modules of data"] = list(sys.modules)

for module in pkgutil.walk_packages(keras_transformer.__path__, "keras_transformer."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
added = set(keras.saving.get_custom_objects()) - before
found["registered"] = len(before)
found["forgotten"] = [name for name in added if name.startswith("keras_transformer>")]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def imports():
    """What a fresh process finds as it imports one part after the other.

    In this one, other tests may have imported anything.
    """
    process = run_python("-c", IMPORTS)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@pytest.mark.slow
def test_importing_the_package_loads_no_text_plots_or_shell(imports):
    modules = set(imports["modules"])
    assert "keras_transformer.models.transformer" in modules
    lazy = {"cli", "datasets", "plots", "runs", "serving", "text", "translator"}
    assert not modules & {f"keras_transformer.{name}" for name in lazy}
    assert not modules & {"sacrebleu", "tensorflow_text", "typer"}


def test_the_shell_answers_before_it_loads_keras():
    code = (
        "import sys; sys.argv = ['/bin/keras-transformer', '--help'];"
        "import keras_transformer.cli; print(*sys.modules)"
    )
    modules = set(run_python("-c", code).stdout.split())
    assert "keras_transformer.cli.translate" in modules
    assert not modules & {"keras", "matplotlib", "numpy", "tensorflow"}


@pytest.mark.slow
def test_commands_load_no_packages_that_only_galleries_of_keras_need():
    code = (
        "import sys; sys.argv = ['/bin/keras-transformer'];"
        "from keras_transformer.cli.loading import load_tensorflow;"
        "load_tensorflow(); print(*sys.modules);"
        "import matplotlib"  # as plots do afterwards
    )
    process = run_python("-c", code)
    assert process.returncode == 0, process.stderr
    modules = set(process.stdout.split())
    assert "keras" in modules
    assert not modules & {"IPython", "matplotlib", "sklearn"}


@pytest.mark.slow
def test_importing_the_data_loads_neither_babel_nor_sentencepiece(imports):
    assert "keras_transformer.datasets" in imports["modules of data"]
    assert not {"babel", "sentencepiece"} & set(imports["modules of data"])


@pytest.mark.slow
def test_importing_the_package_registers_every_class(imports):
    assert imports["registered"] > 30
    assert imports["forgotten"] == []


@pytest.mark.parametrize("name", SUBMODULES)
def test_naming_a_submodule_loads_it(name, monkeypatch):
    module = importlib.import_module(f"keras_transformer.{name}")
    # As if it were not loaded yet.
    monkeypatch.delattr(keras_transformer, name)
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


def test_a_release_says_that_it_is_on_the_package_index(tmp_path):
    text = (ROOT / ".github" / "workflows" / "publish.yml").read_text("utf-8")
    (script,) = (
        step["run"]
        for step in yaml.safe_load(text)["jobs"]["build"]["steps"]
        if step.get("name") == "Say that the package is on the index"
    )
    (tmp_path / "keras_transformer").mkdir()
    for name in ("README.md", "keras_transformer/version.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    subprocess.run(["bash", "-ec", script], cwd=tmp_path, check=True)
    version = runpy.run_path(str(tmp_path / "keras_transformer" / "version.py"))
    name = version["DISTRIBUTION"]
    assert version["INSTALL"].format(extra="hub") == f'pip install "{name}[hub]"'
    readme = (tmp_path / "README.md").read_text("utf-8")
    assert f"`pip install {name}` installs the latest release." in readme
    assert "not on the package index" not in readme
    assert "unreleased" not in readme


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == keras_transformer.__version__


def test_the_tested_versions_are_those_that_setup_allows():
    setup = (ROOT / "setup.py").read_text("utf-8")
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    table = re.findall(r"^\| (.+) \| ([\d., ]+) \| `(.+)` \|$", page, re.MULTILINE)
    rows = {name: (tested.split(", "), allowed) for name, tested, allowed in table}
    assert set(rows) == {
        "Python",
        "TensorFlow",
        "TensorFlow Text",
        "Keras",
        "Keras on Python 3.10",
    }
    for name, (tested, allowed) in rows.items():
        package = name.partition(" on ")[0].lower().replace(" ", "-")
        required = (
            f'python_requires="{allowed}"' if name == "Python" else package + allowed
        )
        assert required in setup
        assert all(version in SpecifierSet(allowed) for version in tested)
    assert rows["Python"][0] == re.findall(r"Python :: (3\.\d+)", setup)


def test_the_shell_command_exists():
    from keras_transformer.cli import main

    assert callable(main)


@pytest.mark.quick(
    "os.environ['KERAS_BACKEND'] = 'ten", "sys.version_info = (3, 9); sys.ver"
)
@pytest.mark.parametrize(
    ("before", "message"),
    [
        (
            "os.environ['KERAS_BACKEND'] = 'tensorlow'",
            "ValueError: `KERAS_BACKEND` must be tensorflow, jax or torch. "
            "Received: KERAS_BACKEND=tensorlow.",
        ),
        (
            "os.environ['KERAS_BACKEND'] = 'tensorflow';"
            "sys.modules['tensorflow'] = None",
            "ImportError: Keras's backend needs the package tensorflow, which is not "
            "installed. Install it, or choose another backend by the environment "
            "variable KERAS_BACKEND: tensorflow, jax or torch.",
        ),
        (
            "sys.version_info = (3, 9); sys.version = '3.9.18 (main)'",
            "ImportError: keras_transformer needs Python 3.10 to 3.13. This is Python "
            "3.9.18.",
        ),
    ],
)
def test_what_python_or_keras_lacks_is_told_in_the_last_line(before, message):
    process = run_python("-c", f"import os, sys; {before}; import keras_transformer")
    assert process.stderr.splitlines()[-1] == message


@pytest.mark.parametrize("package", ["tensorflow", "tensorflow_text"])
def test_without_tensorflow_a_message_says_what_there_is(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    needs = checks.needs_tensorflow("`kt.text`")
    message = f"`kt.text` needs the package {package}, .* Without it, layers"
    with pytest.raises(ImportError, match=message), needs:
        importlib.import_module(package)
