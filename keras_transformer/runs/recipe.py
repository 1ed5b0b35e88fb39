"""Recipes, the settings to train with, and the complete settings of a run."""

import difflib
import math
import operator
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError, model_validator

from keras_transformer.runs.recipe_files import find, read_extended, resolve_paths
from keras_transformer.runs.settings import (
    MAY_CHANGE,
    DataSettings,
    DecodingSettings,
    Follows,
    ModelSettings,
    Section,
    TextSize,
    TokenizerSettings,
    TrainingSettings,
    fields,
)

_Recipe = TypeVar("_Recipe", bound="Recipe")


class Recipe(Section):
    """All settings of a training run.

    Args:
        data: `DataSettings`: the files, and their languages.
        tokenizer: `TokenizerSettings`: how subwords are learnt.
        model: `ModelSettings`: a preset, and settings that override it.
        training: `TrainingSettings`: how the model is trained.
        decoding: `DecodingSettings`: how the trained model translates.

    Example:
        >>> recipe = Recipe.load("multi30k", {"data.target": "fr"})
        >>> recipe.data.paths("train", "target")[0].path.name
        'train.fr.gz'
    """

    data: DataSettings
    """The files, and their languages."""
    tokenizer: TokenizerSettings = TokenizerSettings()
    """How subwords are learnt."""
    model: ModelSettings = ModelSettings()
    """A preset, and settings that override it. Unset ones have the preset's value."""
    training: TrainingSettings = TrainingSettings()
    """How the model is trained."""
    decoding: DecodingSettings = DecodingSettings()
    """How the trained model translates."""

    @model_validator(mode="after")
    def _check_together(self):
        model, training = self.model, self.training
        if len(columns := list(self.data.columns)) not in (0, 2):
            raise ValueError(
                f"`data.columns` must name two columns. Received: columns={columns}."
            )
        if (model.frozen or model.lora_rank) and not model.pretrained:
            raise ValueError(
                "`model.frozen` and `model.lora_rank` must be left out without "
                "`model.pretrained`: weights that are not trained would stay random. "
                f"Received: frozen={list(model.frozen)}, lora_rank={model.lora_rank}."
            )
        if self.data.prepared and self.tokenizer.sampling:
            raise ValueError(
                "`tokenizer.sampling` must be 0 with `data.prepared`, whose text is "
                f"tokenized once. Received: sampling={self.tokenizer.sampling}."
            )
        tokens, longest = training.tokens_per_batch, training.max_length
        if tokens is not None and tokens < longest:
            raise ValueError(
                "`training.tokens_per_batch` must be at least `training.max_length`. "
                f"Received: tokens_per_batch={tokens}, max_length={longest}."
            )
        batches = training.batches_per_update
        if training.optimizer == "muon" and batches > 1:
            raise ValueError(
                "`training.batches_per_update` must be 1 with `muon`, or "
                "`training.optimizer` be adam. "
                f"Received: batches_per_update={batches}."
            )
        steps, epochs = training.steps, training.epochs
        validate_every = training.validate_every
        if steps and (epochs or steps % (validate_every or math.inf)):
            raise ValueError(
                "`training.steps` must be a multiple of `training.validate_every`, and "
                f"`training.epochs` be left out. Received: steps={steps}, "
                f"validate_every={validate_every}, epochs={epochs}."
            )
        per_call = training.steps_per_execution
        if validate_every and validate_every % per_call:
            raise ValueError(
                "`training.validate_every` must be a multiple of "
                "`training.steps_per_execution`. Received: validate_every="
                f"{validate_every}, steps_per_execution={per_call}."
            )
        every = training.bleu_every
        if steps and validate_every:
            epochs = steps // validate_every
        is_measured = every is not None and every <= (epochs or every)
        if training.best in ("val_bleu", "val_chrf") and not is_measured:
            raise ValueError(
                "`training.best` must be measured: set `training.bleu_every` to at "
                f"most `training.epochs`. Received: best={training.best}, "
                f"bleu_every={every}, epochs={epochs}."
            )
        return self

    @classmethod
    def load(
        cls, path: str | os.PathLike, overrides: dict[str, Any] | None = None
    ) -> "Recipe":
        """Reads a recipe.

        A file may begin with `extends: NAME`, naming another file beside it or a recipe
        that comes with the package. It then needs only the settings that differ.

        Args:
            path: A YAML file, or the name of a recipe that comes with the package.
            overrides: Values to use instead of the file's, by the dotted names of
                settings, such as `"training.epochs"`.

        Raises:
            FileNotFoundError: If there is no such recipe.
            ValueError: If the file is not valid YAML, or a setting is unknown, missing,
                of the wrong type or out of range, or settings contradict each other.
                The message names the file and the setting.
        """
        path = find(path)
        values = read_extended(path)
        values.pop("versions", None)  # only in the settings.yaml of a run
        for name, value in (overrides or {}).items():
            *sections, last = name.split(".")
            section = values
            for key in sections:
                inner = {} if section.get(key) is None else section[key]
                if not isinstance(inner, dict):
                    raise ValueError(f"{path}: there is no setting `{name}`.")
                section[key] = dict(inner)  # YAML's aliases share one dictionary
                section = section[key]
            section[last] = value
        resolve_paths(values, Path())
        try:
            return cls(**values)
        except ValidationError as error:
            raise ValueError(f"{path}: {_first_fault(error)}") from None

    def get(self, name: str) -> Any:
        """Returns the setting of a dotted name, such as `"training.epochs"`."""
        return operator.attrgetter(name)(self)

    def symbols(self) -> list[str]:
        """Returns the tags of all texts, which the tokenizers keep whole."""
        texts = *self.data.train, self.data.validation, self.data.test
        return sorted({text.tag for text in texts if text and text.tag})

    def replace(self: _Recipe, settings: dict[str, Any]) -> _Recipe:
        """Returns a recipe with other settings, by their dotted names.

        Raises:
            ValueError: If settings contradict each other.
        """
        return type(self).of(_with(self, settings))

    @classmethod
    def of(cls: type[_Recipe], recipe: "Recipe") -> _Recipe:
        """Returns a recipe as one of this class, once its settings are checked.

        Raises:
            ValueError: If settings contradict each other.
        """
        try:
            return cls(**recipe.model_dump(exclude_unset=True))
        except ValidationError as error:
            raise ValueError(_first_fault(error)) from None

    def differences(self, other: "Recipe") -> list[str]:
        """Returns the differences that prevent `other` from resuming this recipe's run.

        Each is a line such as "training.seed was 1 and is 2".
        """
        before, after = dict(_fixed(self)), dict(_fixed(other))
        return [
            f"{name} was {before.get(name)} and is {after.get(name)}"
            for name in before | after
            if before.get(name) != after.get(name)
        ]


class Settings(Recipe):
    """The settings of a run: a recipe in which every setting has its value.

    All arguments are as in `Recipe`.

    None never means that a value is not yet known. It means no limit, no translator to
    continue from or, if there is one, the value of that translator.
    """


def settings_of(
    recipe: Recipe, text: TextSize | None = None, begun: Settings | None = None
) -> Settings:
    """Returns the settings of a recipe, and chooses the ones that it leaves out.

    Settings in the recipe stay as they are, and the others are derived from them: the
    cooldown is a third of the epochs, for example. A resumed run keeps the settings,
    derived from the `text`, that it had `begun` with. A pretrained model keeps its
    sizes, dropout and tokenizers.

    Example:
        >>> recipe = Recipe.load("demo", {"training.epochs": 9})
        >>> settings = settings_of(recipe, TextSize(20_000, 130_000, 150))
        >>> settings.training.passes_per_epoch, settings.model.num_heads
        (1, 4)
    """
    is_length_named = bool(recipe.training.epochs or recipe.training.steps)
    for name, follows in _rules():
        if recipe.get(name) is not None:
            continue
        is_new_length = is_length_named and name == "training.epochs"
        if begun and not follows.of_preset and not is_new_length:
            value = begun.get(name)
        else:
            value = follows.rule(recipe, text)
        recipe = _with(recipe, {name: value})
    return Settings.of(_with(recipe, {"training.steps": None}))


def names_from_text() -> list[str]:
    """Returns the names of the settings that follow from the text."""
    return [name for name, follows in _rules() if not follows.of_preset]


def _rules():
    """Yields the dotted name and the rule of each setting that follows from others."""
    for name, field in fields(Recipe):
        yield from ((name, x) for x in field.metadata if isinstance(x, Follows))


def _first_fault(error: ValidationError) -> str:
    """Says in one line what is wrong with the first wrong setting."""
    faults = error.errors(include_url=False)
    fault = min(faults, key=lambda fault: fault["type"] != "extra_forbidden")
    name = ".".join(key for key in fault["loc"] if isinstance(key, str))
    kind = fault["type"]
    if kind == "value_error":
        return str(fault["ctx"]["error"])
    if kind == "missing":
        return f"`{name}` is missing. Add it."
    if kind == "extra_forbidden":
        *section, key = name.split(".")
        known = [name for name, _ in fields(Recipe)]
        beside = [x for x in known if x.split(".")[:-1] == section]
        close = difflib.get_close_matches(name, beside, n=1) or sorted(
            (x for x in known if x.split(".")[-1] == key), key=len
        )
        if close:
            return f"there is no setting `{name}`. Did you mean `{close[0]}`?"
        names = ", ".join(f"`{x}`" for x in beside)
        return f"there is no setting `{name}`. There are {names}."
    expected = {
        "model_type": "must be a section of settings",
        "tuple_type": "must be text or a list of texts",
    }.get(kind, fault["msg"].replace("Input should", "must"))
    return f"`{name}` {expected}. Received: {fault['input']!r}."


def _with(recipe, settings):
    """Returns a copy with other settings, which are not checked."""
    for name, value in settings.items():
        section, last = name.split(".")
        changed = getattr(recipe, section).model_copy(update={last: value})
        recipe = recipe.model_copy(update={section: changed})
    return recipe


def _fixed(section: Section, prefix="") -> Iterator[tuple[str, Any]]:
    """Yields names and values of the settings that a resumed run must keep."""
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if MAY_CHANGE in field.metadata:
            continue
        if isinstance(value, Section):
            yield from _fixed(value, f"{prefix}{name}.")
        elif name == "train":
            for number, text in enumerate(value):
                place = f"[{number}]" if len(value) > 1 else ""
                yield from _fixed(text, f"{prefix}{name}{place}.")
        else:
            yield f"{prefix}{name}", value
