"""What happens before training: the folder, the tokenizers and the datasets."""

import importlib.metadata
import platform
import shutil
import zlib
from pathlib import Path
from typing import NamedTuple

import tensorflow as tf
import yaml

from keras_transformer.models.presets import PRESETS
from keras_transformer.runs.distillation import copy_tokenizers
from keras_transformer.runs.folder import Run
from keras_transformer.runs.log import TRANSLATION_METRICS, VALIDATION_METRICS
from keras_transformer.runs.pretrained import copy_pretrained
from keras_transformer.runs.recipe import Recipe
from keras_transformer.runs.settings import TrainingSettings
from keras_transformer.runs.text_files import SIDES
from keras_transformer.storage import is_unfinished, remove_unfinished, write_text
from keras_transformer.text import SubwordTokenizer, parallel_dataset
from keras_transformer.training import Workers
from keras_transformer.version import __version__

PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
_LIBRARIES = ("keras", "tensorflow", "tensorflow-text", "sentencepiece", "numpy")


class TrainingData(NamedTuple):
    """The tokenizers of a run, and its text as batches."""

    tokenizers: tuple[SubwordTokenizer, SubwordTokenizer]
    train: tf.data.Dataset
    validation: tf.data.Dataset


def prepare(recipe: Recipe, run: Run, workers: Workers) -> TrainingData:
    """Prepares a run, new or interrupted: its folder, tokenizers and datasets.

    The chief writes the folder and the tokenizers; the other workers only read them.
    """
    check_recipe(recipe)
    check_precision(recipe.training, workers.strategy.num_replicas_in_sync)
    if workers.is_chief:
        begin_run(recipe, run)
    workers.wait()
    if not workers.is_chief:
        join_run(recipe, run)
    tokenizers = run.tokenizers()
    validation = _dataset(recipe, tokenizers, "validation", shuffle=False)
    seed = recipe.training.seed
    sampling = recipe.tokenizer.sampling
    train = _dataset(recipe, tokenizers, "train", seed=seed, sampling=sampling)
    return TrainingData(tokenizers, train, validation)


def check_recipe(recipe: Recipe) -> None:
    """Raises `ValueError` if settings contradict each other."""
    _check_model(recipe.model)
    _check_best(recipe.training)
    _check_optimizer(recipe.training)
    check_precision(recipe.training)
    _check_consistency(recipe.training)


def begin_run(recipe: Recipe, run: Run) -> None:
    """Writes the settings and the tokenizers of a new run, or checks an existing one.

    In a run that has trained, only some settings may change, such as
    `training.epochs`. A folder that holds something else stays as it is.
    """
    checksum = check_run(recipe, run)
    has_trained = run.has_trained()
    run.folder.mkdir(parents=True, exist_ok=True)
    paths = run.translator_path, run.pretrained_path, run.diversification_path
    for folder in (run.folder, *paths):
        remove_unfinished(folder)
    versions = {"keras-transformer": __version__, "python": platform.python_version()}
    versions |= {name: importlib.metadata.version(name) for name in _LIBRARIES}
    versions["training_text"] = checksum
    settings = {"versions": versions, **recipe.to_dict_of_run(run.folder)}
    settings["data"]["folder"] = str(Path(recipe.data.folder).resolve())
    text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
    write_text(run.settings_path, text)
    if not has_trained:
        # An interrupted start may have left those of other settings.
        shutil.rmtree(run.tokenizers_path, ignore_errors=True)
        shutil.rmtree(run.pretrained_path, ignore_errors=True)
        if recipe.model.pretrained:
            copy_pretrained(recipe.model.pretrained, recipe, run)
        elif recipe.training.teachers:
            copy_tokenizers(recipe, run)
        else:
            _train_tokenizers(recipe, run)


def check_run(recipe: Recipe, run: Run) -> str:
    """Checks the files of a recipe and the folder, and returns the text's checksum.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: As `check_settings`, or if the training text has changed.
    """
    for split in ("train", "validation"):
        recipe.data.check_files(split)
    checksum = _text_checksum(recipe)
    check_settings(recipe, run, checksum)
    return checksum


def check_settings(recipe: Recipe, run: Run, checksum: str | None = None) -> None:
    """Raises `ValueError` if the folder holds another model, or something else.

    `checksum` is that of the training text, if it exists yet.
    """
    if run.has_trained():
        _check_same(recipe, run, checksum)
    elif _holds_something_else(run):
        raise ValueError(
            f"{run.folder} holds something other than a run. Name a new folder."
        )


def join_run(recipe: Recipe, run: Run) -> None:
    """Checks that the chief has begun a run with the same settings and text."""
    if not run.settings_path.is_file():
        raise FileNotFoundError(
            f"{run.folder} holds no run that another worker has begun. All workers "
            "must share the folder: name one on a disk that all of them can read."
        )
    _check_same(recipe, run, _text_checksum(recipe))


def _check_model(settings):
    if (settings.frozen or settings.lora_rank) and not settings.pretrained:
        raise ValueError(
            "`model.frozen` and `model.lora_rank` must be left out without "
            "`model.pretrained`: weights that are not trained would stay random. "
            f"Received: frozen={list(settings.frozen)}, "
            f"lora_rank={settings.lora_rank}."
        )
    if settings.preset not in PRESETS:
        raise ValueError(
            f"`model.preset` must be one of {', '.join(PRESETS)}. Received: "
            f"{settings.preset!r}. A translator to continue from is "
            "`model.pretrained`, or --from in the shell."
        )


def _check_optimizer(settings):
    if settings.optimizer not in ("adam", "muon"):
        raise ValueError(
            "`training.optimizer` must be adam or muon. Received: "
            f"{settings.optimizer!r}."
        )


def check_precision(settings: TrainingSettings, num_replicas: int = 1) -> None:
    """Raises `ValueError` unless models can be trained in such a precision.

    On several devices, Keras 3.15 looks for overflows of float16 on the first alone.
    """
    known = PRECISIONS[: 2 if num_replicas > 1 else 3]
    if settings.precision not in known:
        where = f" on {num_replicas} devices" if num_replicas > 1 else ""
        raise ValueError(
            f"`training.precision` must be one of {', '.join(known)}{where}. Received: "
            f"{settings.precision!r}."
        )


def _check_consistency(settings):
    if sum(map(bool, (settings.rdrop, settings.simcut, settings.teachers))) > 1:
        raise ValueError(
            "Only one of `training.rdrop`, `training.simcut` and `training.teachers` "
            f"may be set. Received: rdrop={settings.rdrop}, simcut={settings.simcut}, "
            f"teachers={list(settings.teachers)}."
        )


def _check_best(settings):
    known = VALIDATION_METRICS
    if settings.bleu_every is not None and settings.bleu_every <= settings.epochs:
        known += TRANSLATION_METRICS
    if settings.best not in known:
        raise ValueError(
            f"`training.best` must be one of {', '.join(VALIDATION_METRICS)} or, with "
            "`training.bleu_every` of at most `training.epochs`, "
            f"{', '.join(TRANSLATION_METRICS)}. Received: best={settings.best}, "
            f"bleu_every={settings.bleu_every}, epochs={settings.epochs}."
        )


def _train_tokenizers(recipe, run):
    settings = recipe.tokenizer
    files = {side: recipe.data.paths("train", side) for side in SIDES}
    if settings.shared:
        files = {"shared": [*files["source"], *files["target"]]}
    for name, paths in files.items():
        SubwordTokenizer.train(
            paths,
            vocabulary_size=settings.vocabulary_size,
            model_type=settings.model_type,
            character_coverage=settings.character_coverage,
            split_digits=settings.split_digits,
            byte_fallback=settings.byte_fallback,
        ).save(run.tokenizer_path(name))


def _dataset(recipe, tokenizers, split, **options):
    return parallel_dataset(
        *(recipe.data.paths(split, side) for side in SIDES),
        *tokenizers,
        tokens_per_batch=recipe.training.tokens_per_batch,
        max_length=recipe.training.max_length,
        **options,
    )


def _holds_something_else(run):
    if run.settings_path.is_file() or not run.folder.exists():
        return False
    return not run.folder.is_dir() or not all(
        is_unfinished(path) or path == run.diversification_path
        for path in run.folder.iterdir()
    )


def _check_same(recipe, run, checksum):
    differences = run.recipe().differences(recipe)
    settings = yaml.safe_load(run.settings_path.read_text("utf-8"))
    before = settings["versions"].get("training_text", checksum)
    if checksum not in (None, before):
        differences.append(f"its training text was {before} and is {checksum}")
    if differences:
        raise ValueError(
            f"{run.folder} holds another model: {'; '.join(differences)}. Name another "
            "run folder, or train with the settings that this run began with."
        )


def _text_checksum(recipe):
    """Returns a checksum of the training text that ignores the names of its files."""
    checksum = 0
    for side in SIDES:
        for path in recipe.data.paths("train", side):
            with open(path, "rb") as file:
                while block := file.read(1 << 20):
                    checksum = zlib.crc32(block, checksum)
    return f"crc32:{checksum:08x}"
