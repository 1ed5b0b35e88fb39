"""What all tests share: how little they compile, and real data."""

import gc
import os
from pathlib import Path

import pytest

# Most tests trace and compile far more than they compute: optimising costs more than
# it saves, so do threads beside those of another worker, and looking for garbage
# among the many objects of a graph.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
)
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
gc.set_threshold(100_000, 20, 20)

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
