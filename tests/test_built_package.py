"""The sdist and the wheel hold what they should, and the wheel runs by itself."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

import keras_transformer
from keras_transformer.version import DISTRIBUTION

ROOT = Path(__file__).parents[1]
VERSION = keras_transformer.__version__
NAME = f"{DISTRIBUTION.replace('-', '_')}-{VERSION}"
SOURCE_URL = "https://example.org/project/blob/v1"
# What lies in a checkout beside its files: environments, caches, builds and runs.
NOT_OURS = [".*", "*.egg-info", "build", "dist", "runs"]


def run(*command, **options):
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def files_of(folder):
    """The files in a folder of the checkout, without compiled ones."""
    paths = (ROOT / folder).rglob("*")
    files = {path.relative_to(ROOT).as_posix() for path in paths if path.is_file()}
    return {name for name in files if "__pycache__" not in name}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Folder of an sdist, and of a wheel that is built from it."""
    folder = tmp_path_factory.mktemp("built")

    def left_out(where, names):
        patterns = NOT_OURS if Path(where) == ROOT else ["__pycache__"]
        return shutil.ignore_patterns(*patterns)(where, names)

    # A build writes to the folder that it builds from.
    shutil.copytree(ROOT, folder / "source", ignore=left_out)
    run(
        *(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist"),
        cwd=folder / "source",
        env=os.environ | {"SOURCE_URL": SOURCE_URL},
    )
    return folder / "dist"


@pytest.fixture(scope="module")
def wheel(built):
    return built / f"{NAME}-py3-none-any.whl"


@pytest.fixture(scope="module")
def contents(wheel):
    """The files of the wheel, by name."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def metadata(contents):
    return message_from_bytes(contents[f"{NAME}.dist-info/METADATA"])


def test_the_wheel_holds_the_package_and_nothing_else(contents):
    expected = files_of("keras_transformer")
    described = {name for name in contents if name.startswith(f"{NAME}.dist-info/")}
    assert set(contents) - described == expected
    assert expected >= {
        "keras_transformer/py.typed",
        "keras_transformer/plots/page.html",
        "keras_transformer/runs/recipes/demo.yaml",
    }
    assert f"{NAME}.dist-info/licenses/LICENSE" in described


def test_the_sdist_holds_what_its_tests_read(built):
    with tarfile.open(built / f"{NAME}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    kinds = {".md", ".py", ".toml", ".yml"}
    tops = {path.name for path in ROOT.iterdir() if path.suffix in kinds}
    folders = ["benchmarks", "docs", "keras_transformer", "notebooks"]
    folders += ["tests", "tutorials"]
    assert tops.union(*map(files_of, folders)) <= names
    assert not [name for name in names if name.endswith(".pyc")]


def test_the_metadata_says_what_the_package_is(contents, metadata):
    assert (metadata["Name"], metadata["Version"]) == (DISTRIBUTION, VERSION)
    assert metadata["License-Expression"] == "Apache-2.0"
    pattern = r"Programming Language :: Python :: 3\.(\d+)"
    found = [re.fullmatch(pattern, line) for line in metadata.get_all("Classifier")]
    versions = [int(match[1]) for match in found if match]
    assert metadata["Requires-Python"] == f">=3.{versions[0]},<3.{versions[-1] + 1}"
    commands = contents[f"{NAME}.dist-info/entry_points.txt"].decode()
    assert "keras-transformer = keras_transformer.cli:main" in commands


def test_the_links_of_the_description_are_whole(metadata):
    links = re.findall(r"\]\(([^)]+)\)", metadata.get_payload())
    assert all(link.startswith("https://") for link in links), links
    assert f"{SOURCE_URL}/docs/training.md" in links
    assert f"{SOURCE_URL}/docs/figures/translation.png?raw=true" in links


def test_every_extra_that_is_named_is_one_of_this_package(metadata):
    extras = metadata.get_all("Provides-Extra")
    files = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("tutorials/*.py"),
    ]
    named = set()
    for path in files:
        for listed in re.findall(r'"\.\[([\w,-]+)\]"', path.read_text("utf-8")):
            named |= set(listed.split(","))
    assert named
    assert named <= set(extras)


@pytest.mark.parametrize("extra", ["ctranslate2", "export", "gpu", "hub"])
def test_an_extra_installs_packages(extra, metadata):
    required = metadata.get_all("Requires-Dist")
    assert any(line.endswith(f'extra == "{extra}"') for line in required)


@pytest.mark.slow
def test_the_index_would_take_them(built):
    run(sys.executable, "-m", "twine", "check", "--strict", *built.iterdir())


@pytest.mark.slow
def test_the_wheel_runs_in_a_bare_environment(wheel, tmp_path):
    run(sys.executable, "-m", "venv", tmp_path / "bare")
    python = tmp_path / "bare" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", wheel)
    run(python, "-m", "pip", "check")
    shell = tmp_path / "bare" / "bin" / "keras-transformer"
    readme = (ROOT / "README.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    where = "import keras_transformer; print(keras_transformer.__file__)"
    elsewhere = {"cwd": tmp_path, "env": without_settings()}
    assert str(tmp_path) in run(python, "-c", where, **elsewhere)
    assert "demo" in run(shell, "--help", **elsewhere)
    run(shell, "demo", **elsewhere)
    run(python, "-c", "\n".join(blocks).replace("epochs=10", "epochs=1"), **elsewhere)
    assert (tmp_path / "saved_models" / "demo" / "1" / "saved_model.pb").is_file()


def without_settings():
    """The environment without this checkout, and without the settings of its tests."""
    ours = ("PYTHONPATH", "XLA_FLAGS", "TF_NUM_", "OMP_NUM_", "KERAS_BACKEND")
    return {name: x for name, x in os.environ.items() if not name.startswith(ours)}
