"""What `fit` shows of a training."""

import re
import sys

import keras
import numpy as np
import pytest

from keras_transformer.training import Padding, ShowProgress
from keras_transformer.training.progress import _in_words


def fit(steps, epochs, validates=True):
    """Trains on texts of two tokens and a row of padding, one a step."""
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=[Padding()])
    data = np.ones((steps, 3)), np.tile([1.0, 1.0, 0.0], (steps, 1))
    how = {"batch_size": 1, "verbose": 0, "shuffle": False}
    how["callbacks"] = [ShowProgress(steps)]
    how["validation_data"] = data if validates else None
    return model.fit(*data, epochs=epochs, **how).history


def test_without_a_terminal_every_epoch_has_one_line(capsys):
    history = fit(steps=7, epochs=3)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" - ")[0] for line in lines] == [
        f"Epoch {number}/3" for number in (1, 2, 3)
    ]
    assert ["left" in line for line in lines] == [True, True, False]
    for name in ("loss", "val_loss", "padding", "learning_rate", "tokens_per_second"):
        assert all(re.search(rf" {name}: \d", line) for line in lines), name
    assert all(seconds > 0 for seconds in history["seconds"])


def test_a_training_without_validation_has_a_speed(capsys):
    history = fit(steps=7, epochs=2, validates=False)
    assert all(speed > 0 for speed in history["tokens_per_second"])


def test_a_long_training_is_estimated_once_and_early(capsys):
    fit(steps=101, epochs=2)
    first, *others = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"About \d+ \w+ left, .* steps per second", first)
    assert [line[:5] for line in others] == ["Epoch"] * 2


def test_in_a_terminal_a_bar_tells_steps_speed_and_what_is_left(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    fit(steps=61, epochs=2)
    shown = capsys.readouterr().out
    left = "0 s left in the epoch, 0 s in all"
    bar = rf"\rEpoch 2/2 ━{{10}} 61/61, [\d,]+ tokens/s, {left} *"
    assert [len(line) for line in re.findall(bar, shown)] == [120]
    assert "About" not in shown
    assert len(re.findall(r"Epoch \d/2 - ", shown)) == 2


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (7, "7 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7000, "117 min"),
        (9000, "2 h"),
        (9e5, "10 days"),
    ],
)
def test_times_are_told_in_words(seconds, words):
    assert _in_words(seconds) == words
