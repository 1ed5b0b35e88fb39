"""What `keras.models.load_model` finds in a process that has imported nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
from keras import ops

from keras_transformer import training
from keras_transformer.models import LanguageModel

ROOT = Path(__file__).parents[2]
IDS = np.array([[2, 5, 3, 0], [2, 4, 6, 3]], "int32")

PROGRAM = """
import sys

import keras
import numpy as np

path, ids, outputs = sys.argv[1:]
try:
    keras.models.load_model(path)
except TypeError as error:
    print(str(error).splitlines()[0])

from keras_transformer import models, training

model = keras.models.load_model(path)
assert type(model) is models.LanguageModel
assert type(model.optimizer) is training.Adam
assert type(model.loss) is training.TokenCrossentropy
np.save(outputs, keras.ops.convert_to_numpy(model(np.load(ids))))
"""


def test_a_saved_model_loads_where_models_and_training_are_imported_first(tmp_path):
    model = LanguageModel(
        7, num_layers=1, hidden_dim=4, num_heads=2, intermediate_dim=5
    )
    model.compile(
        training.Adam(training.InverseSquareRootSchedule(4)),
        training.TokenCrossentropy(label_smoothing=0.1),
        metrics=[training.TokenAccuracy(), training.Perplexity()],
    )
    model.fit(IDS[:, :-1], IDS[:, 1:], verbose=0)
    model.save(tmp_path / "model.keras")
    np.save(tmp_path / "ids.npy", IDS)
    files = [tmp_path / name for name in ("model.keras", "ids.npy", "outputs.npy")]
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, *files],
        capture_output=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": keras.backend.backend()},
        text=True,
    )
    assert process.returncode == 0, process.stderr
    # Keras names the class that it misses; README.md and `keras_transformer` say what
    # to import.
    assert "Could not locate class 'LanguageModel'" in process.stdout
    expected = ops.convert_to_numpy(model(IDS))
    np.testing.assert_allclose(np.load(files[-1]), expected, 1e-6, 1e-6)
