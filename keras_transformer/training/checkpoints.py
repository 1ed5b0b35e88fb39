"""Whole models on disk, one an epoch, that survive a kill and a full disk."""

import json
import os
import re
import shutil
import tempfile
import warnings
import zipfile
from pathlib import Path

import keras

_UNFINISHED = ".unfinished-"


class Checkpoints:
    """The newest checkpoints of a training, in a folder of their own.

    A checkpoint is the compiled model as a `.keras` file: weights, optimizer
    and its step, and besides the state of dropout's random numbers, which Keras
    leaves out. A file has its name only once all of it is on the disk, so a
    training that is killed or finds the disk full loses no older checkpoint.

    Args:
        folder: Folder of the checkpoints, made when the first one is saved.
        keep: Number of checkpoints to keep; older ones are removed.

    Raises:
        ValueError: If `keep` is not positive.

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

    def __init__(self, folder: str | os.PathLike, keep: int = 10):
        if keep < 1:
            raise ValueError(
                f"`keep` must be a positive integer. Received: keep={keep}."
            )
        self.folder = Path(folder)
        self.keep = keep

    def save(self, model: keras.Model, epoch: int) -> Path:
        """Saves `model` as it is after `epoch` epochs, and returns the path.

        Raises:
            OSError: If the disk is full, say. Then the folder is as before.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        for leftover in self.folder.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        path = self.folder / f"epoch-{epoch:04d}.keras"
        with tempfile.TemporaryDirectory(
            dir=self.folder, prefix=_UNFINISHED, ignore_cleanup_errors=True
        ) as unfinished:
            written = Path(unfinished, path.name)
            _write(model, written)
            os.replace(written, path)
        _flush(self.folder)
        others = [other for other in self.paths() if other != path]
        for old in others[: max(0, len(others) + 1 - self.keep)]:
            old.unlink()
        return path

    def load(self, path: str | os.PathLike) -> keras.Model:
        """Loads a checkpoint so that training goes on as if never stopped.

        `keras.models.load_model` reads the file too, but draws new random
        numbers for dropout; so does this from a file that `save` did not write.
        """
        model = keras.models.load_model(path)
        with zipfile.ZipFile(path) as archive:
            states = _read_random_states(archive)
        for variable, state in zip(_random_states(model), states, strict=False):
            variable.assign(state)
        return model

    def paths(self) -> list[Path]:
        """Returns the paths of all checkpoints, oldest epoch first."""
        named = [p for p in self.folder.glob("epoch-*.keras") if _NAME.match(p.name)]
        return sorted(named, key=self.epoch_of)

    def latest(self) -> Path | None:
        """Returns the newest checkpoint that is whole, None if there is none.

        Each one that is cut or corrupt is skipped with a warning.
        """
        for path in reversed(self.paths()):
            damage = _damage(path)
            if damage is None:
                return path
            warnings.warn(
                f"{path}: skipped, the checkpoint is not whole ({damage}).",
                stacklevel=2,
            )
        return None

    def epoch_of(self, path: str | os.PathLike) -> int:
        """Returns the number of epochs after which `path` was saved."""
        match = _NAME.match(Path(path).name)
        if match is None:
            raise ValueError(
                "`path` must be a checkpoint, named like epoch-0007.keras. "
                f"Received: path={str(path)!r}."
            )
        return int(match[1])


class SaveCheckpoints(keras.callbacks.Callback):
    """Saves a checkpoint after every epoch.

    When one cannot be written, training goes on with a warning: the next
    epoch saves again, and the last whole checkpoint stays.

    Args:
        checkpoints: The `Checkpoints` to save to.
    """

    def __init__(self, checkpoints: Checkpoints):
        super().__init__()
        self.checkpoints = checkpoints

    def on_epoch_end(self, epoch, logs=None):
        try:
            # Keras counts epochs from 0.
            self.checkpoints.save(self.model, epoch + 1)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else error
            warnings.warn(
                f"{self.checkpoints.folder}: epoch {epoch + 1} is not saved "
                f"({reason}). Make room on the disk: the next epoch saves again.",
                stacklevel=2,
            )


_NAME = re.compile(r"epoch-(\d{4,})\.keras$")


def _write(model, path):
    try:
        model.save(path)
    except RuntimeError as error:
        # h5py's, from closing a file after the error that matters.
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise
    states = [keras.ops.convert_to_numpy(x).tolist() for x in _random_states(model)]
    with zipfile.ZipFile(path, "a") as archive:
        # Not a file of the archive: Keras would unpack all of it on loading.
        archive.comment = json.dumps(states, separators=(",", ":")).encode()
    _flush(path)


def _read_random_states(archive):
    return json.loads(archive.comment or "[]")


def _random_states(model):
    """The states of the model's seed generators.

    As Keras documents, `variables` has them and `weights` does not.
    """
    weights = {id(weight) for weight in model.weights}
    return [variable for variable in model.variables if id(variable) not in weights]


def _flush(path):
    """Waits until a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _damage(path):
    """Says what is wrong with a checkpoint; None if nothing is."""
    try:
        with zipfile.ZipFile(path) as archive:
            member = archive.testzip()
            _read_random_states(archive)
    except Exception as error:  # of many kinds, depending on where the damage is
        return f"{type(error).__name__}: {error}"
    return f"{member} is corrupt" if member else None
