"""Data diversification: the recipes of the models that translate the training text.

See `settings.DiversificationSettings`.
"""

import dataclasses
import os
from pathlib import Path
from typing import NamedTuple

from keras_transformer.decoding import GreedySearch
from keras_transformer.runs.folder import Run
from keras_transformer.runs.recipe import Recipe
from keras_transformer.runs.settings import SIDES, TextFiles
from keras_transformer.storage import write_text
from keras_transformer.text import read_lines


class Teacher(NamedTuple):
    """A model that translates the training text."""

    recipe: Recipe
    run: Run

    @property
    def translations_path(self) -> Path:
        """The file of the translations, beside the folder of the run."""
        folder = self.run.folder
        return folder.with_name(f"{folder.name}.{self.recipe.data.target}")

    def translate(self) -> None:
        """Writes the translations of the training text, made greedily, line by line."""
        paths = self.recipe.data.paths("train", "source")
        lines = [line for path in paths for line in read_lines(path)]
        translator = self.run.translator()
        translations = translator.translate(lines, GreedySearch())
        write_text(self.translations_path, "".join(f"{x}\n" for x in translations))


def teachers(recipe: Recipe, run: Run) -> list[Teacher]:
    """Returns the models that translate the training text, one or several each way.

    Args:
        recipe: A recipe with `diversification`.
        run: The run that the recipe is for; theirs are in a folder of it.

    Raises:
        ValueError: If the recipe names a pretrained translator or several workers.
    """
    if recipe.model.pretrained:
        raise ValueError(
            "`model.pretrained` must be left out with `diversification`, which trains "
            "models of both directions. Received: "
            f"pretrained={recipe.model.pretrained!r}."
        )
    strategy = recipe.training.strategy
    if "TF_CONFIG" in os.environ or strategy in ("multi_worker", "slurm"):
        raise ValueError(
            "`diversification` must be left out where several workers train one model. "
            f"Received: training.strategy={strategy}. Train on one machine."
        )
    found = []
    for data in (recipe.data, recipe.data.reversed()):
        for number in range(recipe.diversification.seeds):
            seed = recipe.training.seed + number
            teacher = dataclasses.replace(
                recipe,
                data=data,
                training=dataclasses.replace(recipe.training, seed=seed),
                diversification=None,
            )
            name = f"{data.source}-{data.target}-{seed}"
            found.append(Teacher(teacher, Run(run.diversification_path / name)))
    return found


def diversified(recipe: Recipe, run: Run) -> Recipe:
    """Returns the recipe that goes on from the first teacher, with all of the text.

    The arguments are those of `teachers`. The files need not exist yet.
    """
    first, *_ = found = teachers(recipe, run)
    text = {side: recipe.data.paths("train", side) for side in SIDES}
    sources, targets = list(text["source"]), list(text["target"])
    for teacher in found:
        is_forward = teacher.recipe.data == recipe.data
        sources += text["source"] if is_forward else [teacher.translations_path]
        targets += [teacher.translations_path] if is_forward else text["target"]
    settings = recipe.diversification
    training = {
        "epochs": settings.epochs,
        "cooldown_epochs": settings.cooldown_epochs,
        "learning_rate": settings.learning_rate or recipe.training.learning_rate,
    }
    model = {"pretrained": str(first.run.folder.absolute())}
    if settings.dropout is not None:
        model["dropout"] = settings.dropout
    files = (tuple(str(x.absolute()) for x in paths) for paths in (sources, targets))
    train = TextFiles(**dict(zip(SIDES, files, strict=True)))
    return dataclasses.replace(
        recipe,
        data=dataclasses.replace(recipe.data, train=train),
        model=dataclasses.replace(recipe.model, **model),
        training=dataclasses.replace(recipe.training, **training),
        decoding=dataclasses.replace(recipe.decoding, average=settings.average),
        diversification=None,
    )
