"""Which position schemes work beyond the length of training.

    python benchmarks/positions.py

Small character-level language models are trained on documents of 64 characters and
tested on documents four times as long: three seeds for each position scheme. The text
is made from Unicode CLDR. Each line is a date, amount or name in English and then in
German; the German can be predicted from the English. Prints the loss by section of the
documents, in nats per character, and draws benchmarks/positions.png.

The learned table has a row for every tested position, but the rows beyond the training
length keep their initial values.
"""

import argparse
import pathlib
import time

import keras
import numpy as np
from matplotlib.figure import Figure

from keras_transformer.datasets import locale_phrases
from keras_transformer.layers import LearnedPositionalEncoding
from keras_transformer.models import LanguageModel
from keras_transformer.training import InverseSquareRootSchedule, TokenCrossentropy

TRAIN_LENGTH, TEST_LENGTH = 64, 256
SCHEMES = {
    "sinusoidal": "sinusoidal",
    "learned": LearnedPositionalEncoding(TEST_LENGTH),
    "rotary": "rotary",
    "linear biases (ALiBi)": "linear_bias",
    "no positions": None,
}
SECTIONS = {"1-64": (0, 64), "65-128": (64, 128), "129-256": (128, 256)}
PAD, UNKNOWN, START = range(3)
SIZES = {"num_layers": 2, "hidden_dim": 64, "num_heads": 4, "intermediate_dim": 256}
BATCH = 64
FIGURE = pathlib.Path(__file__).with_suffix(".png")


def documents(split, ids_of, count, length, seed):
    """Returns ids `(count, 1 + length)`: START, then random lines."""
    lines = [f"{a}: {b}\n" for a, b in zip(split.source, split.target, strict=True)]
    encoded = [[ids_of.get(letter, UNKNOWN) for letter in line] for line in lines]
    rng = np.random.default_rng(seed)
    rows = np.full((count, 1 + length), START, "int32")
    for row in rows:
        letters = []
        while len(letters) < length:
            letters += encoded[rng.integers(len(encoded))]
        row[1:] = letters[:length]
    return rows


def losses_by_position(positions, seed, steps, data):
    """Trains a model; returns its mean test loss at each position, in nats."""
    keras.utils.set_random_seed(seed)
    letters = sorted(set("".join(data.train.source + data.train.target) + ": \n"))
    ids_of = {letter: i for i, letter in enumerate(letters, start=START + 1)}
    model = LanguageModel(
        len(ids_of) + START + 1,
        **SIZES,
        dropout=0.0,
        start_id=START,
        end_id=UNKNOWN,  # no document ends
        positions=positions,
    )
    schedule = InverseSquareRootSchedule.with_peak(
        4e-3, hidden_dim=SIZES["hidden_dim"], warmup_steps=100
    )
    model.compile(keras.optimizers.Adam(schedule), TokenCrossentropy())
    train = documents(data.train, ids_of, steps * BATCH, TRAIN_LENGTH, seed)
    model.fit(train[:, :-1], train[:, 1:], BATCH, shuffle=False, verbose=0)
    test = documents(data.test, ids_of, 256, TEST_LENGTH, seed=0)
    logits = model.predict(test[:, :-1], batch_size=32, verbose=0)
    correct = np.take_along_axis(logits, test[:, 1:, None], axis=-1)[..., 0]
    return np.mean(np.logaddexp.reduce(logits, axis=-1) - correct, axis=0)


def table_row(name, runs):
    """Returns a row with the mean loss of each section and the range of the seeds."""
    means = (runs[:, slice(*ends)].mean(axis=1) for ends in SECTIONS.values())
    cells = (f"{x.mean():.3f} ({x.min():.3f} to {x.max():.3f})" for x in means)
    return " | ".join([f"| {name}", *cells]) + " |"


def draw(losses):
    """Draws the mean loss of each scheme by position, and the range of the seeds."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    positions, window = np.arange(1, TEST_LENGTH + 1), np.ones(8) / 8
    centres = np.convolve(positions, window, "valid")
    for name, runs in losses.items():
        smooth = np.array([np.convolve(run, window, "valid") for run in runs])
        (line,) = axes.plot(centres, smooth.mean(axis=0), label=name)
        axes.fill_between(
            centres, smooth.min(0), smooth.max(0), color=line.get_color(), alpha=0.2
        )
    axes.axvline(TRAIN_LENGTH, color="0.4", linestyle=":")
    style = {"transform": axes.get_xaxis_transform(), "color": "0.4", "va": "top"}
    axes.text(TRAIN_LENGTH + 2, 0.98, "end of training length", **style)
    axes.set(xlabel="position", ylabel="nats per character (mean of 8 positions)")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="lower center", ncols=3)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--figure", type=pathlib.Path, default=FIGURE)
    arguments = parser.parse_args()
    data, start, losses = locale_phrases("en", "de"), time.time(), {}
    print("| positions |", " | ".join(SECTIONS), "|", flush=True)
    print("| --- " * (1 + len(SECTIONS)) + "|", flush=True)
    for name, positions in SCHEMES.items():
        runs = [
            losses_by_position(positions, seed, arguments.steps, data)
            for seed in arguments.seeds
        ]
        losses[name] = np.array(runs)
        print(table_row(name, losses[name]), flush=True)
    arguments.figure.parent.mkdir(parents=True, exist_ok=True)
    draw(losses).savefig(arguments.figure, dpi=90)
    print(f"{time.time() - start:.0f} seconds, {arguments.steps} steps per model")


if __name__ == "__main__":
    main()
