import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "tutorial", sorted((ROOT / "tutorials").glob("*.py")), ids=lambda path: path.stem
)
def test_the_tutorial_runs_to_its_end(tutorial, tmp_path):
    small = {
        "TUTORIAL_EPOCHS": "1",
        "TUTORIAL_PHRASES": "4000",
        "TUTORIAL_FOLDER": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        [sys.executable, tutorial],
        env=os.environ | small,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
