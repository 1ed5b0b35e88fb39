"""Prepared text: the training text of a recipe as ids, with its tokenizers."""

from pathlib import Path
from typing import Any

from keras_transformer.runs.recipe import Recipe, settings_of
from keras_transformer.runs.run import Run
from keras_transformer.runs.settings import SIDES, TextSize
from keras_transformer.runs.start import begin
from keras_transformer.runs.survey import survey
from keras_transformer.storage import locked
from keras_transformer.text import prepared

# Other settings have no influence on ids.
_SETTINGS = ("data.", "tokenizer.", "training.max_length ")


def prepare_recipe(
    recipe: Recipe,
    folder: Path,
    num_shards: int = 16,
    max_length_ratio: float | None = None,
    keep_duplicates: bool = False,
    verbose: int = 0,
) -> dict[str, Any]:
    """Learns the tokenizers of a recipe, and writes its training text as ids.

    If it is interrupted, call it again: it continues after the last shard.

    Args:
        recipe: Its data, its tokenizers and `training.max_length` determine the ids.
        folder: A new folder, or one to continue: `settings.yaml`, `run.json`,
            `tokenizers/` and `ids/`.
        num_shards: As in `text.prepare`, like the arguments that follow.
        max_length_ratio: Maximum ratio of the lengths of a pair.
        keep_duplicates: Whether to keep duplicate pairs.
        verbose: 1 shows a progress bar, 0 is silent.

    Returns:
        The manifest of `text.prepare`.

    Raises:
        BlockingIOError: If another process writes to the folder.
        FileNotFoundError: If a file is missing.
        ValueError: If a file has an error, or the folder holds something else.
    """
    files = recipe.data.check_files("train")  # before anything is written
    recipe = recipe.replace({"data.prepared": None, "tokenizer.sampling": 0.0})
    Run(folder).check_kind("prepared")
    with locked(folder):
        run = Run(folder)
        record = run.check_kind("prepared")
        if record is not None and record.text_size:
            settings = settings_of(recipe, begun=run.settings)
            _check_same(settings, run)
        else:
            text = survey(*files)
            settings = settings_of(recipe, text.size)
            is_free = recipe.tokenizer.vocabulary_size is None
            begin(run, settings, text, is_free, "prepared")
            run.update(text_size=text.size)
        return prepared.prepare(
            *settings.data.check_files("train", run.record.min_hash),
            *run.tokenizers(),
            run.ids_path,
            settings.training.max_length,
            num_shards=num_shards,
            max_length_ratio=max_length_ratio,
            keep_duplicates=keep_duplicates,
            verbose=verbose,
        )


def open_prepared(recipe: Recipe) -> tuple[Recipe, TextSize]:
    """Returns a recipe with the vocabulary of its prepared text, and the text's size.

    The size counts only pairs that were kept. It raises an error if the text is not
    finished, or was prepared with other settings or from another text.
    """
    run = Run(str(recipe.data.prepared))
    shards = prepared.read_manifest(run.ids_path)["shards"]
    learnt = run.settings.tokenizer.vocabulary_size
    recipe = recipe.replace(
        {"tokenizer.vocabulary_size": recipe.tokenizer.vocabulary_size or learnt}
    )
    text = recipe.replace({"data.prepared": None})
    settings = settings_of(text, begun=run.settings)
    _check_same(settings, run)
    files = [file.path for side in SIDES for file in text.data.paths("train", side)]
    if all(path.exists() for path in files):
        before, now = run.record.training_text, run.checksum(settings, "training")
        if now != before:
            raise ValueError(
                f"{run.folder} was prepared from text {before}, which is {now} now. "
                "Prepare the text into a new folder."
            )
    pairs, words, characters = run.record.text_size or (1, 1, 1)
    kept = sum(shard["weight"] * sum(shard["pairs"]) for shard in shards)
    return recipe, TextSize(kept, round(words * kept / pairs), characters)


def _check_same(settings, run):
    differences = run.settings.differences(settings)
    if found := [line for line in differences if line.startswith(_SETTINGS)]:
        raise ValueError(
            f"{run.folder} was prepared with other settings: {'; '.join(found)}. "
            "Prepare the text into a new folder, or change these settings."
        )
