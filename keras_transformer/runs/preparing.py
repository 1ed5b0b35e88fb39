"""Prepared text: the training text of a recipe as ids, with its tokenizers."""

import json
from pathlib import Path
from typing import Any

from keras_transformer.runs.defaults import TextSize, left_out, measure, settings_for
from keras_transformer.runs.folder import Run
from keras_transformer.runs.recipe import SIDES, Recipe
from keras_transformer.runs.start import begin, check_new
from keras_transformer.storage import write_text
from keras_transformer.text import prepared

_SIZE = "text.json"  # written once the tokenizers are there
# Other settings have no influence on ids.
_SETTINGS = ("data.", "tokenizer.", "training.max_length ")


def prepare(
    recipe: Recipe,
    folder: Path,
    num_shards: int = 16,
    max_length_ratio: float | None = None,
    keep_duplicates: bool = False,
    verbose: int = 0,
) -> dict[str, Any]:
    """Learns the tokenizers of a recipe, and writes its training text as ids.

    If it was interrupted, repeat it: it continues after the last shard.

    Args:
        recipe: Its data, its tokenizers and `training.max_length` determine the ids.
        folder: A new folder, or one to continue: `settings.yaml`, `tokenizers/` and
            `ids/`.
        num_shards: As in `text.prepare`, as all that follow.
        max_length_ratio: Of a pair's sides.
        keep_duplicates: Whether equal pairs are kept.
        verbose: 1 shows a progress bar, 0 nothing.

    Returns:
        The manifest of `text.prepare`.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is faulty, or the folder holds something else.
    """
    sources, targets = recipe.data.check_files("train")
    recipe = recipe.completed({"data.prepared": None, "tokenizer.sampling": 0.0})
    run, size = Run(folder), Path(folder, _SIZE)
    if size.is_file():
        _check_same(recipe, run)
        recipe = recipe.completed(left_out(recipe, run.recipe))
    else:
        if run.has_trained():
            raise ValueError(f"{folder} holds a run. Name a new folder.")
        check_new(run)
        measured = measure(sources, targets)
        is_free = recipe.tokenizer.vocabulary_size is None
        recipe = recipe.completed(settings_for(recipe, measured))
        begin(recipe, run, 0, is_free)
        found = {"bytes": _num_bytes(recipe), **measured._asdict()}
        write_text(size, json.dumps(found) + "\n")
    return prepared.prepare(
        sources,
        targets,
        *run.tokenizers(),
        run.ids_path,
        recipe.training.max_length,
        num_shards=num_shards,
        max_length_ratio=max_length_ratio,
        keep_duplicates=keep_duplicates,
        verbose=verbose,
    )


def open_prepared(recipe: Recipe) -> tuple[Recipe, TextSize]:
    """Returns a recipe with the vocabulary of its prepared text, and the text's size.

    Raises:
        FileNotFoundError: If `data.prepared` holds no prepared text.
        ValueError: If it is not finished, or was prepared with other settings or,
            where the text is there too, from a text of another size.
    """
    run = Run(str(recipe.data.prepared))
    prepared.read_manifest(run.ids_path)
    _check_same(recipe, run)
    size = json.loads(Path(run.folder, _SIZE).read_text("utf-8"))
    before, now = size.pop("bytes"), _num_bytes(recipe)
    if now not in (None, before):
        raise ValueError(
            f"{run.folder} was prepared from {before} bytes of text, which has {now} "
            "now. Prepare the text into a new folder."
        )
    learnt = left_out(recipe, run.recipe)
    names = {"tokenizer.vocabulary_size"} & learnt.keys()
    return recipe.completed({name: learnt[name] for name in names}), TextSize(**size)


def _num_bytes(recipe):
    """Returns the size of the training text on disk; None if it is elsewhere."""
    files = [file.path for side in SIDES for file in recipe.data.paths("train", side)]
    if all(path.exists() for path in files):
        return sum(path.stat().st_size for path in files)
    return None


def _check_same(recipe, run):
    differences = run.recipe.differences(recipe)
    if found := [line for line in differences if line.startswith(_SETTINGS)]:
        raise ValueError(
            f"{run.folder} was prepared with other settings: {'; '.join(found)}. "
            "Prepare the text into a new folder, or change these settings."
        )
