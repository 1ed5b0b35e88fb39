"""Loading saved models in a fresh process."""

import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import training
from keras_transformer.models import LanguageModel

ROOT = Path(__file__).parents[2]
IDS = np.array([[2, 5, 3, 0], [2, 4, 6, 3]], "int32")

PROGRAM = """
import sys

{imports}
import numpy as np

path, ids, outputs = sys.argv[1:]
model = keras.saving.load_model(path)
assert type(model) is keras_transformer.models.LanguageModel
assert type(model.optimizer) is keras_transformer.training.Adam
assert type(model.loss) is keras_transformer.training.TokenCrossentropy
np.save(outputs, keras.ops.convert_to_numpy(model(np.load(ids))))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "imports",
    [
        "import keras\nimport keras_transformer",
        "import keras_transformer\nimport keras",
        "import keras_transformer.layers.stack\nimport keras",
    ],
    ids=["keras first", "keras_transformer first", "one module first"],
)
def test_importing_the_package_is_enough_to_load_a_compiled_model(imports, tmp_path):
    model = LanguageModel(
        7, num_layers=1, hidden_dim=4, num_heads=2, intermediate_dim=5
    )
    model.compile(
        training.Adam(training.InverseSquareRootSchedule(4)),
        training.TokenCrossentropy(label_smoothing=0.1),
        metrics=[training.TokenAccuracy(), training.Perplexity()],
    )
    model.optimizer.build(model.trainable_variables)
    model.save(tmp_path / "model.keras")
    np.save(tmp_path / "ids.npy", IDS)
    files = [tmp_path / name for name in ("model.keras", "ids.npy", "outputs.npy")]
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(imports=imports), *files],
        capture_output=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": keras.backend.backend()},
        text=True,
    )
    assert process.returncode == 0, process.stderr
    expected = ops.convert_to_numpy(model(IDS))
    np.testing.assert_allclose(np.load(files[-1]), expected, 1e-6, 1e-6)
