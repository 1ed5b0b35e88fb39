"""Trains short, tests long: which positions a language model goes on with.

    python benchmarks/positions.py

Small models of characters read documents of 64; each scheme of positions is
trained from three seeds, then tested on documents four times as long. The text
is made from Unicode CLDR: line by line a date, amount or name in English, then
in German, which can be known from the English. Prints the loss in stretches of
the documents, in nats a character, and draws benchmarks/positions.png.

Learned positions have rows for all of the test, those beyond training as they
were drawn at first.
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

TRAINED, TESTED = 64, 256
SCHEMES = {
    "sinusoidal": "sinusoidal",
    "learned": LearnedPositionalEncoding(TESTED),
    "rotary": "rotary",
    "linear biases (ALiBi)": "linear_bias",
    "no positions": None,
}
STRETCHES = {"1-64": (0, 64), "65-128": (64, 128), "129-256": (128, 256)}
PAD, UNKNOWN, START = range(3)
SIZES = {"num_layers": 2, "hidden_dim": 64, "num_heads": 4, "intermediate_dim": 256}
BATCH = 64
FIGURE = pathlib.Path(__file__).with_suffix(".png")


def documents(split, ids_of, count, length, seed):
    """Ids `(count, 1 + length)`: START, then lines in an order of their own."""
    lines = [f"{a}: {b}\n" for a, b in zip(split.source, split.target, strict=True)]
    encoded = [[ids_of.get(letter, UNKNOWN) for letter in line] for line in lines]
    draw = np.random.default_rng(seed)
    rows = np.full((count, 1 + length), START, "int32")
    for row in rows:
        letters = []
        while len(letters) < length:
            letters += encoded[draw.integers(len(encoded))]
        row[1:] = letters[:length]
    return rows


def losses_by_position(positions, seed, steps, data):
    """Trains a model; the loss in nats at each position of longer documents."""
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
    seen = documents(data.train, ids_of, steps * BATCH, TRAINED, seed)
    model.fit(seen[:, :-1], seen[:, 1:], BATCH, shuffle=False, verbose=0)
    held_out = documents(data.test, ids_of, 256, TESTED, seed=0)
    logits = model.predict(held_out[:, :-1], batch_size=32, verbose=0)
    chosen = np.take_along_axis(logits, held_out[:, 1:, None], axis=-1)[..., 0]
    return np.mean(np.logaddexp.reduce(logits, axis=-1) - chosen, axis=0)


def table_row(name, runs):
    """Mean loss in each stretch, and between which the seeds lie."""
    means = (runs[:, slice(*ends)].mean(axis=1) for ends in STRETCHES.values())
    cells = (f"{x.mean():.3f} ({x.min():.3f} to {x.max():.3f})" for x in means)
    return " | ".join([f"| {name}", *cells]) + " |"


def draw(losses):
    """Draws the mean over the seeds of each scheme, and between which they lie."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    places, window = np.arange(1, TESTED + 1), np.ones(8) / 8
    middles = np.convolve(places, window, "valid")
    for name, runs in losses.items():
        smooth = np.array([np.convolve(run, window, "valid") for run in runs])
        (line,) = axes.plot(middles, smooth.mean(axis=0), label=name)
        axes.fill_between(
            middles, smooth.min(0), smooth.max(0), color=line.get_color(), alpha=0.2
        )
    axes.axvline(TRAINED, color="0.4", linestyle=":")
    here = {"transform": axes.get_xaxis_transform(), "color": "0.4", "va": "top"}
    axes.text(TRAINED + 2, 0.98, "trained up to here", **here)
    axes.set(xlabel="position", ylabel="loss, nats a character (mean of 8 positions)")
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
    data, begun, losses = locale_phrases("en", "de"), time.time(), {}
    print("| positions |", " | ".join(STRETCHES), "|", flush=True)
    print("| --- " * (1 + len(STRETCHES)) + "|", flush=True)
    for name, positions in SCHEMES.items():
        runs = [
            losses_by_position(positions, seed, arguments.steps, data)
            for seed in arguments.seeds
        ]
        losses[name] = np.array(runs)
        print(table_row(name, losses[name]), flush=True)
    arguments.figure.parent.mkdir(parents=True, exist_ok=True)
    draw(losses).savefig(arguments.figure, dpi=90)
    print(f"{time.time() - begun:.0f} seconds, {arguments.steps} steps a model")


if __name__ == "__main__":
    main()
