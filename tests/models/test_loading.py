"""`import keras_transformer` is all that `keras.saving.load_model` needs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import models, training

ROOT = Path(__file__).parents[2]
IDS = np.array([[2, 5, 3, 0], [2, 4, 6, 3]], "int32")
SLICES = 2 if keras.backend.backend() == "tensorflow" else 1


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with a model that was not compiled, one that was, and its outputs."""
    folder = tmp_path_factory.mktemp("saved")
    model = models.LanguageModel(7, 1, 4, 2, 5)
    model.save(folder / "plain.keras")
    schedule = training.Cooldown(training.InverseSquareRootSchedule(4), 5, 7)
    model.compile(
        training.Adam(schedule, gradient_accumulation_steps=2),
        training.TokenCrossentropy(label_smoothing=0.1),
        metrics=[training.TokenAccuracy(), training.Perplexity()],
        batch_slices=SLICES,
    )
    model.fit(IDS[:, :-1], IDS[:, 1:], verbose=0)
    model.save(folder / "compiled.keras")
    np.save(folder / "ids.npy", IDS)
    np.save(folder / "outputs.npy", ops.convert_to_numpy(model(IDS)))
    return folder


LOAD = """
import numpy as np

for name in ("plain", "compiled"):
    model = {load_model}(f"{folder}/{{name}}.keras")
    assert model.compiled is (name == "compiled"), name
outputs = keras.ops.convert_to_numpy(model(np.load("{folder}/ids.npy")))
np.testing.assert_allclose(outputs, np.load("{folder}/outputs.npy"), 1e-6, 1e-6)
assert model.batch_slices == {slices}

from keras_transformer import models, training

assert type(model) is models.LanguageModel
assert type(model.optimizer) is training.Adam
assert type(model.loss) is training.TokenCrossentropy
"""
NOT_LOADED = """
import sys
rooms = ("text", "translator", "serving", "plots", "runs", "cli", "datasets")
unwanted = {"tensorflow_text", "typer", "sacrebleu", "babel"}
unwanted |= {"keras_transformer." + room for room in rooms}
assert not sys.modules.keys() & unwanted, sys.modules.keys() & unwanted
"""


def run_fresh(program):
    """Runs a program in a process in which nothing is imported yet."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    backend = keras.backend.backend()
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "KERAS_BACKEND": backend},
        text=True,
    )


@pytest.mark.parametrize(
    ("imports", "load_model"),
    [
        ("import keras_transformer, keras", "keras.saving.load_model"),
        ("import keras, keras_transformer", "keras.saving.load_model"),
        pytest.param(
            "import tensorflow as tf\nkeras = tf.keras\nimport keras_transformer",
            "tf.keras.models.load_model",
            marks=pytest.mark.needs_tensorflow,
        ),
    ],
    ids=["ours first", "Keras first", "tf.keras first"],
)
def test_models_load_in_any_order_of_imports(imports, load_model, saved):
    load = LOAD.format(load_model=load_model, folder=saved, slices=SLICES)
    done = run_fresh(imports + load + NOT_LOADED)
    assert done.returncode == 0, done.stderr


def test_without_the_package_keras_names_the_class_that_it_misses(saved):
    done = run_fresh(f"import keras\nkeras.saving.load_model('{saved}/plain.keras')")
    assert "Could not locate class 'LanguageModel'" in done.stderr


IMPORT_EACH_FIRST = """
import importlib, json, os, pkgutil, sys, traceback
import keras, tensorflow_text  # what takes longest to import, once for all

del sys.modules["keras"]  # though not its parts: importing it again is quick
import keras_transformer

def import_all():
    for module in pkgutil.walk_packages(keras_transformer.__path__, root + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)

def registered(name):
    if name == "all":
        import_all()
    importlib.import_module(f"{root}.{name}" if name != "all" else root)
    import keras
    classes = keras.saving.get_custom_objects()
    return sorted(name for name in classes if name.startswith(root + ">"))

root = "keras_transformer"
rooms = [module.name for module in pkgutil.iter_modules(keras_transformer.__path__)]
for name in ["all", *rooms, "layers.attention", "kernels.target", "decoding.search"]:
    sys.stdout.flush()
    child = os.fork()
    if not child:
        try:
            print(json.dumps([name, registered(name)]), flush=True)
        except Exception:
            print(json.dumps([name, traceback.format_exc()]), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.mark.needs_tensorflow
def test_every_class_is_registered_whatever_is_imported_first():
    done = run_fresh(IMPORT_EACH_FIRST)
    assert done.returncode == 0, done.stderr
    classes = dict(map(json.loads, done.stdout.splitlines()))
    expected = classes.pop("all")
    assert "keras_transformer>Transformer" in expected
    assert {"layers", "training", "cli", "checks"} <= classes.keys()
    for name, found in classes.items():
        assert found == expected, f"after importing {name} first"
