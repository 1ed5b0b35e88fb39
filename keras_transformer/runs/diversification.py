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
from keras_transformer.runs.text_files import TextFiles
from keras_transformer.storage import replace_files
from keras_transformer.text import read_lines


class Teacher(NamedTuple):
    """A model that translates the training text."""

    recipe: Recipe
    run: Run

    def text_path(self, language: str) -> Path:
        """Returns the file of one side of what `translate` writes."""
        folder = self.run.folder
        return folder.with_name(f"{folder.name}.{language}")

    def has_translated(self) -> bool:
        """Returns whether `translate` has written its files."""
        data = self.recipe.data
        return all(self.text_path(x).exists() for x in (data.source, data.target))

    def translate(self) -> None:
        """Writes the training text and its translations, made greedily.

        Where a translation is empty, both lines are left out.
        """
        data, translator = self.recipe.data, self.run.translator()
        paths = data.paths("train", "source")
        lines = [line for path in paths for line in read_lines(path)]
        translations = translator.translate(lines, GreedySearch())
        pairs = [x for x in zip(lines, translations, strict=True) if all(x)]
        with replace_files(self.run.folder.parent) as unfinished:
            for side, language in enumerate((data.source, data.target)):
                path = unfinished / self.text_path(language).name
                text = "".join(f"{pair[side]}\n" for pair in pairs)
                path.write_text(text, encoding="utf-8", newline="")


def teachers(recipe: Recipe, run: Run) -> list[Teacher]:
    """Returns the models that translate the training text, one or several each way.

    Args:
        recipe: A recipe; without `diversification` there are none.
        run: The run that the recipe is for; theirs are in a folder of it.

    Raises:
        ValueError: If the recipe names a pretrained translator or several workers.
    """
    settings = recipe.diversification
    if settings is None:
        return []
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
        for number in range(settings.seeds):
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
    settings = recipe.diversification
    if settings is None:
        return recipe
    first, *_ = found = teachers(recipe, run)
    data = recipe.data
    sources, targets = (
        [*data.paths("train", side), *(x.text_path(language) for x in found)]
        for side, language in (("source", data.source), ("target", data.target))
    )
    model, training = recipe.model, recipe.training
    dropout, learning_rate = settings.dropout, settings.learning_rate
    return dataclasses.replace(
        recipe,
        data=dataclasses.replace(
            data,
            train=TextFiles(
                source=tuple(str(path.absolute()) for path in sources),
                target=tuple(str(path.absolute()) for path in targets),
            ),
        ),
        model=dataclasses.replace(
            model,
            pretrained=str(first.run.folder.absolute()),
            dropout=model.dropout if dropout is None else dropout,
        ),
        training=dataclasses.replace(
            training,
            epochs=settings.epochs,
            cooldown_epochs=settings.cooldown_epochs,
            learning_rate=learning_rate or training.learning_rate,
        ),
        decoding=dataclasses.replace(recipe.decoding, average=settings.average),
        diversification=None,
    )
