"""The folder of a run: where it keeps what."""

import importlib.metadata
import os
import platform
import shutil
import zlib
from pathlib import Path

import yaml

from keras_transformer.runs.recipe import SIDES, Recipe
from keras_transformer.storage import write_text
from keras_transformer.runs.log import Log
from keras_transformer.text import SubwordTokenizer
from keras_transformer.training import Checkpoints, average_checkpoints
from keras_transformer.translator import Translator
from keras_transformer.version import __version__

_LIBRARIES = ("keras", "tensorflow", "tensorflow-text", "sentencepiece", "numpy")


class Run:
    """The folder of a run, which holds everything that made a translator.

    - `settings.yaml`: every setting, and the versions of text and libraries;
    - `tokenizers/`, `checkpoints/`;
    - `log.csv`, a row an epoch, and `tensorboard/`;
    - `translator/`: what came of it.

    Args:
        folder: Path of the folder; it need not exist.
    """

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder)
        self.settings_path = self.folder / "settings.yaml"
        self.tokenizers_path = self.folder / "tokenizers"
        self.translator_path = self.folder / "translator"
        self.tensorboard_path = self.folder / "tensorboard"
        self.log = Log(self.folder / "log.csv")

    def recipe(self) -> Recipe:
        """Returns the settings of the run.

        Raises:
            FileNotFoundError: If the folder holds no run.
        """
        if not self.settings_path.is_file():
            raise FileNotFoundError(
                f"{self.folder} holds no run: there is no {self.settings_path.name}. "
                "Name a folder that `train` made."
            )
        return Recipe.load(self.settings_path)

    def checkpoints(self) -> Checkpoints:
        """Returns the checkpoints of the run."""
        keep = self.recipe().training.keep
        return Checkpoints(self.folder / "checkpoints", keep=keep)

    def translator(self) -> Translator:
        """Returns the translator that came of the run.

        Raises:
            FileNotFoundError: If there is none yet.
        """
        if not self.translator_path.is_dir():
            raise FileNotFoundError(
                f"{self.folder} holds no translator yet. Train to the end, or average "
                "the checkpoints that are there."
            )
        return Translator.load(self.translator_path)

    def begin(self, recipe: Recipe) -> None:
        """Prepares the folder for training: a new one, or one to go on with.

        Args:
            recipe: The settings. Of those that a training began with, only some may
                change, such as `training.epochs`.

        Raises:
            FileNotFoundError: If a file of training text is missing.
            ValueError: If the folder holds something else. It stays as it is.
        """
        versions = {**_versions(), "training_text": _checksum(recipe)}
        if self.has_trained():
            self._check_same(recipe, versions["training_text"])
        elif self._holds_something_else():
            raise ValueError(
                f"{self.folder} holds something else than a run. Name a new folder."
            )
        else:  # of a training that was interrupted before it had learnt anything
            shutil.rmtree(self.tokenizers_path, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = {"versions": versions, **recipe.to_dict()}
        settings["data"]["folder"] = str(Path(recipe.data.folder).resolve())
        text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
        write_text(self.settings_path, text)

    def join(self, recipe: Recipe) -> None:
        """Checks that a training which another worker has begun is this one.

        Raises:
            FileNotFoundError: If nobody has begun one.
            ValueError: If it is of other settings or of other text.
        """
        if not self.settings_path.is_file():
            raise FileNotFoundError(
                f"{self.folder} holds no run that another worker has begun. All must "
                "share the folder: name one on a disk that they all see."
            )
        self._check_same(recipe, _checksum(recipe))

    def has_trained(self) -> bool:
        """Tells whether there is anything of a training that could be lost."""
        return self.settings_path.is_file() and bool(
            self.checkpoints().paths() or self.translator_path.exists()
        )

    def tokenizers(self) -> tuple[SubwordTokenizer, SubwordTokenizer]:
        """Returns the tokenizers of both sides; a new run learns them first."""
        recipe = self.recipe()
        settings = recipe.tokenizer
        files = {side: recipe.data.paths("train", side) for side in SIDES}
        if settings.shared:
            files = {"shared": [*files["source"], *files["target"]]}
        paths = [self.tokenizers_path / f"{name}.model" for name in files]
        for path, texts in zip(paths, files.values(), strict=True):
            if not path.exists() and not self.has_trained():
                SubwordTokenizer.train(
                    texts,
                    vocabulary_size=settings.vocabulary_size,
                    model_type=settings.model_type,
                    character_coverage=settings.character_coverage,
                    split_digits=settings.split_digits,
                ).save(path)
        return SubwordTokenizer.load(paths[0]), SubwordTokenizer.load(paths[-1])

    def average(self, last: int) -> list[Path]:
        """Makes the translator of the mean weights of the last checkpoints.

        Args:
            last: How many checkpoints, at most.

        Returns:
            The paths of the checkpoints.

        Raises:
            FileNotFoundError: If there is no whole checkpoint.
        """
        checkpoints = self.checkpoints()
        latest = checkpoints.latest()
        if latest is None:
            raise FileNotFoundError(
                f"{checkpoints.folder} holds no whole checkpoint. Train first."
            )
        paths = checkpoints.paths()
        paths = paths[: paths.index(latest) + 1][-last:]
        translator = Translator(
            average_checkpoints(paths),
            *self.tokenizers(),
            max_source_length=max_source_length(self.recipe()),
        )
        translator.save(self.translator_path)
        return paths

    def _holds_something_else(self):
        if self.settings_path.is_file() or not self.folder.exists():
            return False
        return not self.folder.is_dir() or any(self.folder.iterdir())

    def _check_same(self, recipe, training_text):
        parted = self.recipe().differences(recipe)
        settings = yaml.safe_load(self.settings_path.read_text("utf-8"))
        before = settings["versions"].get("training_text", training_text)
        if before != training_text:
            parted.append(f"its training text was {before} and is {training_text}")
        if parted:
            raise ValueError(
                f"{self.folder} holds another model: {'; '.join(parted)}. Name another "
                "run folder, or train with the settings that this one began with."
            )


def max_source_length(recipe: Recipe) -> int:
    """Returns the longest source that a run's translator reads, in subwords.

    Beyond what it was trained on, a model still translates better than not at all.
    """
    return 2 * recipe.training.max_length


def _versions():
    libraries = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    python = platform.python_version()
    return {"keras-transformer": __version__, "python": python, **libraries}


def _checksum(recipe):
    """Returns a short mark of the training text, whatever its files are called."""
    checksum = 0
    for side in SIDES:
        for path in recipe.data.paths("train", side):
            with open(path, "rb") as file:
                while block := file.read(1 << 20):
                    checksum = zlib.crc32(block, checksum)
    return f"crc32:{checksum:08x}"
