"""`keras-transformer convert` in both directions."""

import resource
import shutil

import numpy as np
import pytest
from interop.random_translator import make_translator
from typer.testing import CliRunner

import keras_transformer as kt
from keras_transformer.cli import app

TEXT = "All human beings are born free"


def run(*words, stdin=None):
    return CliRunner().invoke(app, list(map(str, words)), input=stdin)


@pytest.mark.slow
def test_a_checkpoint_becomes_a_translator(originals, tmp_path):
    checkpoint = originals / "models" / "marian"
    done = run("convert", checkpoint, tmp_path / "mine")
    assert done.exit_code == 0, done.output
    assert str(tmp_path / "mine") in done.output
    expected = kt.Translator.from_preset(checkpoint)
    mine = kt.Translator.load(tmp_path / "mine")
    assert mine.source_tokenizer.equals(expected.source_tokenizer)
    assert mine.target_tokenizer.equals(expected.target_tokenizer)
    assert repr(mine.search) == repr(expected.search)
    pairs = zip(mine.model.weights, expected.model.weights, strict=True)
    for weight, wanted in pairs:
        np.testing.assert_array_equal(weight.numpy(), wanted.numpy())
    done = run("translate", checkpoint, "--engine", "tensorflow", stdin=TEXT)
    assert done.stdout.splitlines() == mine.translate([TEXT])
    again = run("convert", checkpoint, tmp_path / "mine")
    assert again.exit_code == 1
    assert "already exists" in again.stderr


@pytest.mark.slow
def test_languages_are_chosen(originals, tmp_path):
    nllb = originals / "models" / "nllb"
    done = run("convert", nllb, tmp_path / "ru", "--target-language", "rus_Cyrl")
    assert done.exit_code == 0, done.output
    expected = kt.Translator.from_preset(nllb, target_language="rus_Cyrl")
    found = kt.Translator.load(tmp_path / "ru")
    assert found.translate([TEXT]) == expected.translate([TEXT])
    done = run("convert", nllb, tmp_path / "xx", "--target-language", "xx")
    assert done.exit_code == 1
    assert "`target_language` must be one of" in done.stderr
    assert not (tmp_path / "xx").exists()


@pytest.mark.quick("options0-model.bin")
@pytest.mark.parametrize(
    ("options", "written"),
    [
        (["--format", "ctranslate2", "--quantization", "int8"], "model.bin"),
        (["--format", "hugging_face"], "model.safetensors"),
    ],
)
def test_a_translator_is_written_for_other_systems(options, written, tmp_path):
    make_translator(epsilon=1e-5).save(tmp_path / "mine")
    done = run("convert", tmp_path / "mine", tmp_path / "theirs", *options)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "theirs" / written).is_file()


def test_a_folder_that_could_not_be_written_is_not_there(tmp_path):
    make_translator(epsilon=1e-5).save(tmp_path / "mine")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        done = run("convert", tmp_path / "mine", tmp_path / "x")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert done.exit_code == 1, done.output
    assert f"{tmp_path}: File too large" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_what_cannot_be_converted_leaves_nothing(originals, tmp_path):
    for words, message in (
        (["--quantization", "int8"], "needs --format ctranslate2"),
        (["--format", "onnx"], "onnx"),
    ):
        done = run("convert", originals / "models" / "marian", tmp_path / "x", *words)
        assert done.exit_code == 2
        assert message in done.stderr
    broken = shutil.copytree(originals / "models" / "marian", tmp_path / "broken")
    (broken / "model.safetensors").write_bytes(b"nothing")
    done = run("convert", broken, tmp_path / "x")
    assert done.exit_code == 1
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "x").exists()
