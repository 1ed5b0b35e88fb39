"""Data diversification: the recipes of the models that translate the training text.

See `settings.DiversificationSettings`.
"""

import dataclasses
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from keras_transformer.decoding import GreedySearch, Sampling
from keras_transformer.runs.folder import Run
from keras_transformer.runs.recipe import Recipe
from keras_transformer.runs.settings import TokenizerSettings
from keras_transformer.runs.text_files import TextFiles
from keras_transformer.storage import replace_files
from keras_transformer.text import read_lines
from keras_transformer.training.distribution import connects_workers


class Teacher(NamedTuple):
    """A model that translates the training text."""

    recipe: Recipe
    run: Run
    translations: int = 1

    def text_paths(self, language: str) -> list[Path]:
        """Returns the files of one side of what `translate` writes."""
        folder = self.run.folder
        names = [folder.name]
        names += [f"{folder.name}-{n}" for n in range(2, self.translations + 1)]
        return [folder.with_name(f"{name}.{language}") for name in names]

    def has_translated(self) -> bool:
        """Returns whether the model is there, and `translate` has written its files."""
        written = all(path.exists() for path in self._all_text_paths())
        return written and self.run.has_trained()

    def remove_texts(self) -> None:
        """Removes what `translate` has written."""
        for path in self._all_text_paths():
            path.unlink(missing_ok=True)

    def translate(self) -> None:
        """Writes the training text and its translations: greedy, then sampled ones.

        Lines that are empty on either side are left out, and files that exist stay.

        Raises:
            ValueError: If no translation is left.
        """
        data, translator = self.recipe.data, self.run.translator()
        paths = [self.text_paths(x) for x in (data.source, data.target)]
        for number, pair in enumerate(zip(*paths, strict=True)):
            if all(path.exists() for path in pair):
                continue
            search = Sampling(0.5, seed=number) if number else GreedySearch()
            self._translate(translator, search, pair)

    def _translate(self, translator, search, paths):
        translations = translator.translate_stream(self._lines(), search)
        count = 0
        with replace_files(self.run.folder.parent) as unfinished:
            files = [unfinished / path.name for path in paths]
            with (
                open(files[0], "w", encoding="utf-8", newline="") as sources,
                open(files[1], "w", encoding="utf-8", newline="") as targets,
            ):
                for line, translation in zip(self._lines(), translations, strict=True):
                    # A line feed, which byte fallback can make, would begin a line.
                    translation = " ".join(translation.split())
                    if line.strip() and translation:
                        sources.write(f"{line}\n")
                        targets.write(f"{translation}\n")
                        count += 1
            if not count:
                raise ValueError(
                    f"All translations of the training text by {self.run.folder} are "
                    "empty. Remove the run, and train with more epochs."
                )

    def _all_text_paths(self):
        data = self.recipe.data
        return [*self.text_paths(data.source), *self.text_paths(data.target)]

    def _lines(self) -> Iterator[str]:
        paths = self.recipe.data.paths("train", "source")
        return itertools.chain.from_iterable(map(read_lines, paths))


def teachers_of(recipe: Recipe, run: Run) -> list[Teacher]:
    """Returns the models that translate the training text, one or several each way.

    Args:
        recipe: A recipe; without `diversification` there are none.
        run: The run that the recipe is for; theirs are in a folder of it.

    Raises:
        ValueError: If the recipe names a pretrained translator, several workers, one
            language, or what models of random weights or the last one cannot have.
    """
    settings, data = recipe.diversification, recipe.data
    if settings is None:
        return []
    if recipe.model.pretrained:
        raise ValueError(
            "`model.pretrained` must be left out with `diversification`, which trains "
            "models of both directions. Received: "
            f"pretrained={recipe.model.pretrained!r}."
        )
    if recipe.model.frozen or recipe.model.lora_rank:
        raise ValueError(
            "`model.frozen` and `model.lora_rank` must be left out with "
            "`diversification`, whose models begin with random weights. Received: "
            f"frozen={list(recipe.model.frozen)}, lora_rank={recipe.model.lora_rank}."
        )
    rdrop, simcut = recipe.training.rdrop, recipe.training.simcut
    if settings.distillation and (rdrop or simcut):
        raise ValueError(
            "`training.rdrop` and `training.simcut` must be left out with "
            "`diversification.distillation`: the last model has one such term. "
            f"Received: rdrop={rdrop}, simcut={simcut}."
        )
    if recipe.training.teachers:
        raise ValueError(
            "`training.teachers` must be left out with `diversification`, whose models "
            "are the teachers: set `diversification.distillation`. Received: "
            f"teachers={list(recipe.training.teachers)}."
        )
    strategy = recipe.training.strategy
    if connects_workers(strategy):
        raise ValueError(
            "`diversification` must be left out where several workers train one model. "
            f"Received: training.strategy={strategy}, "
            f"TF_CONFIG={os.environ.get('TF_CONFIG')}. Train on one machine."
        )
    if data.source == data.target:
        raise ValueError(
            "`data.source` and `data.target` must differ with `diversification`, whose "
            f"files they name. Received: {data.source!r} twice. Give the sides two "
            "names, such as en and en-simple."
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
            folder = run.diversification_path / name
            found.append(Teacher(teacher, Run(folder), settings.translations))
    return found


def student_recipe(recipe: Recipe, run: Run) -> Recipe:
    """Returns the recipe of the last model, with all of the text.

    It goes on from the first teacher, unless it has another size. The arguments are
    those of `teachers_of`. The files need not exist yet.
    """
    settings = recipe.diversification
    if settings is None:
        return recipe
    first, *_ = teachers = teachers_of(recipe, run)
    data, model, training = recipe.data, recipe.model, recipe.training
    sources, targets = (
        [
            str(path.absolute())
            for teacher in teachers
            for path in teacher.text_paths(language)
        ]
        for language in (data.source, data.target)
    )
    dropout, learning_rate = settings.dropout, settings.learning_rate
    sizes = {
        name: getattr(settings, name)
        for name in ("hidden_dim", "intermediate_dim")
        if getattr(settings, name) is not None
    }
    pretrained = None if sizes else str(first.run.folder.absolute())
    wanted = teachers[: settings.seeds] if settings.distillation else []
    tokenizer, bleu_every = recipe.tokenizer, training.bleu_every
    if pretrained:  # it brings its tokenizers, and so do teachers
        tokenizer = TokenizerSettings(sampling=tokenizer.sampling)
    elif wanted:
        tokenizer = TokenizerSettings(
            sampling=tokenizer.sampling, shared=tokenizer.shared
        )
    return dataclasses.replace(
        recipe,
        data=dataclasses.replace(
            data,
            train=TextFiles(
                source=(*data.train.source, *sources),
                target=(*data.train.target, *targets),
            ),
        ),
        tokenizer=tokenizer,
        model=dataclasses.replace(
            model,
            pretrained=pretrained,
            dropout=model.dropout if dropout is None else dropout,
            **sizes,
        ),
        training=dataclasses.replace(
            training,
            epochs=settings.epochs,
            cooldown_epochs=settings.cooldown_epochs,
            learning_rate=learning_rate or training.learning_rate,
            bleu_every=bleu_every and min(bleu_every, settings.epochs),
            teachers=tuple(str(x.run.folder.absolute()) for x in wanted),
            distillation=settings.distillation or training.distillation,
        ),
        decoding=dataclasses.replace(recipe.decoding, average=settings.average),
        diversification=None,
    )
