"""The log of a run: what every epoch came to, in a CSV file."""

import csv
import io
import os
import time
import warnings
from pathlib import Path

import keras

from keras_transformer.storage import write_text

COLUMNS = (
    "epoch",
    "loss",
    "token_accuracy",
    "perplexity",
    "val_loss",
    "val_token_accuracy",
    "val_perplexity",
    "val_bleu",
    "learning_rate",
    "seconds",
)


class Log:
    """A table of a run's epochs, one row each, counted from 1.

    The file is replaced as a whole whenever a row is added, so a kill leaves the
    rows before.

    Args:
        path: The CSV file; it need not exist.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     log = Log(f"{folder}/log.csv")
        ...     for epoch, loss in enumerate((0.5, 0.3, 0.4), start=1):
        ...         log.add({"epoch": epoch, "val_loss": loss})
        ...     log.epochs_without_gain()
        1
    """

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path)

    def rows(self) -> list[dict[str, str]]:
        """Returns the rows as written, oldest first."""
        if not self.path.exists():
            return []
        with open(self.path, encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def add(self, row: dict) -> None:
        """Adds a row; columns that it lacks stay empty."""
        self._write([*self.rows(), row])

    def cut(self, epochs: int) -> None:
        """Keeps the first epochs only, after which training goes on."""
        self._write([row for row in self.rows() if int(row["epoch"]) <= epochs])

    def epochs_without_gain(self) -> int:
        """Returns how many epochs ago the validation loss was at its lowest."""
        losses = [float(row["val_loss"]) for row in self.rows()]
        return len(losses) - 1 - losses.index(min(losses)) if losses else 0

    def _write(self, rows):
        text = io.StringIO()
        table = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
        write_text(self.path, text.getvalue())


class WriteLog(keras.callbacks.Callback):
    """Writes every epoch into a `Log`, and ends a training that gains no more.

    What has come before is read from the log, so a training that was interrupted
    waits no longer than one that was not.

    Args:
        log: The `Log`.
        patience: Epochs without a lower validation loss after which training ends;
            None for never.
    """

    def __init__(self, log: Log, patience: int | None = None):
        super().__init__()
        self.log = log
        self.patience = patience

    def on_epoch_begin(self, epoch, logs=None):
        self._start = time.monotonic()

    def on_epoch_end(self, epoch, logs=None):
        numbers = {name: logs[name] for name in COLUMNS if name in logs}
        numbers["learning_rate"] = self.model.optimizer.learning_rate
        row = {name: f"{float(number):.6g}" for name, number in numbers.items()}
        row["epoch"] = epoch + 1  # Keras counts from 0
        row["seconds"] = f"{time.monotonic() - self._start:.1f}"
        try:
            self.log.add(row)
        except OSError as error:
            warnings.warn(
                f"{self.log.path}: epoch {epoch + 1} is not logged ({error}). Make "
                "room on the disk.",
                stacklevel=2,
            )
        if self.patience and self.log.epochs_without_gain() >= self.patience:
            self.model.stop_training = True
