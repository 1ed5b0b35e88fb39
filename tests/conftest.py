"""Fixtures for tests that want real data."""

import os
from pathlib import Path

import pytest

# Run by tests as programs of their own; importing them here would act.
collect_ignore = ["serving/c_interface.py", "serving/fresh_process.py"]

REPOSITORY = Path(__file__).parents[1]
VARIABLE = "KERAS_TRANSFORMER_MULTI30K"


@pytest.fixture(scope="session")
def multi30k():
    """Folder of the Multi30k corpus; skips the test where there is none."""
    folder = Path(os.environ.get(VARIABLE, REPOSITORY / "../shared/data/multi30k"))
    if not folder.is_dir():
        pytest.skip(f"No Multi30k in {folder}: name its folder in {VARIABLE}.")
    return folder.resolve()
