"""The order of the tests, and fixtures for those that want real data."""

import os
from pathlib import Path

import pytest

# Run by tests as programs of their own; importing them here would act.
collect_ignore = ["serving/c_interface.py", "serving/fresh_process.py"]

REPOSITORY = Path(__file__).parents[1]
VARIABLE = "KERAS_TRANSFORMER_MULTI30K"

# The files that take longest come first, so that workers end about together.
LONG = [
    "test_distribution.py",
    "test_multi_worker.py",
    "test_tutorials.py",
    "test_saved_model.py",
    "test_shell.py",
    "test_language_model.py",
    "test_transformer.py",
    "test_transformer_positions.py",
    "test_runner.py",
]


def pytest_collection_modifyitems(items):
    places = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONG)))


@pytest.fixture(scope="session")
def multi30k():
    """Folder of the Multi30k corpus; skips the test where there is none."""
    folder = Path(os.environ.get(VARIABLE, REPOSITORY / "../shared/data/multi30k"))
    if not folder.is_dir():
        pytest.skip(f"No Multi30k in {folder}: name its folder in {VARIABLE}.")
    return folder.resolve()
