"""A recipe: the settings of a training run, read from YAML and checked key by key."""

import contextlib
import dataclasses
import difflib
import math
import operator
import os
import types
import typing
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any

from keras_transformer.runs.settings import (
    DecodingSettings,
    DiversificationSettings,
    ModelSettings,
    TokenizerSettings,
    TrainingSettings,
)
from keras_transformer.runs.text_files import DataSettings
from keras_transformer.runs.yaml_file import read_yaml

_SHIPPED = Path(__file__).parent / "recipes"
_TYPE_NAMES = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "text",
    tuple: "text or a list of texts",
}


_KEEPS = {
    "at least": operator.ge,
    "above": operator.gt,
    "at most": operator.le,
    "below": operator.lt,
}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All settings of a training run.

    Attributes:
        data: The files, and the languages that their names stand for.
        tokenizer: How subwords are learnt.
        model: A preset, and what overrides it.
        training: How the model is trained.
        decoding: How the trained model translates.
        diversification: Data diversification, more training text by models of both
            directions; None for none.

    Example:
        >>> recipe = Recipe.load("multi30k", {"data.target": "fr"})
        >>> recipe.data.paths("train", "target")[0].name
        'train.fr.gz'
    """

    data: DataSettings
    tokenizer: TokenizerSettings = field(default_factory=TokenizerSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    decoding: DecodingSettings = field(default_factory=DecodingSettings)
    diversification: DiversificationSettings | None = None

    @classmethod
    def load(
        cls, path: str | os.PathLike, overrides: dict[str, Any] | None = None
    ) -> "Recipe":
        """Reads a recipe.

        A file may begin with `extends: NAME`, another file beside it or a recipe that
        comes with the package, and then holds only what it sets differently.

        Args:
            path: A YAML file, or the name of a recipe that comes with the package.
            overrides: Values that replace those of the file, by the dotted names of
                the settings, such as `"training.epochs"`.

        Raises:
            FileNotFoundError: If there is no such recipe.
            ValueError: If the file is not valid YAML, or a setting is unknown, missing
                or of the wrong type. The message names the file and the setting.
        """
        path = _find(path)
        values = _read_extended(path)
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
        return _parse_section(cls, values, "", path)

    def to_dict(self) -> dict[str, Any]:
        """Returns the settings as nested dictionaries that YAML can hold."""
        return _plain(dataclasses.asdict(self))

    def to_dict_of_run(self, folder: Path) -> dict[str, Any]:
        """Returns the settings for the settings.yaml of a run, which may be moved.

        Names of files in the folder of the run begin with `{run}`, for which `load`
        puts the folder of the file that it reads.
        """
        return _moved(self.to_dict(), f"{folder.absolute()}/", "{run}/")

    def differences(self, other: "Recipe") -> list[str]:
        """Returns the differences that keep `other` from resuming a run of this recipe.

        Each is a line such as "training.seed was 1 and is 2".
        """
        mine, others = dict(_fixed(self, "")), dict(_fixed(other, ""))
        return [
            f"{name} was {mine.get(name)} and is {others.get(name)}"
            for name in mine | others
            if mine.get(name) != others.get(name)
        ]


def shipped_recipes() -> list[str]:
    """Returns the names of the recipes that come with the package."""
    return sorted(path.stem for path in _SHIPPED.glob("*.yaml"))


def _find(name, folder=Path()):
    """The file of a name that is relative to a folder, or of a shipped recipe."""
    path = folder / name
    if path.is_file():
        return path
    if str(name) in shipped_recipes():
        return _SHIPPED / f"{name}.yaml"
    known = [*shipped_recipes(), *map(str, path.parent.glob("*.y*ml"))]
    close = difflib.get_close_matches(str(path), known, n=1)
    guess = f"Did you mean {close[0]}? " if close else ""
    raise FileNotFoundError(
        f"{path} is not a recipe. {guess}Name a YAML file, or one of the recipes that "
        f"come with the package: {', '.join(shipped_recipes())}."
    )


def _read_extended(path, extending=()):
    """Returns the values of a file, and of what it extends where it has none."""
    values = _moved(read_yaml(path), "{run}/", f"{path.parent.absolute()}/")
    if "extends" not in values:
        return values
    name = values.pop("extends")
    if not isinstance(name, str):
        raise ValueError(
            f"{path}: `extends` must be one file or recipe. Received: {name!r}."
        )
    extending = (*extending, path.resolve())
    try:
        base = _find(name, path.parent)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path}: `extends`: {error}") from None
    if base.resolve() in extending:
        raise ValueError(f"{path}: `extends` must not lead back to {base}.")
    return _merged(_read_extended(base, extending), values)


def _merged(values, overrides):
    """Returns nested dictionaries with the values of others put in their place."""
    merged = dict(values)
    for key, value in overrides.items():
        if isinstance(value, dict) and isinstance(merged.get(key), dict):
            value = _merged(merged[key], value)
        merged[key] = value
    return merged


def _moved(value, old, new):
    """Returns nested settings with the beginning `old` of any text replaced."""
    if isinstance(value, dict):
        return {key: _moved(item, old, new) for key, item in value.items()}
    if isinstance(value, list):
        return [_moved(item, old, new) for item in value]
    if isinstance(value, str) and value.startswith(old):
        return new + value.removeprefix(old)
    return value


def _parse_section(cls, values, name, path):
    """Builds a dataclass from a dictionary, and checks every value."""
    if not isinstance(values, dict):
        raise ValueError(
            f"{path}: `{name}` must be a section of settings. "
            f"Received: {name}={values!r}."
        )
    prefix = f"{name}." if name else ""
    fields = {one.name: one for one in dataclasses.fields(cls)}
    for key in values:
        if key not in fields:
            close = difflib.get_close_matches(str(key), fields, n=1)
            known = [f"{prefix}{one}" for one in close] or _settings_called(key)[:1]
            remedy = "Did you mean {}?" if known else "There are {}."
            names = known or [f"{prefix}{one}" for one in fields]
            names = ", ".join(f"`{one}`" for one in names)
            raise ValueError(
                f"{path}: there is no setting `{prefix}{key}`. {remedy.format(names)}"
            )
    hints = typing.get_type_hints(cls)
    arguments = {}
    for key, setting in fields.items():
        if key in values:
            arguments[key] = _parse_value(
                hints[key], values[key], f"{prefix}{key}", path, setting.metadata
            )
        elif setting.default is setting.default_factory is MISSING:
            raise ValueError(f"{path}: `{prefix}{key}` is missing. Add it.")
    return cls(**arguments)


def _parse_value(hint, value, name, path, metadata):
    """Returns a value as the type of its setting, or raises."""
    if typing.get_origin(hint) is types.UnionType:
        if value is None:
            return None
        hint, _ = typing.get_args(hint)  # the other is None
    if dataclasses.is_dataclass(hint):
        return _parse_section(hint, value, name, path)
    wanted = typing.get_origin(hint) or hint
    is_bool = isinstance(value, bool)  # which Python counts among the integers
    if wanted is tuple and isinstance(value, str):
        value = (value,)
    elif wanted is tuple and isinstance(value, list):
        value = tuple(value)
    elif wanted is float and isinstance(value, (int, str)) and not is_bool:
        with contextlib.suppress(ValueError):
            value = float(value)  # also of "3e-3", which is text in YAML 1.1
    bounds = metadata.get("bounds", {})
    is_valid = isinstance(value, wanted) and is_bool == (wanted is bool)
    if is_valid and wanted is tuple:
        is_valid = all(isinstance(item, str) for item in value)
    if is_valid and wanted is float:
        is_valid = math.isfinite(value)
    if not is_valid or not all(_KEEPS[kind](value, x) for kind, x in bounds.items()):
        bound = "".join(f", {kind} {limit}" for kind, limit in bounds.items())
        is_word = wanted is str and is_bool
        remedy = " YAML reads yes, no, on and off so: put it in quotes."
        raise ValueError(
            f"{path}: `{name}` must be {_TYPE_NAMES[wanted]}{bound}. "
            f"Received: {value!r}.{remedy if is_word else ''}"
        )
    return value


def _settings_called(key):
    """Returns the dotted names of the settings of a name, the shortest first."""
    names = [name for name in _names(Recipe, "") if name.split(".")[-1] == key]
    return sorted(names, key=lambda name: name.count("."))


def _names(cls, prefix):
    """Yields the dotted names of the settings in a section."""
    for name, hint in typing.get_type_hints(cls).items():
        kinds = typing.get_args(hint) or (hint,)  # of `TextFiles | None`
        if dataclasses.is_dataclass(kinds[0]):
            yield from _names(kinds[0], f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _plain(value):
    """Returns a value of `dataclasses.asdict` as a recipe would hold it."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return value[0] if len(value) == 1 else list(value)
    return value


def _fixed(section, prefix):
    """Yields the names and values of the settings that a resumed run must keep."""
    for setting in dataclasses.fields(section):
        value = getattr(section, setting.name)
        if not setting.metadata.get("fixed", True):
            continue
        if dataclasses.is_dataclass(value):
            yield from _fixed(value, f"{prefix}{setting.name}.")
        else:
            yield f"{prefix}{setting.name}", _plain(value)
