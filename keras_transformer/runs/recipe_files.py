"""Recipes in files: YAML, what one recipe extends, and paths beside it."""

import difflib
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

_SHIPPED = Path(__file__).parent / "recipes"


def shipped_recipes() -> list[str]:
    """Returns the names of the recipes that come with the package."""
    return sorted(path.stem for path in _SHIPPED.glob("*.yaml"))


def read_yaml(path: Path) -> dict[str, Any]:
    """Returns the keys and values of a YAML 1.2 file; an error names the line."""
    try:
        values = YAML(typ="safe", pure=True).load(path.read_text("utf-8"))
    except UnicodeDecodeError:
        message = f"{path} is not UTF-8. Pass a YAML file, or convert this one."
        raise ValueError(message) from None
    except (YAMLError, ValueError) as error:  # the latter: no such date
        place, problem, remedy = str(path), str(error), ""
        if isinstance(error, MarkedYAMLError) and error.problem_mark:
            place = f"{path}:{error.problem_mark.line + 1}"
            problem = error.problem
        if "got '{'" in problem:
            remedy = " Put names with braces in quotes."
        raise ValueError(f"{place} is not valid YAML: {problem}.{remedy}") from None
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise ValueError(
            f"{path} must hold settings, such as `training: ...`. "
            "`keras-transformer init` writes a recipe for files of text."
        )
    return values


def find(name, folder=Path()):
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
        f"{path} is not a recipe. {guess}Pass a YAML file, or one of the recipes that "
        f"come with the package: {', '.join(shipped_recipes())}."
    )


def read_extended(path, extending=()):
    """Returns the values of a file, completed by the recipe that it extends."""
    # A section whose settings are all comments is null in YAML.
    read = read_yaml(path)
    values = {name: value for name, value in read.items() if value is not None}
    resolve_paths(values, path.parent)
    if (name := values.pop("extends", None)) is None:
        return values
    if not isinstance(name, str):
        raise ValueError(
            f"{path}: `extends` must be one file or recipe. Received: {name!r}."
        )
    extending = (*extending, path.resolve())
    try:
        base = find(name, path.parent)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path}: `extends`: {error}") from None
    if base.resolve() in extending:
        raise ValueError(f"{path}: `extends` must not lead back to {base}.")
    return _merged(read_extended(base, extending), values)


def resolve_paths(values, folder):
    """Makes the paths of a recipe that are relative to a folder absolute."""
    for name, key in (("model", "pretrained"), ("data", "prepared")):
        section = values.get(name)
        where = section.get(key) if isinstance(section, dict) else None
        if isinstance(where, str) and "://" not in where:
            values[name] = {**section, key: str((folder / where).resolve())}


def _merged(values, overrides):
    """Returns nested dictionaries with the values of others put in their place."""
    merged = values | overrides
    for key in values.keys() & overrides.keys():
        if isinstance(values[key], dict) and isinstance(overrides[key], dict):
            merged[key] = _merged(values[key], overrides[key])
    return merged
