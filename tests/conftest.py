"""The order of the tests, and the fixture of a corpus of real text."""

import gc
import os
from pathlib import Path

import pytest

# Programs that tests run in other processes; pytest must not import them.
collect_ignore = ["serving/c_interface.py", "serving/fresh_process.py"]

REPOSITORY = Path(__file__).parents[1]
VARIABLE = "KERAS_TRANSFORMER_MULTI30K"

# These files run first, so that all workers finish at about the same time.
SLOWEST_FILES = [
    "test_distribution.py",
    "test_multi_worker.py",
    "test_tutorials.py",
    "test_exports.py",
    "test_older_files.py",
    "test_readme.py",
    "test_saved_model.py",
    "test_shell.py",
    "test_language_model.py",
    "test_transformer.py",
    "test_transformer_positions.py",
    "test_runner.py",
]


def pytest_collection_modifyitems(items):
    order = {name: i for i, name in enumerate(SLOWEST_FILES)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))


@pytest.fixture(scope="session")
def multi30k():
    """Folder of the Multi30k corpus; skips the test if it is missing."""
    folder = Path(os.environ.get(VARIABLE, REPOSITORY / "../shared/data/multi30k"))
    if not folder.is_dir():
        pytest.skip(f"Multi30k is not in {folder}: set {VARIABLE} to its folder.")
    return folder.resolve()


@pytest.fixture
def few_objects_to_collect():
    """Keras collects all garbage of the process for each layer that it quantises."""
    gc.freeze()
    yield
    gc.unfreeze()
