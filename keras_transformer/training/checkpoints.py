"""Checkpoints of whole models, safe from kills and full disks."""

import json
import os
import re
import warnings
import zipfile
from pathlib import Path

import keras

from keras_transformer import storage
from keras_transformer.checks import check_positive_integers

_NAME = re.compile(r"epoch-(\d{4,})\.keras$")


class Checkpoints:
    """The newest checkpoints of a training run, in a folder.

    A checkpoint is the compiled model as a `.keras` file: weights, optimizer with its
    step and, beyond what Keras saves, the states of the random generators. It appears
    once all of it is on disk: killed runs and full disks leave the older checkpoints.

    Args:
        folder: Folder of the checkpoints, created with the first one.
        keep: Number of checkpoints to keep; older ones are removed.

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

    def __init__(self, folder: str | os.PathLike, keep: int = 10):
        check_positive_integers(keep=keep)
        self.folder = Path(folder)
        self.keep = keep

    def save(self, model: keras.Model, epoch: int) -> Path:
        """Saves `model` as it is after `epoch` epochs, and returns the path.

        Raises:
            OSError: If it cannot be written. The older checkpoints stay.
        """
        storage.remove_unfinished(self.folder)
        path = self.folder / f"epoch-{epoch:04d}.keras"
        # A folder, since Keras may write another file beside the checkpoint.
        with storage.replace_files(self.folder) as unfinished:
            _write(model, unfinished / path.name)
        others = [other for other in self.paths() if other != path]
        for old in others[: max(0, len(others) + 1 - self.keep)]:
            old.unlink()
        return path

    def load(self, path: str | os.PathLike) -> keras.Model:
        """Loads a checkpoint so that training continues as if never stopped.

        `keras.models.load_model` reads the file too, but does not restore the states
        of the random generators. A file that `save` did not write has none.
        """
        model = keras.models.load_model(path)
        with zipfile.ZipFile(path) as archive:
            states = json.loads(archive.comment or "[]")
        for variable, state in zip(_random_states(model), states, strict=False):
            variable.assign(state)
        return model

    def paths(self) -> list[Path]:
        """Returns the paths of all checkpoints, oldest epoch first."""
        named = [p for p in self.folder.glob("epoch-*.keras") if _NAME.match(p.name)]
        return sorted(named, key=self.epoch_of)

    def latest(self) -> Path | None:
        """Returns the newest complete checkpoint, None if there is none.

        Truncated and corrupt ones are skipped with a warning.
        """
        for path in reversed(self.paths()):
            damage = _damage(path)
            if damage is None:
                return path
            warnings.warn(
                f"{path}: skipped, the checkpoint is damaged ({damage}).", stacklevel=2
            )
        return None

    def epoch_of(self, path: str | os.PathLike) -> int:
        """Returns the number of epochs after which `path` was saved."""
        if match := _NAME.match(Path(path).name):
            return int(match[1])
        raise ValueError(
            "`path` must be a checkpoint, named like epoch-0007.keras. "
            f"Received: path={str(path)!r}."
        )


class SaveCheckpoints(keras.callbacks.Callback):
    """Saves a checkpoint after every epoch.

    If one cannot be written, training continues with a warning: older checkpoints
    stay, and the next epoch saves again.

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
                f"({reason}). Free disk space: the next epoch saves again.",
                stacklevel=2,
            )


def _write(model, path):
    try:
        model.save(path)
    except RuntimeError as error:
        # Raised by h5py as it closes the file after the error that matters.
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise
    states = [keras.ops.convert_to_numpy(x).tolist() for x in _random_states(model)]
    with zipfile.ZipFile(path, "a") as archive:
        # In the comment: for one more file Keras would unpack the archive on loading.
        archive.comment = json.dumps(states, separators=(",", ":")).encode()


def _random_states(model):
    """The states of the seed generators: in `model.variables`, not in `weights`."""
    weights = {id(weight) for weight in model.weights}
    return [variable for variable in model.variables if id(variable) not in weights]


def _damage(path):
    """Describes what is wrong with a checkpoint; None if nothing is."""
    try:
        with zipfile.ZipFile(path) as archive:
            member = archive.testzip()
            json.loads(archive.comment or "[]")
    except Exception as error:  # its type depends on what is damaged
        return f"{type(error).__name__}: {error}"
    return f"{member} is corrupt" if member else None
