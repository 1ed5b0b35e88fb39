"""What the originals gave: the files that are kept, or files written now."""

import os
import subprocess
import tarfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent
VARIABLE = "KERAS_TRANSFORMER_ORIGINALS"


@pytest.fixture(scope="session")
def originals(tmp_path_factory):
    """Folder of what `make_fixtures.py` wrote, a folder within it for each archive.

    If the variable names a Python with PyTorch and transformers, that writes them anew.
    """
    folder, archives = tmp_path_factory.mktemp("originals"), HERE / "fixtures"
    if python := os.environ.get(VARIABLE):
        archives = folder
        subprocess.run([python, HERE / "make_fixtures.py", folder], check=True)
    for path in archives.glob("*.tar.xz"):
        with tarfile.open(path) as archive:
            archive.extractall(folder / path.name.split(".")[0], filter="data")
    return folder
