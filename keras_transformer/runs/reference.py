"""What a recipe may hold: the name, meaning and default of every setting."""

import json
import textwrap
from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args, get_origin

from keras_transformer.runs.recipe import Recipe, names_from_text
from keras_transformer.runs.settings import Section, fields

_WIDTH = 88


class Setting(NamedTuple):
    """A setting of a recipe, or a section of settings."""

    name: str  # dotted, such as "training.epochs"
    default: str  # in YAML; empty if it depends on the text or the model
    meaning: str
    is_section: bool


def settings() -> Iterator[Setting]:
    """Yields all settings in their order, each section before what it holds."""
    for name, field in fields(Recipe):
        kinds = [field.annotation, *get_args(field.annotation)]
        is_section = any(isinstance(x, type) and issubclass(x, Section) for x in kinds)
        meaning = " ".join((field.description or "").split())
        choices = [get_args(x) for x in kinds if get_origin(x) is Literal]
        if choices:
            meaning += f" One of {', '.join(f'`{x}`' for x in choices[0])}."
        has_default = not (field.is_required() or is_section or field.default is None)
        default = json.dumps(field.default) if has_default else ""  # which is YAML
        yield Setting(name, default, meaning, is_section)


def as_text() -> str:
    """Returns all settings as text for a terminal."""
    lines = []
    for setting in settings():
        default = setting.default
        if setting.name in names_from_text():
            default = "from the text"
        shown = f" (default: {default})" if default else ""
        lines += [""] * setting.is_section + [f"{setting.name}{shown}"]
        meaning = textwrap.fill(setting.meaning, _WIDTH - 4)
        lines.append(textwrap.indent(meaning, "    "))
    return "\n".join(lines).strip()


def as_recipe(written: dict[str, str], is_long: bool = False) -> str:
    """Returns a recipe of settings in YAML; a long one has all others as comments."""
    lines = ["# Unset options are chosen from your text, or have their defaults."]
    for setting in settings():
        depth = setting.name.count(".")
        indent = "  " * depth
        holds = any(name.startswith(f"{setting.name}.") for name in written)
        is_active = setting.name in written or holds
        key = setting.name.rpartition(".")[2]
        value = written.get(setting.name, setting.default)
        if is_long:
            width = _WIDTH - len(indent) - 2
            lines += [""] * (depth == 0)
            lines += [f"{indent}# {x}" for x in textwrap.wrap(setting.meaning, width)]
            is_active |= depth == 0
        if is_long or is_active:
            lines.append(f"{indent}{'' if is_active else '# '}{key}: {value}".rstrip())
    return "\n".join(lines) + "\n"
