"""What version 0.1.0 wrote is read; `fixtures/write.py` wrote it."""

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
MODELS = ["language_model", "transformer"]
SEARCHES = {"greedy": kt.decoding.GreedySearch(), "beam": kt.decoding.BeamSearch(2)}


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


def test_every_model_of_the_archive_is_tested(models):
    assert sorted(path.stem for path in models.glob("*.keras")) == MODELS


@pytest.mark.quick("language_model")
@pytest.mark.parametrize("name", MODELS)
def test_a_model_has_the_same_outputs(name, load):
    model, inputs, arrays = load(name)
    outputs = ops.convert_to_numpy(model(inputs))
    np.testing.assert_allclose(outputs, arrays["outputs"], 1e-5, 1e-5)


@pytest.mark.quick("transformer")
@pytest.mark.parametrize("name", MODELS)
def test_a_model_generates_the_same_ids_and_scores(name, load):
    model, inputs, arrays = load(name)
    ids = inputs["source_ids"] if isinstance(inputs, dict) else inputs
    for key, search in SEARCHES.items():
        expected = arrays[f"{key}/ids"]
        found = model.generate(ids, search, max_length=expected.shape[-1])
        np.testing.assert_array_equal(found.ids, expected)
        np.testing.assert_allclose(found.scores, arrays[f"{key}/scores"], 1e-5, 1e-5)


def test_a_compiled_model_continues_with_its_optimizer_state(load):
    model, inputs, arrays = load("transformer")
    assert type(model.optimizer) is kt.training.Adam
    assert model.optimizer.iterations == arrays["training/iterations"]
    logs = model.train_on_batch(inputs, arrays["training/labels"], return_dict=True)
    np.testing.assert_allclose(logs["loss"], arrays["training/loss"], 1e-5)
    # They depend on both moments and on the schedule.
    outputs = ops.convert_to_numpy(model(inputs))
    np.testing.assert_allclose(outputs, arrays["training/outputs"], 1e-5, 1e-5)


def test_a_translator_translates_the_same(tmp_path):
    answers = json.loads((FIXTURES / "translations.json").read_text("utf-8"))
    translator = kt.Translator.load(unpack("translator", tmp_path / "translator"))
    found = translator.translate_n_best(answers["texts"], max_length=11)
    for translations, expected in zip(found, answers["translations"], strict=True):
        texts, scores = zip(*expected, strict=True)
        assert tuple(translation.text for translation in translations) == texts
        found_scores = [translation.score for translation in translations]
        np.testing.assert_allclose(found_scores, scores, 1e-4)


@pytest.fixture
def run(tmp_path):
    """Folder of a small corpus and a run on it that was killed in its third epoch."""
    return unpack("run", tmp_path / "older")


def shell(*arguments):
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_a_run_translates(run, tmp_path):
    lines = tmp_path / "lines"
    lines.write_text("ba ko li\n\n", "utf-8")
    assert shell("translate", run / "run", lines).endswith("\n\n")


@pytest.mark.slow
def test_a_run_that_was_killed_is_resumed_and_ends_as_an_uninterrupted_one(
    run, tmp_path
):
    options = "--data", run, "--epochs", 3, "--set", "training.bleu_every=null"
    shell("train", run / "small.yaml", *options, "--run", run / "run")
    shell("train", run / "small.yaml", *options, "--run", tmp_path / "whole")
    found, whole = (
        list(csv.DictReader((folder / "log.csv").read_text().splitlines()))
        for folder in (run / "run", tmp_path / "whole")
    )
    assert len(found) == 3
    for name in ("val_perplexity", "val_token_accuracy", "learning_rate"):
        values = [float(rows[-1][name]) for rows in (found, whole)]
        assert values[0] == pytest.approx(values[1], rel=1e-4), name


@pytest.mark.slow
@pytest.mark.parametrize("first", ["keras", "keras_transformer"])
def test_importing_the_package_is_enough_to_load_a_model(first, models):
    modules = {"keras", "keras_transformer"}
    program = f"import {first}, {(modules - {first}).pop()}\nimport sys\n"
    program += "for path in sys.argv[1:]: keras.saving.load_model(path)"
    paths = [models / f"{name}.keras" for name in MODELS]
    subprocess.run([sys.executable, "-c", program, *paths], check=True)
