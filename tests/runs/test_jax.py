"""The shell trains on JAX, where TensorFlow only reads the text."""

import csv
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import keras_transformer as kt

pytest.importorskip("jax")

# Not `loss`, in which Keras counts the rows that pad a batch for several devices.
COMPARED = (
    "perplexity",
    "token_accuracy",
    "val_loss",
    "val_perplexity",
    "learning_rate",
    "gradient_norm",
)
SETTINGS = {
    "training.jit_compile": "null",
    "training.learning_rate": 0.01,
    "training.warmup_steps": 10,
    "training.checkpoint_every": 3,
    "tokenizer.vocabulary_size": 28,
    "model.intermediate_dim": 12,
}


def train(text, run, epochs, num_devices=1, **settings):
    flags = f"--xla_force_host_platform_device_count={num_devices}"
    given = [f"--set={name}={value}" for name, value in (SETTINGS | settings).items()]
    options = [text / "small.yaml", "--data", text, "--run", run, "--epochs", epochs]
    command = [sys.executable, "-m", "keras_transformer.cli", "train", *options, *given]
    environment = {**os.environ, "KERAS_BACKEND": "jax", "XLA_FLAGS": flags}
    return subprocess.run(
        list(map(str, command)), env=environment, capture_output=True, text=True
    )


def rows(run):
    with open(run / "log.csv", encoding="utf-8", newline="") as file:
        return [[float(x[name]) for name in COMPARED] for x in csv.DictReader(file)]


@pytest.mark.slow
def test_training_on_jax_resumes_on_more_devices(small_text, tmp_path):
    done = train(small_text, tmp_path / "whole", 3)
    assert done.returncode == 0, done.stderr
    split = {"training.model_devices": 2}
    for epochs, num_devices, settings in [(1, 1, {}), (2, 4, {}), (3, 4, split)]:
        done = train(small_text, tmp_path / "run", epochs, num_devices, **settings)
        assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(rows(tmp_path / "run"), rows(tmp_path / "whole"), 1e-4)
    translator = kt.Translator.load(tmp_path / "run" / "translator")  # on TensorFlow
    assert len(translator.translate(["ba ba", "di"])) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"training.model_devices": 3}, "`model_devices` must divide .*devices=3"),
        ({"training.strategy": "mirrored"}, 'must be "default" on jax'),
    ],
)
def test_what_jax_cannot_do_is_said(small_text, tmp_path, settings, message):
    done = train(small_text, tmp_path / "run", 1, num_devices=2, **settings)
    assert done.returncode == 1
    assert re.search(message, " ".join(done.stderr.split()))
