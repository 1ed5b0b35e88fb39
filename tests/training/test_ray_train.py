"""Two workers of Ray Train learn what one process does."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from training.ray_train import fit


@pytest.mark.slow
@pytest.mark.needs_tensorflow
def test_two_workers_of_ray_learn_what_one_process_does(tmp_path):
    pytest.importorskip("ray.train")
    program = Path(__file__).with_name("ray_train.py")
    command = [sys.executable, str(program), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    fit(tmp_path / "alone.json")
    found, expected = (
        json.loads((tmp_path / f"{name}.json").read_text()) for name in ("ray", "alone")
    )
    assert (found["replicas"], expected["replicas"]) == (2, 1)
    for weights, others in zip(found["weights"], expected["weights"], strict=True):
        np.testing.assert_allclose(weights, others, rtol=0, atol=3e-6)
