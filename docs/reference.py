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
VARIADIC = griffe.ParameterKind.var_keyword
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


@functools.cache
def all_classes() -> dict:
    """Returns every class of the package by its name, those that are not public too."""
    found, modules = {}, [load_package()]
    while modules:
        for member in modules.pop().members.values():
            if not member.is_alias and member.is_module:
                modules.append(member)
            elif not member.is_alias and member.is_class:
                found[member.name] = member
    return found


def parameters_of(class_) -> dict:
    """Returns the parameters of a class by name; of a layer, with its base classes'.

    The constructor of a layer passes its `**kwargs` to its base class, and that of a
    model what has a default in `Parts` to this.
    """
    found, rest = {}, []
    is_layer = class_.path.startswith(f"{PACKAGE}.layers.")
    for each in [class_, *class_.mro()]:
        if "__init__" not in each.members:
            continue
        own = {one.name: one for one in each.members["__init__"].parameters}
        own.pop("self")
        rest = [one for one in own.values() if one.kind is VARIADIC]
        found |= {key: own[key] for key in own if own[key].kind is not VARIADIC} | found
        if not rest or not is_layer:
            break
    is_model = class_.path.startswith(f"{PACKAGE}.models.")
    if is_model and [one.name for one in rest] == ["kwargs"]:
        parts = load_package()["models.parts.Parts"].members["__init__"].parameters
        others = {one.name: one for one in parts if one.default and one.annotation}
        found |= others | found
    return found | {one.name: one for one in rest}


def items_of(body: str) -> dict[str, str]:
    """Returns the text of each argument in a section, indented as it was."""
    item = r"^    (\*{0,2}\w+): ((?:.*\n?)(?:^ {8}.*\n?)*)"
    return dict(re.findall(item, body, re.MULTILINE))


def sections_of(docstring: str) -> dict[str, str]:
    """Returns the sections of a docstring by title; what comes first has none."""
    titles = "Args|Attributes|Call arguments|Returns|Raises|Example|Reference"
    pieces = re.split(rf"^({titles}):\n", docstring, flags=re.MULTILINE)
    return dict(zip(["", *pieces[1::2]], pieces[::2], strict=True))


@functools.cache
def full_docstring(name: str) -> str:
    """Returns the docstring of a class, with what it says is as in another class.

    `help` shows "As in `EncoderBlock`"; on the site each page has all of its arguments.
    """
    class_ = all_classes()[name]
    text = class_.docstring.value if class_.docstring else ""
    found = sections_of(text)
    for title in ("Args", "Call arguments", "Returns"):
        body = found.get(title, "")
        if match := re.match(r"    As in\s+`(\w+)`(.*)", body, re.DOTALL):
            source = sections_of_class(match[1]).get(title, "")
            found[title] = _continued(source, match[2]) if source else body
        elif title != "Args" and not body:
            word = {"Call arguments": "inputs of", "Returns": "returns what"}[title]
            word = "(?:" + word.replace(" ", r"\s+") + r"|takes\s+and\s+returns\s+what)"
            pattern = rf"{word}\s+`(\w+)`(?:\s+does)?(,[^.]*\.)?"
            if match := re.search(pattern, found[""]):
                source = sections_of_class(match[1]).get(title, "")
                rest = match[2] if title == "Returns" and match[2] else ".\n\n"
                found[title] = _continued(source, rest) if source else ""
        for key, item in items_of(found.get(title, "")).items():
            if match := re.match(r"As in\s+`(\w+)`(.*)", item, re.DOTALL):
                source = items_of(sections_of_class(match[1]).get(title, ""))
                if key in source:
                    whole = _continued(source[key], match[2])
                    found[title] = found[title].replace(item, whole, 1)
    found["Args"] = _all_arguments(class_, text, found.get("Args", ""))
    order = ["", "Args", "Attributes", "Call arguments", "Returns"]
    titles = [each for each in order if found.get(each)]
    titles += [each for each in found if each not in order]
    parts = [f"{each}:\n{found[each]}" if each else found[each] for each in titles]
    return "\n\n".join(each.rstrip("\n") for each in parts) + "\n"


def sections_of_class(name: str) -> dict[str, str]:
    """Returns the sections of a class's whole docstring; none of another name."""
    return sections_of(full_docstring(name)) if name in all_classes() else {}


def _continued(text, rest):
    """Returns a text, with what followed "As in ..." as the end of its sentence."""
    return rest.strip(" ") if not text else text.rstrip().removesuffix(".") + rest


def _all_arguments(class_, text, body):
    """Returns the section of arguments with those that other classes describe."""
    pattern = r"arguments\b[^`.]*`(\w+)`|takes\s+and\s+returns\s+what\s+`(\w+)`"
    sources = [first or second for first, second in re.findall(pattern, text)]
    sources = [name for name in sources if name in all_classes()]
    items, taken = items_of(body), parameters_of(class_)
    if not sources:
        return body
    variadic = [one.name for one in taken.values() if one.kind is VARIADIC]
    passed_on = items.pop(f"**{variadic[0]}", "") if variadic else ""
    takes_all = "other arguments" in passed_on or variadic == ["settings"]
    for name in sources:
        for key, item in items_of(sections_of_class(name).get("Args", "")).items():
            if takes_all or key in taken or key[:2] == "**":
                items.setdefault(key, item)
    if passed_on and "other arguments" not in passed_on:
        items[f"**{variadic[0]}"] = passed_on
    last = {key: items[key] for key in items if key[:2] == "**"}
    items = {key: item for key, item in items.items() if key not in last} | last
    lines = "".join(f"    {key}: {item.rstrip()}\n" for key, item in items.items())
    prose = re.findall(r"^\S.*(?:\n\S.*)*", body, re.MULTILINE)
    prose = [each for each in prose if "other arguments" not in each.lower()]
    return "\n".join([lines, *prose])


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
    lines = ["---", f"title: {name}", "---", "", f"::: {PACKAGE}.{part}.{name}"]
    lines += ["    options:", "      heading_level: 1"]
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
        """Adds the names that are imported when they are first used.

        Signatures of classes get the arguments that base classes take.
        """
        if pkg.name != PACKAGE:
            return
        add_lazy_names(pkg)
        for part in PARTS:
            for name in classes_of(part):
                class_ = pkg[part][name]
                class_ = class_.final_target if class_.is_alias else class_
                parameters = parameters_of(class_)
                if "__init__" in class_.all_members and parameters:
                    inherited = class_.all_members["__init__"]
                    own = griffe.Function(
                        "__init__",
                        parameters=griffe.Parameters(
                            inherited.parameters["self"], *parameters.values()
                        ),
                        parent=class_,
                    )
                    class_.set_member("__init__", own)

    def on_object(self, *, obj, **kwargs) -> None:
        """Renames sections, and links the names of other objects."""
        if obj.docstring:
            is_ours = obj.is_class and obj.name in all_classes()
            text = full_docstring(obj.name) if is_ours else obj.docstring.value
            text = translate_sections(text)
            obj.docstring.value = link_names(text, bare=True)
