"""The log of a run: the metrics of every epoch, in a CSV file."""

import csv
import io
import math
import os
import warnings
from pathlib import Path

import keras
import tensorflow as tf

from keras_transformer.storage import write_text

MEASURED = (
    *("loss", "token_accuracy", "perplexity"),
    *("val_loss", "val_token_accuracy", "val_perplexity", "val_bleu", "val_chrf"),
)
COLUMNS = (
    *("epoch", *MEASURED, "learning_rate", "gradient_norm"),
    *("padding", "tokens_per_second", "seconds"),
)


class Log:
    """The metrics of a run in a CSV file, one row per epoch, counted from 1.

    Adding a row replaces the whole file at once, so a process that is killed while
    writing leaves the earlier rows.

    Args:
        path: The CSV file, which may not exist yet.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     log = Log(f"{folder}/log.csv")
        ...     for epoch, loss in enumerate((0.5, 0.3, 0.4), start=1):
        ...         log.add({"epoch": epoch, "val_loss": loss})
        ...     log.epochs_without_improvement()
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
        """Appends a row; columns missing in it stay empty."""
        rows = self.rows()
        self._write([*rows, row], rows)

    def truncate(self, epochs: int) -> None:
        """Keeps the first epochs only, so that training can resume after them."""
        rows = self.rows()
        self._write([row for row in rows if int(row["epoch"]) <= epochs], rows)

    def epochs_without_improvement(self, epochs: int | None = None) -> int:
        """Returns the number of epochs since the lowest validation loss.

        It looks at the rows of the first `epochs`; None means all.
        """
        losses = {int(row["epoch"]): float(row["val_loss"]) for row in self.rows()}
        losses = {x: losses[x] for x in losses if epochs is None or x <= epochs}
        best = min(losses, key=lambda x: (math.isnan(losses[x]), losses[x]), default=0)
        return max(losses, default=0) - best

    def _write(self, rows, before):
        text = io.StringIO()
        names = dict.fromkeys([*COLUMNS, *(before[0] if before else ())])
        table = csv.DictWriter(text, list(names), restval="", lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
        write_text(self.path, text.getvalue())


class WriteLog(keras.callbacks.Callback):
    """Appends every epoch to a `Log`, and stops a training that no longer improves.

    Epochs are counted in the log, including all before an interruption. The times of an
    interrupted epoch cover only the rest of it. List `training.ShowProgress`, which
    takes the measurements, before this callback.

    Args:
        log: The `Log`.
        patience: Epochs without a lower validation loss after which training stops;
            None for never.
    """

    def __init__(self, log: Log, patience: int | None = None):
        super().__init__()
        self.log = log
        self.patience = patience

    def on_epoch_end(self, epoch, logs=None):
        numbers = {name: logs[name] for name in COLUMNS if name in logs}
        row = {name: f"{float(number):.6g}" for name, number in numbers.items()}
        row["epoch"] = epoch + 1  # Keras counts from 0
        try:
            self.log.add(row)
        except OSError as error:
            warnings.warn(
                f"{self.log.path}: epoch {epoch + 1} is not logged ({error}). Free "
                "some disk space.",
                stacklevel=2,
            )
        waited = self.log.epochs_without_improvement()
        if self.patience and waited >= self.patience:
            best = epoch + 1 - waited
            print(
                f"Stopped early, after epoch {epoch + 1} of {self.params['epochs']}: "
                f"the validation loss was lowest after epoch {best}. The translator is "
                "the mean of the last checkpoints up to that epoch. "
                'See "Overfitting" in docs/when_it_goes_wrong.md.'
            )
            self.model.stop_training = True


class WriteTensorBoard(keras.callbacks.TensorBoard):
    """`keras.callbacks.TensorBoard`, which ends with a warning if the disk is full.

    Training continues, but its later epochs are not shown.
    """

    is_full = False

    def _safely(self, write, *args):
        if self.is_full:
            return
        try:
            write(*args)
        except tf.errors.OpError as error:
            self.is_full = True
            warnings.warn(
                f"{self.log_dir}: TensorBoard shows no more of this training "
                f"({error.message.splitlines()[0]}). Free some disk space.",
                stacklevel=3,
            )

    def on_train_batch_end(self, batch, logs=None):
        self._safely(super().on_train_batch_end, batch, logs)

    def on_test_end(self, logs=None):
        self._safely(super().on_test_end, logs)

    def on_epoch_end(self, epoch, logs=None):
        self._safely(super().on_epoch_end, epoch, logs)

    def on_train_end(self, logs=None):
        self._safely(super().on_train_end, logs)
