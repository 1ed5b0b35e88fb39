"""Files written by version 0.1.0 load; `fixtures/write.py` wrote them."""

import base64
import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops
from typer.testing import CliRunner

import keras_transformer as kt
from keras_transformer.cli import app

TESTS = Path(__file__).parent
FIXTURES = TESTS / "fixtures" / "0.1.0"
ANSWERS = json.loads((FIXTURES / "translations.json").read_text("utf-8"))
TEXTS = ANSWERS["texts"]
COMPILED = ["layers", "transformer"]
GENERATIVE = ["language_model", "transformer", "transformer_two_vocabularies"]
OTHERS = ["masked_language_model", "text_classifier", "vision_transformer"]
MODELS = sorted({*COMPILED, *GENERATIVE, *OTHERS})
SEARCHES = {"greedy": kt.decoding.GreedySearch(), "beam": kt.decoding.BeamSearch(2)}

# Writes the outputs of each model, or the traceback if there are none.
PROGRAM = """
import sys
import traceback
from pathlib import Path

{imports}
import numpy as np

for path in Path(sys.argv[1]).glob("*.keras"):
    written = Path(sys.argv[2], path.stem)
    try:
        model = keras.saving.load_model(path)
        arrays = np.load(path.with_suffix(".npz"))
        inputs = {{key[7:]: arrays[key] for key in arrays if key[:7] == "inputs/"}}
        outputs = model(inputs if len(inputs) > 1 else inputs.popitem()[1])
        np.save(written.with_suffix(".npy"), keras.ops.convert_to_numpy(outputs))
    except Exception:
        written.with_suffix(".txt").write_text(traceback.format_exc(), "utf-8")
"""
IMPORTS = {
    "keras first": "import keras\nimport keras_transformer",
    "keras_transformer first": "import keras_transformer\nimport keras",
}


def unpack(name, folder):
    shutil.unpack_archive(FIXTURES / f"{name}.tar.xz", folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folder of `.keras` files, each with an `.npz` file of inputs and outputs."""
    return unpack("models", tmp_path_factory.mktemp("models"))


@pytest.fixture
def load(models):
    """Function from a name to a model, its inputs, and what it gave when saved."""

    def load(name):
        model = keras.saving.load_model(models / f"{name}.keras")
        arrays = np.load(models / f"{name}.npz")
        inputs = {key[7:]: arrays[key] for key in arrays if key[:7] == "inputs/"}
        return model, inputs if len(inputs) > 1 else inputs.popitem()[1], arrays

    return load


@pytest.fixture(scope="module", params=IMPORTS.values(), ids=IMPORTS)
def outputs(request, models, tmp_path_factory):
    """Folder of the outputs of all models, as a fresh process computes them."""
    folder = tmp_path_factory.mktemp("outputs")
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(imports=request.param), models, folder],
        capture_output=True,
        check=False,
        cwd=TESTS.parent,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    return folder


@pytest.fixture
def run(tmp_path):
    """Folder of the run, to be changed freely."""
    return unpack("run", tmp_path / "run")


def test_every_model_of_the_archive_is_tested(models):
    assert sorted(path.stem for path in models.glob("*.keras")) == MODELS


@pytest.mark.parametrize("name", MODELS)
def test_importing_the_package_is_enough_to_load_a_model(name, models, outputs):
    failure = outputs / f"{name}.txt"
    assert not failure.exists(), failure.read_text("utf-8")
    found = np.load(outputs / f"{name}.npy")
    expected = np.load(models / f"{name}.npz")["outputs"]
    np.testing.assert_allclose(found, expected, 1e-5, 1e-5)


@pytest.mark.parametrize("name", GENERATIVE)
def test_a_model_generates_the_same_ids_and_scores(name, load):
    model, inputs, arrays = load(name)
    ids = inputs["source_ids"] if isinstance(inputs, dict) else inputs
    for key, search in SEARCHES.items():
        expected = arrays[f"{key}/ids"]
        found = model.generate(ids, search, max_length=expected.shape[-1])
        np.testing.assert_array_equal(found.ids, expected)
        np.testing.assert_allclose(found.scores, arrays[f"{key}/scores"], 1e-5, 1e-5)


@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_model_continues_with_its_optimizer_state(name, load):
    model, inputs, arrays = load(name)
    assert type(model.optimizer) is kt.training.Adam
    assert model.optimizer.iterations == arrays["training/iterations"]
    logs = model.train_on_batch(inputs, arrays["training/labels"], return_dict=True)
    np.testing.assert_allclose(logs["loss"], arrays["training/loss"], 1e-5)
    # They depend on both moments, on the schedule and on which layers are frozen.
    outputs = ops.convert_to_numpy(model(inputs))
    np.testing.assert_allclose(outputs, arrays["training/outputs"], 1e-5, 1e-5)


def check_translations(translator, answers):
    search = kt.decoding.BeamSearch(2, num_hypotheses=2)
    found = translator.translate_n_best(TEXTS, search, max_length=11)
    assert len(found) == len(answers)
    for translations, expected in zip(found, answers, strict=True):
        texts, scores = zip(*expected, strict=True)
        assert tuple(translation.text for translation in translations) == texts
        found_scores = [translation.score for translation in translations]
        np.testing.assert_allclose(found_scores, scores, 1e-4)


def test_the_translator_of_a_run_translates_the_same(run):
    check_translations(kt.Translator.load(run / "translator"), ANSWERS["run"])


def test_a_run_continues_as_if_never_interrupted(run):
    with open(run / "log.csv", encoding="utf-8") as file:
        two_epochs = list(csv.DictReader(file))
    arguments = ["train", run / "settings.yaml", "--run", run, "--epochs", 3]
    arguments += ["--data", FIXTURES / "text"]
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exception is None, result.output
    with open(run / "log.csv", encoding="utf-8") as file:
        *rows, row = csv.DictReader(file)
    # Version 0.1.0 measured no chrF.
    assert rows == [{**old, "val_chrf": ""} for old in two_epochs]
    assert row["epoch"] == "3"
    # They depend on the order of the sentences, on dropout and on the optimizer.
    for name, expected in ANSWERS["log"].items():
        np.testing.assert_allclose(float(row[name]), expected, 1e-4)
    saved = {path.stem for path in (run / "checkpoints").iterdir()}
    assert saved == {"epoch-0003", "best"}
    check_translations(kt.Translator.load(run / "translator"), ANSWERS["continued"])


def test_an_export_translates_the_same_without_the_package(tmp_path):
    export = unpack("export", tmp_path / "export")
    texts = [base64.b64encode(text.encode()).decode() for text in TEXTS]
    program = TESTS / "serving" / "fresh_process.py"
    process = subprocess.run(
        [sys.executable, "-I", program, "eager", export],
        input=json.dumps([["serving_default", {"text": texts}]]),
        capture_output=True,
        check=False,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    [response] = json.loads(process.stdout)
    texts, scores = zip(*ANSWERS["export"], strict=True)
    found = [base64.b64decode(text).decode() for text in response["translation"]]
    assert found == list(texts)
    np.testing.assert_allclose(response["score"], scores, 1e-4)
