"""A run: one folder with everything that made a translator, and the translator."""

import csv
import importlib.metadata
import io
import os
import platform
import sys
import time
from pathlib import Path

import keras
import yaml

from keras_transformer.decoding import GreedySearch
from keras_transformer.models import Transformer
from keras_transformer.recipe import Recipe
from keras_transformer.text import SubwordTokenizer, parallel_dataset, read_lines
from keras_transformer.training import (
    BleuCallback,
    Checkpoints,
    InverseSquareRootSchedule,
    Perplexity,
    SaveCheckpoints,
    TokenAccuracy,
    TokenCrossentropy,
    average_checkpoints,
    pick_strategy,
)
from keras_transformer.translator import Translator
from keras_transformer.version import __version__

_LIBRARIES = ("keras", "tensorflow", "tensorflow-text", "sentencepiece", "numpy")
_COLUMNS = (
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


class Run:
    """The folder of a run.

    It holds `settings.yaml`, the recipe with every setting and the versions that it
    ran on; `tokenizers/`; `checkpoints/`; `log.csv`, a row an epoch; `tensorboard/`;
    and `translator/`, the outcome.

    Args:
        folder: Path of the folder; `train` makes it.
    """

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder)
        self.settings_path = self.folder / "settings.yaml"
        self.translator_path = self.folder / "translator"
        self.checkpoints_path = self.folder / "checkpoints"
        self.log = Log(self.folder / "log.csv")

    def recipe(self) -> Recipe:
        """Reads the settings of the run.

        Raises:
            FileNotFoundError: If the folder holds no run.
        """
        if not self.settings_path.is_file():
            raise FileNotFoundError(
                f"{self.folder} is no run: it has no {self.settings_path.name}. Name a "
                "folder that `train` made."
            )
        return Recipe.load(self.settings_path)

    def checkpoints(self, keep: int | None = None) -> Checkpoints:
        """Returns the checkpoints of the run.

        Args:
            keep: How many to keep; by default what the recipe says.
        """
        keep = keep or self.recipe().training.keep
        return Checkpoints(self.checkpoints_path, keep=keep)

    def average(self, last: int) -> Translator:
        """Makes the translator: the mean of the last checkpoints' weights.

        Args:
            last: How many checkpoints to average, at most.

        Returns:
            The translator, which is also written to `translator/`.
        """
        paths = self.checkpoints().paths()
        if not paths:
            raise FileNotFoundError(
                f"{self.checkpoints_path} holds no checkpoint. Train first."
            )
        recipe = self.recipe()
        translator = Translator(
            average_checkpoints(paths[-last:]),
            *self._load_tokenizers(recipe.tokenizer.shared),
            max_source_length=2 * recipe.training.max_length,
        )
        translator.save(self.translator_path)
        return translator

    def begin(self, recipe: Recipe):
        """Makes the folder hold a recipe, or checks that it holds the same one.

        Raises:
            ValueError: If the folder holds something else, which stays as it is.
        """
        if self.settings_path.is_file():
            if self._has_trained() and (parted := self.recipe().differences(recipe)):
                raise ValueError(
                    f"{self.folder} holds another model: {'; '.join(parted)}. Name "
                    "another run folder, or the settings that this one began with."
                )
        elif self.folder.exists() and (
            not self.folder.is_dir() or any(self.folder.iterdir())
        ):
            raise ValueError(
                f"{self.folder} holds something else than a run. Name a new folder."
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = {"versions": _versions(), **recipe.to_dict()}
        _replace(self.settings_path, yaml.safe_dump(settings, sort_keys=False))

    def tokenizers(self, recipe: Recipe) -> list[SubwordTokenizer]:
        """Returns the tokenizers of both languages; learns them for a new run."""
        settings = recipe.tokenizer
        if not self._has_trained():
            sides = {side: recipe.data.paths("train", side) for side in SIDES}
            if settings.shared:
                sides = {"shared": [*sides["source"], *sides["target"]]}
            for name, files in sides.items():
                SubwordTokenizer.train(
                    files,
                    vocabulary_size=settings.vocabulary_size,
                    model_type=settings.model_type,
                    character_coverage=settings.character_coverage,
                    split_digits=settings.split_digits,
                ).save(self._tokenizer_path(name))
        return self._load_tokenizers(settings.shared)

    def _has_trained(self):
        return self.log.path.exists() or any(self.checkpoints_path.glob("*.keras"))

    def _tokenizer_path(self, name):
        return self.folder / "tokenizers" / f"{name}.model"

    def _load_tokenizers(self, shared):
        if shared:
            return [SubwordTokenizer.load(self._tokenizer_path("shared"))] * 2
        return [SubwordTokenizer.load(self._tokenizer_path(side)) for side in SIDES]


SIDES = ("source", "target")


class Log:
    """A table of a run's epochs in a CSV file, one row each.

    Args:
        path: The file.
    """

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path)

    def rows(self) -> list[dict[str, str]]:
        """Returns the rows, oldest first; what a kill cut short is left out."""
        if not self.path.exists():
            return []
        whole, newline, _ = self.path.read_text("utf-8").rpartition("\n")
        rows = csv.DictReader(io.StringIO(whole + newline))
        return [row for row in rows if row[_COLUMNS[-1]] is not None]

    def begin(self, epochs: int) -> None:
        """Cuts the table down to its first epochs, after which training goes on."""
        rows = [row for row in self.rows() if int(row["epoch"]) <= epochs]
        lines = [_COLUMNS, *([row[name] for name in _COLUMNS] for row in rows)]
        _replace(self.path, "".join(map(_csv_line, lines)))

    def append(self, row: dict) -> None:
        """Adds a row, on the disk when this returns."""
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(_csv_line([row.get(name, "") for name in _COLUMNS]))
            file.flush()
            os.fsync(file.fileno())

    def epochs_without_gain(self) -> int:
        """Returns how many epochs ago the validation loss was at its lowest."""
        losses = [float(row["val_loss"]) for row in self.rows()]
        return len(losses) - 1 - losses.index(min(losses)) if losses else 0


class WriteLog(keras.callbacks.Callback):
    """Writes each epoch into a `Log`, and ends training where it has stalled.

    Args:
        log: The `Log`.
        patience: Epochs without a lower validation loss to wait for; None trains on.
    """

    def __init__(self, log: Log, patience: int | None = None):
        super().__init__()
        self.log = log
        self.patience = patience

    def on_epoch_begin(self, epoch, logs=None):
        self._started = time.monotonic()

    def on_epoch_end(self, epoch, logs=None):
        numbers = {name: f"{float(value):.6g}" for name, value in logs.items()}
        rate = float(self.model.optimizer.learning_rate)
        seconds = time.monotonic() - self._started
        self.log.append(
            numbers
            | {
                "epoch": epoch + 1,  # Keras counts from 0
                "learning_rate": f"{rate:.6g}",
                "seconds": f"{seconds:.1f}",
            }
        )
        if self.patience and self.log.epochs_without_gain() >= self.patience:
            self.model.stop_training = True


def train(recipe: Recipe, folder: str | os.PathLike) -> Translator:
    """Trains what a recipe describes, or goes on where that was interrupted.

    Args:
        recipe: Settings and files.
        folder: The run's folder. Where it holds checkpoints of the same recipe,
            training goes on after the last whole one.

    Returns:
        The translator that the run came to, which is also in its folder.

    Raises:
        FileNotFoundError: If a file of text is missing.
        ValueError: If a file is faulty, or the folder holds another run.
    """
    settings = recipe.training
    run = Run(folder)
    run.begin(recipe)
    keras.utils.set_random_seed(settings.seed)
    tokenizers = run.tokenizers(recipe)
    checkpoints = run.checkpoints()
    latest = checkpoints.latest()
    epoch = checkpoints.epoch_of(latest) if latest else 0

    def dataset(split, **order):
        return parallel_dataset(
            *(recipe.data.paths(split, side) for side in SIDES),
            *tokenizers,
            tokens_per_batch=settings.tokens_per_batch,
            max_length=settings.max_length,
            **order,
        )

    train_data = dataset(
        "train",
        seed=settings.seed,
        initial_epoch=epoch,
        sampling=recipe.tokenizer.sampling,
    )
    validation_data = dataset("validation", shuffle=False)
    with pick_strategy(settings.strategy).scope():
        model = (
            checkpoints.load(latest) if latest else _compiled_model(recipe, tokenizers)
        )
    run.log.begin(epoch)
    stalled = (
        settings.early_stopping
        and run.log.epochs_without_gain() >= settings.early_stopping
    )
    if not stalled:
        model.fit(
            train_data,
            validation_data=validation_data,
            epochs=settings.epochs,
            initial_epoch=epoch,
            shuffle=False,  # the dataset has done that
            verbose=1 if sys.stdout.isatty() else 2,
            callbacks=_callbacks(run, recipe, model, tokenizers, train_data),
        )
    return run.average(recipe.decoding.average)


def _compiled_model(recipe, tokenizers):
    settings = recipe.training
    source, target = (tokenizer.vocabulary_size for tokenizer in tokenizers)
    model = Transformer.from_preset(
        recipe.model.preset,
        source,
        target_vocabulary_size=None if recipe.tokenizer.shared else target,
        dtype=settings.precision,
        **recipe.model.overrides(),
    )
    schedule = InverseSquareRootSchedule.with_peak(
        settings.learning_rate, model.get_config()["hidden_dim"], settings.warmup_steps
    )
    optimizer = keras.optimizers.Adam(schedule, beta_1=0.9, beta_2=0.98, epsilon=1e-9)
    if settings.precision == "mixed_float16":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    model.compile(
        optimizer,
        TokenCrossentropy(settings.label_smoothing),
        metrics=[TokenAccuracy(), Perplexity()],
        jit_compile=settings.jit_compile,
    )
    return model


def _callbacks(run, recipe, model, tokenizers, train_data):
    """Returns the callbacks in their order: the log's row needs the BLEU figure."""
    settings = recipe.training
    callbacks = [
        keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda epoch, logs: train_data.epoch.assign(epoch)
        )
    ]
    if settings.bleu_every:
        translator = Translator(model, *tokenizers, 2 * settings.max_length)
        sources, references = (
            _first_lines(recipe.data.paths("validation", side), settings.bleu_sentences)
            for side in SIDES
        )
        callbacks.append(
            BleuCallback(
                lambda texts: translator.translate(texts, GreedySearch()),
                sources,
                references,
                every=settings.bleu_every,
            )
        )
    return [
        *callbacks,
        WriteLog(run.log, settings.early_stopping),
        keras.callbacks.TensorBoard(run.folder / "tensorboard"),
        SaveCheckpoints(run.checkpoints()),
    ]


def _first_lines(paths, count):
    lines = (line for path in paths for line in read_lines(path))
    return [line for line, _ in zip(lines, range(count), strict=False)]


def _versions():
    libraries = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    python = platform.python_version()
    return {"keras-transformer": __version__, "python": python, **libraries}


def _csv_line(values):
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(values)
    return line.getvalue()


def _replace(path, text):
    """Writes a file at once: it is the new one or, after a fault, the old one."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(unfinished, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
