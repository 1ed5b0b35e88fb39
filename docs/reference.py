"""The reference pages of the site, from `__all__` and the docstrings.

`mkdocs.yml` names this file as an extension of Griffe, which reads the package without
importing it.
"""

import functools
import re
import textwrap
from pathlib import Path

import griffe

ROOT = Path(__file__).parents[1]
PACKAGE = "keras_transformer"
# In the order of the site.
PARTS = (
    "layers",
    "models",
    "decoding",
    "training",
    "evaluation",
    "text",
    "translator",
    "documents",
    "serving",
    "plots",
    "datasets",
    "runs",
)
# Griffe's names of the sections that it does not know by ours.
SECTIONS = {
    "Call arguments": "Other Parameters: Call arguments",
    "Example": "Examples: Example",
}
# Sections of prose; and of arguments, if they say only "As in `EncoderBlock`."
PROSE = (
    r"^(Reference|Returns|Yields|(?:Args|Call arguments|Raises)(?=:\n +(?![\w* ]+:)))"
    r":\n((?: +.*\n?|\n)+)"
)
# What of their base classes the pages of layers show.
INHERITED = "      inherited_members: [start, step]"


def add_lazy_names(package) -> None:
    """Adds the names in `__all__` that a module's `__getattr__` imports."""
    for part in PARTS:
        module = package[part]
        for name in map(str, module.exports):
            if name in module.members:
                continue
            (owner,) = (
                each
                for each in module.modules.values()
                if name in each.members and not each.members[name].is_alias
            )
            module.set_member(name, griffe.Alias(name, owner[name], parent=module))


@functools.cache
def load_package():
    """Returns Griffe's tree of the package."""
    package = griffe.load(PACKAGE, search_paths=[ROOT], resolve_aliases=True)
    add_lazy_names(package)
    return package


@functools.cache
def public_names() -> dict[str, str]:
    """Returns the first line of the docstring of every public name.

    The names are written like `layers.Encoder`.

    Raises:
        ValueError: If a public name has no docstring.
    """
    lines, undocumented = {}, []
    for part in PARTS:
        module = load_package()[part]
        for name in map(str, module.exports):
            docstring = module[name].docstring
            if docstring is None:
                undocumented.append(f"{part}.{name}")
            else:
                lines[f"{part}.{name}"] = docstring.value.splitlines()[0]
    if undocumented:
        raise ValueError(f"Public names without a docstring: {undocumented}.")
    return lines


def link_names(text: str, bare: bool = False) -> str:
    """Links the public names in a text's inline code to the reference.

    Args:
        text: Markdown.
        bare: Whether `Encoder` is linked, in addition to `kt.layers.Encoder`.

    Returns:
        The text, with links such as ``[`kt.layers.Encoder`][...]``.
    """
    names = {f"kt.{name}": name for name in public_names()}
    names["kt.Translator"] = "translator.Translator"
    if bare:
        classes = {name.split(".")[1]: name for name in public_names()}
        names |= {key: name for key, name in classes.items() if key[0].isupper()}

    def link(match):
        code, name = match.group(0), match.group(1)
        if name not in names:  # perhaps a method
            name = name.rpartition(".")[0]
        if name not in names:
            return code
        return f"[{code}][{PACKAGE}.{names[name]}]"

    return re.sub(r"(?<![\[`])`([\w.]+)(?:\([^`\n]*\))?`(?![\]`])", link, text)


def names_of(part: str) -> list[str]:
    """Returns the public names of one part of the package, by the alphabet."""
    names = map(str, load_package()[part].exports)
    return sorted(names, key=lambda name: (name.lower(), name))


def classes_of(part: str) -> list[str]:
    """Returns the public classes of one part of the package: each has a page."""
    module = load_package()[part]
    return [name for name in names_of(part) if module[name].is_class]


def part_page(part: str) -> str:
    """Returns the page of one part: a table of its names, then its functions."""
    lines = [f"# kt.{part}", ""]
    lines += [link_names(load_package()[part].docstring.value, bare=True), ""]
    lines += ["| name | |", "| --- | --- |"]
    for name in names_of(part):
        summary = link_names(public_names()[f"{part}.{name}"], bare=True)
        lines.append(f"| [`{name}`][{PACKAGE}.{part}.{name}] | {summary} |")
    for name in names_of(part):
        if name not in classes_of(part):
            lines += ["", f"::: {PACKAGE}.{part}.{name}"]
    return "\n".join(lines) + "\n"


def class_page(part: str, name: str) -> str:
    """Returns the page of a public class."""
    lines = [f"# {name}", "", f"::: {PACKAGE}.{part}.{name}"]
    lines += ["    options:", "      show_root_heading: false"]
    # Layers inherit little but the machinery of weight options.
    lines += [INHERITED] if part == "layers" else []
    return "\n".join(lines) + "\n"


def translate_sections(docstring: str) -> str:
    """Returns a docstring with the names that Griffe has for our sections."""
    docstring = re.sub(
        PROSE,
        lambda found: f"**{found[1]}:**\n\n{textwrap.dedent(found[2])}",
        docstring,
        flags=re.MULTILINE,
    )
    for ours, theirs in SECTIONS.items():
        docstring = re.sub(rf"^{ours}:$", theirs, docstring, flags=re.MULTILINE)
    return docstring


class HouseStyle(griffe.Extension):
    """Has Griffe read docstrings as this package writes them."""

    def on_package(self, *, pkg, **kwargs) -> None:
        """Adds the names that are imported when they are first used."""
        if pkg.name == PACKAGE:
            add_lazy_names(pkg)

    def on_object(self, *, obj, **kwargs) -> None:
        """Renames sections, and links the names of other objects."""
        if obj.docstring:
            text = translate_sections(obj.docstring.value)
            obj.docstring.value = link_names(text, bare=True)
