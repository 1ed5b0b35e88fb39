"""Curves of losses and metrics in training."""

import csv
import os

import keras
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, MaxNLocator

from keras_transformer.plots.layout import grid

NOT_DRAWN = ("epoch", "learning_rate", "padding", "tokens_per_second", "seconds")


def training_curves(log: str | os.PathLike | keras.callbacks.History) -> Figure:
    """Plots the loss and each metric of a training run by epoch.

    Args:
        log: Path of a run's `log.csv`, or of a file written by Keras's `CSVLogger`; or
            the `History` returned by `model.fit`, if it has every metric for every
            epoch.

    Returns:
        A `matplotlib.figure.Figure` with axes for the loss and for each metric, which
        compare training and validation.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is not such a log, or has no epoch yet, or if a
            `History` lacks a metric in some epochs, such as BLEU computed every few
            epochs: it does not record which. Log to a file instead.

    Example:
        >>> history = keras.callbacks.History()
        >>> history.epoch, history.history = [0, 1], {"loss": [3, 2]}
        >>> [axes.get_title() for axes in kt.plots.training_curves(history).axes]
        ['loss']
    """
    is_history = isinstance(log, keras.callbacks.History)
    curves = _read_history(log) if is_history else _read_csv(log)
    metrics = dict.fromkeys(name.removeprefix("val_") for name in curves)
    names = [name for name in metrics if name not in NOT_DRAWN]
    if not names:
        raise ValueError(
            f"`log` must hold an epoch. Received: log={log}. Pass the log.csv of a run."
        )
    rows, columns = grid(len(names), 3)
    figure = Figure((4 * columns, 3 * rows), layout="constrained")
    axes = None
    for index, name in enumerate(names):
        axes = figure.add_subplot(rows, columns, index + 1, sharex=axes)
        title = name.replace("_", " ").replace("bleu", "BLEU").replace("chrf", "chrF")
        axes.set(title=title, xlabel="epoch")
        if name in curves:
            axes.plot(*curves[name], ".-", color="0.6", label="training")
        if f"val_{name}" in curves:
            axes.plot(*curves[f"val_{name}"], ".-", color="C0", label="validation")
        if name == "perplexity":  # It falls by orders of magnitude.
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(LogFormatter())
            axes.yaxis.set_minor_formatter(LogFormatter())
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="0.92")
    return figure


def _read_history(history):
    """Returns `(epochs, values)` of each name in a `History`."""
    epochs = [epoch + 1 for epoch in history.epoch]
    for name, values in history.history.items():
        if len(values) != len(epochs):
            raise ValueError(
                f"`log` must hold {name} for every epoch. Received: {len(values)} "
                f"values in {len(epochs)} epochs. Pass the file of a "
                "`keras.callbacks.CSVLogger`, which has the epoch of each value."
            )
    return {name: (epochs, values) for name, values in history.history.items()}


def _read_csv(path):
    """Returns `(epochs, values)` of each column; empty cells are left out."""
    curves = {}
    # A file that is no text has no epochs either, which the errors below say.
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        rows = csv.DictReader(file)
        for row in rows:
            try:
                epoch = float(row["epoch"])
                for name, cell in row.items():
                    if cell not in ("", "NA"):  # as Keras writes missing values
                        epochs, values = curves.setdefault(name, ([], []))
                        epochs.append(epoch)
                        values.append(float(cell))
            except (KeyError, TypeError, ValueError):
                raise ValueError(
                    f"{path}:{rows.line_num} is not the log of an epoch. Pass the "
                    "log.csv of a run."
                ) from None
    return curves
