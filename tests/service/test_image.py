"""The image of the Dockerfile has what a service with CTranslate2 needs."""

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"{name} is not in the image", name=name)

sys.meta_path.insert(0, Absent())
sys.orig_argv = ["keras_transformer.cli"]
import keras_transformer.cli
import keras_transformer.service.draining
from keras_transformer.documents.translation import FORMATS, read_document
from keras_transformer.interop.ctranslate2_translator import CTranslate2Translator
from keras_transformer.service.libretranslate import _detected

assert _detected("Ein Hund.", ("en", "de"))[0]["language"] == "de"
for name, (reader, _) in FORMATS.items():
    if reader:
        __import__(f"keras_transformer.documents.{reader.split('.')[0]}")
print(sorted(set(sys.modules) & {"keras", "tensorflow"}))
"""


def with_requirements(names):
    """Returns distributions, and those that they require without extras."""
    found, waiting = set(), list(names)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name not in found:
            found.add(name)
            required = importlib.metadata.requires(name) or ()
            required = [x for x in required if "extra ==" not in x and "sys_" not in x]
            installed = [re.match(r"[\w.-]+", x)[0] for x in required]
            waiting += [x for x in installed if is_installed(x)]
    return found


def is_installed(name):
    try:
        return bool(importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return False


def test_a_service_imports_nothing_that_the_image_lacks():
    pytest.importorskip("ctranslate2")
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    (line,) = re.findall("RUN pip install --no-cache-dir ((?!--).*)", text)
    names = line.split()
    setup = (ROOT / "setup.py").read_text()
    assert all(re.search(rf'["\']{re.escape(name)}[>=~]', setup) for name in names)
    there = with_requirements(names)
    absent = {
        module
        for module, owners in importlib.metadata.packages_distributions().items()
        if not there & {re.sub(r"[-_.]+", "-", owner).lower() for owner in owners}
    } - {"keras_transformer", "_distutils_hack"}
    assert "tensorflow" in absent
    program = f"ABSENT = {absent!r}\n{PROGRAM}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"
