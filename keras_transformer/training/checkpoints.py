"""Checkpoints of whole models, safe from kills and full disks, and their average."""

import contextlib
import itertools
import json
import math
import os
import re
import shutil
import time
import warnings
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import keras

from keras_transformer import storage
from keras_transformer.checks import check_positive_integers
from keras_transformer.kernels.rematerialization import seed_states
from keras_transformer.models.base import SettingsModel

_NAME = re.compile(r"epoch-(\d{4,})\.keras$")


class Checkpoints:
    """The newest checkpoints of a training run, and the best one, in a folder.

    A checkpoint is the compiled model as a `.keras` file: weights, optimizer with its
    step and, beyond what Keras saves, the states of the random generators and the
    metrics of its epoch. It appears once it is complete: killed runs and full disks
    leave the older checkpoints intact. `best.keras` is the best of all. `step.keras`,
    if there is one, was saved within the epoch after the last one.

    Args:
        folder: Folder of the checkpoints, created with the first one.
        keep: Number of checkpoints to keep; older ones are removed.
        monitor: Name of the metric that decides which checkpoint is best. The lowest
            value is best if the name ends in "loss" or "perplexity", else the highest.

    Raises:
        ValueError: If `keep` is not a positive integer.

    Example:
        >>> import tempfile
        >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        >>> model.compile(optimizer="adam", loss="mse")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     checkpoints = Checkpoints(folder, keep=2)
        ...     _ = model.fit(
        ...         np.ones((5, 3)), np.ones((5, 2)), epochs=3, verbose=0,
        ...         callbacks=[SaveCheckpoints(checkpoints)],
        ...     )
        ...     print([path.name for path in checkpoints.paths()])
        ...     model = checkpoints.load(checkpoints.latest())
        ['epoch-0002.keras', 'epoch-0003.keras']
    """

    def __init__(
        self, folder: str | os.PathLike, keep: int = 10, monitor: str = "val_loss"
    ):
        check_positive_integers(keep=keep)
        self.folder = Path(folder)
        self.keep = keep
        self.monitor = monitor
        self.best_path = self.folder / "best.keras"
        self.step_path = self.folder / "step.keras"

    def save(
        self, model: keras.Model, epoch: int, metrics: dict[str, float] | None = None
    ) -> Path:
        """Saves the state of `model` after `epoch` epochs, and returns the path.

        `metrics` of the epoch decide which checkpoint is best.

        Raises:
            OSError: If it cannot be written. The older checkpoints stay.
        """
        path = self.folder / f"epoch-{epoch:04d}.keras"
        self._write(model, path, epoch, metrics or {})
        self.step_path.unlink(missing_ok=True)
        self._link_best(next(iter(self._best_first()), None))
        others = [other for other in self.paths() if other != path]
        for old in others[: max(0, len(others) + 1 - self.keep)]:
            old.unlink()
        return path

    def save_step(self, model: keras.Model, epoch: int) -> None:
        """Saves the state of `model` within the epoch after `epoch` epochs.

        `KeepPosition` resumes training there.

        Raises:
            OSError: If it cannot be written. The older checkpoints stay.
        """
        self._write(model, self.step_path, epoch, {})

    def load(self, path: str | os.PathLike) -> keras.Model:
        """Loads a checkpoint so that training continues as if it had never stopped.

        `keras.models.load_model` also reads the file, but does not restore the states
        of the random generators, which only files written by `save` contain.
        """
        model = keras.models.load_model(path)
        if states := _read_notes(path).get("random_states"):
            for variable, state in zip(seed_states(model), states, strict=True):
                variable.assign(state)
        return model

    def paths(self) -> list[Path]:
        """Returns the paths of all checkpoints, oldest epoch first."""
        named = [p for p in self.folder.glob("epoch-*.keras") if _NAME.match(p.name)]
        return sorted(named, key=self.epoch_of)

    def latest(self) -> Path | None:
        """Returns the newest complete checkpoint, or None.

        Truncated and corrupt ones are skipped with a warning.
        """
        last = next(iter(self.newest(1)), None)
        if self.step_path.exists() and _is_whole(self.step_path):
            epoch = self.epoch_of(self.step_path)
            if last is None or epoch >= self.epoch_of(last):
                return self.step_path
        return last

    def newest(self, count: int, last_epoch: int | None = None) -> list[Path]:
        """Returns the newest `count` complete checkpoints, oldest epoch first.

        None is of a later epoch than `last_epoch`, if one is given. Truncated and
        corrupt ones are skipped with a warning.
        """
        last = math.inf if last_epoch is None else last_epoch
        paths = [path for path in self.paths() if self.epoch_of(path) <= last]
        complete = filter(_is_whole, reversed(paths))
        return list(itertools.islice(complete, count))[::-1]

    def best(self) -> Path | None:
        """Returns the best complete checkpoint, or None if none has the metric.

        Of several equally good ones, the earliest is the best.
        """
        return next(filter(_is_whole, self._best_first()), None)

    def keep_best(self) -> None:
        """Makes `best.keras` the best checkpoint, after a kill or damage."""
        self._link_best(self.best())

    def epoch_of(self, path: str | os.PathLike) -> int:
        """Returns the number of complete epochs after which `path` was saved."""
        path = Path(path)
        if match := _NAME.match(path.name):
            return int(match[1])
        if path.name in (self.best_path.name, self.step_path.name):
            return _read_notes(path)["epoch"]
        raise ValueError(
            "`path` must be a checkpoint, named like epoch-0007.keras. "
            f"Received: path={str(path)!r}."
        )

    def _write(self, model, path, epoch, metrics):
        storage.remove_unfinished(self.folder)
        # A folder, since Keras may write another file beside the checkpoint.
        with storage.replace_files(self.folder) as unfinished:
            try:
                model.save(unfinished / path.name)
            except RuntimeError as error:
                # Raised by h5py as it closes the file after the error that matters.
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from None
                raise
            seeds = map(keras.ops.convert_to_numpy, seed_states(model))
            states = [seed.tolist() for seed in seeds]
            notes = {"epoch": epoch, "metrics": metrics, "random_states": states}
            with zipfile.ZipFile(unfinished / path.name, "a") as archive:
                # In the comment: Keras would unpack an archive with one more file.
                archive.comment = json.dumps(notes, separators=(",", ":")).encode()

    def _best_first(self):
        """Returns the paths of all checkpoints that have the metric."""
        values = {}
        for path in (self.best_path, *self.paths()):
            # Files that are missing or damaged raise errors of many types.
            with contextlib.suppress(Exception):
                value = float(_read_notes(path)["metrics"][self.monitor])
                if math.isfinite(value):
                    values[path] = value
        is_higher_better = not self.monitor.endswith(("loss", "perplexity"))
        return sorted(values, key=values.get, reverse=is_higher_better)

    def _link_best(self, path):
        if path not in (None, self.best_path):
            with storage.replace_file(self.best_path) as unfinished:
                try:
                    os.link(path, unfinished)
                except OSError:  # a file system without hard links
                    shutil.copyfile(path, unfinished)


class SaveCheckpoints(keras.callbacks.Callback):
    """Saves a checkpoint after every epoch and, optionally, within epochs.

    A second `fit` that starts at epoch 0 counts on from the folder's last checkpoint.

    If a checkpoint cannot be written, training continues with a warning: older ones
    stay, and the next save tries again.

    Args:
        checkpoints: The `Checkpoints` to save to.
        every: Steps between checkpoints within an epoch; the newest is kept until the
            epoch ends. With `KeepPosition` before this callback, training can resume
            there.
        minutes: Minutes between checkpoints within an epoch.
        on_save: Function called after each checkpoint, with the numbers of complete
            epochs and of batches after these.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        every: int | None = None,
        minutes: float | None = None,
        on_save: Callable[[int, int], Any] = lambda epoch, batch: None,
    ):
        super().__init__()
        self.checkpoints = checkpoints
        self.on_save = on_save
        self.every = every or math.inf
        self.seconds = 60 * (minutes or math.inf)
        self._epochs_before = 0

    def on_train_begin(self, logs=None):
        self._epochs_before = 0

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 0 and (paths := self.checkpoints.paths()):
            self._epochs_before = self.checkpoints.epoch_of(paths[-1])
        self._epoch = epoch + self._epochs_before
        self._wait(0)

    def on_train_batch_end(self, batch, logs=None):
        done = batch + 1
        is_due = done >= self._next_step or time.monotonic() >= self._next_time
        # After its last batch, the epoch has a checkpoint of its own.
        is_last = self.model.stop_training or done >= (self.params["steps"] or math.inf)
        if is_due and not is_last:
            with self._warned(f"step {done} of epoch {self._epoch + 1}"):
                self.checkpoints.save_step(self.model, self._epoch)
                self.on_save(self._epoch, done)
            self._wait(done)

    def on_epoch_end(self, epoch, logs=None):
        # Keras counts epochs from 0.
        metrics = {name: float(value) for name, value in (logs or {}).items()}
        with self._warned(f"epoch {self._epoch + 1}"):
            self.checkpoints.save(self.model, self._epoch + 1, metrics)
            self.on_save(self._epoch + 1, 0)

    def _wait(self, done):
        self._next_step = done + self.every
        self._next_time = time.monotonic() + self.seconds

    @contextlib.contextmanager
    def _warned(self, what):
        try:
            yield
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else error
            warnings.warn(
                f"{self.checkpoints.folder}: {what} is not saved ({reason}). Free disk "
                "space: the next checkpoint is tried again.",
                stacklevel=4,
            )


def average_checkpoints(
    paths: str | os.PathLike | Iterable[str | os.PathLike],
) -> keras.Model:
    """Averages the weights of models saved during one training run.

    The mean of the last few epochs is closer to the centre of the minimum than each of
    them, and translates better. It is computed in float64, one file at a time.

    Args:
        paths: Paths of `.keras` files of models of the same config, such as
            `Checkpoints.paths()[-5:]`, compiled in any way.

    Returns:
        The model of the last path with the averaged weights, not compiled. The mean of
        several low-rank adaptations is not low-rank, so it is merged into kernels.

    Raises:
        ValueError: If there is no path, or the models' configs differ.

    Example:
        >>> import tempfile
        >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     paths = [f"{folder}/{bias}.keras" for bias in (1, 2, 6)]
        ...     for path, bias in zip(paths, (1, 2, 6)):
        ...         model.set_weights([np.zeros((1, 1)), np.array([bias])])
        ...         model.save(path)
        ...     average_checkpoints(paths).get_weights()[1]
        array([3.], dtype=float32)

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 6.1
    """
    paths = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not paths:
        raise ValueError("`paths` must name at least one checkpoint. Received: [].")
    first_config = None
    sums: dict[int, Any] = defaultdict(float)
    for path in paths:
        model = keras.models.load_model(path, compile=False)
        config = model.get_config()
        first_config = first_config or config
        # Keras numbers the models of a process, so the names may differ.
        keys = (config.keys() | first_config.keys()) - {"name"}
        differing = sorted(k for k in keys if config.get(k) != first_config.get(k))
        if differing:
            raise ValueError(
                "`paths` must be checkpoints of one model. "
                f"{path} differs from {paths[0]} in: {', '.join(differing)}."
            )
        if len(paths) > 1 and isinstance(model, SettingsModel):
            model = model.merge_lora()
        for index, weight in enumerate(model.weights):
            sums[index] += keras.ops.convert_to_numpy(weight).astype("float64")
    for index, weight in enumerate(model.weights):
        weight.assign(sums[index] / len(paths))
    return model


def _read_notes(path):
    """Returns what `Checkpoints` added to a model's file."""
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.comment or "{}")


def _is_whole(path):
    """Returns whether a checkpoint is undamaged, and warns if it is not."""
    try:
        with zipfile.ZipFile(path) as archive:
            member = archive.testzip()
            json.loads(archive.comment or "{}")
        damage = f"{member} is corrupt" if member else None
    except Exception as error:  # its type depends on what is damaged
        damage = f"{type(error).__name__}: {error}"
    if damage is not None:
        message = f"{path}: skipped, the checkpoint is damaged ({damage})."
        warnings.warn(message, stacklevel=3)
    return damage is None
