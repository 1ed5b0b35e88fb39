"""Every public name is documented, and the site has a page for everything."""

import importlib
import inspect
import re
from pathlib import Path

import keras
import pages as site
import pytest
import reference
from markdown.extensions.toc import slugify

from keras_transformer.runs.reference import settings

ROOT = Path(__file__).parents[1]
NAMES = [
    (part, name)
    for part in reference.PARTS
    for name in importlib.import_module(f"keras_transformer.{part}").__all__
    if name != "DEFAULT_SEARCH"  # which has no docstring of its own at run time
]
each_name = pytest.mark.parametrize(
    ("part", "name"), NAMES, ids=[".".join(each) for each in NAMES]
)


def find(part, name):
    """Returns a public object and its docstring."""
    found = getattr(importlib.import_module(f"keras_transformer.{part}"), name)
    return found, inspect.cleandoc(found.__doc__ or "")


def sections(docstring):
    """Returns the text of each section of a docstring by its title."""
    pieces = re.split(r"^([A-Z][a-z ]+):$", docstring, flags=re.MULTILINE)
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def refers(docstring, word):
    """Tells whether a docstring says whose arguments, or results, an object has."""
    patterns = (
        rf"\b{word}s?\b[^.]*\s(?:is|are)\s(?:those\sof|as\sin)\s+`",
        rf"takes\sthe\s[^.]*\b{word}s?\sof\s+`",
        r"takes\sand\sreturns\swhat\s+`",
    )
    return any(re.search(each, docstring, re.IGNORECASE) for each in patterns)


@pytest.fixture(scope="module")
def pages():
    return site.Pages()


@each_name
def test_the_docstring_names_every_argument(part, name):
    found, docstring = find(part, name)
    kinds = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    taken = {
        each.name
        for each in inspect.signature(found).parameters.values()
        if each.kind not in kinds
    }
    written = sections(docstring)
    listed = written.get("Args", "") + written.get("Attributes", "")
    documented = set(re.findall(r"^ *(\w+):|`(\w+)`", listed, re.MULTILINE))
    missing = taken - {first or second for first, second in documented}
    assert not missing or refers(docstring, "argument")


@each_name
def test_the_docstring_says_what_a_function_returns(part, name):
    found, docstring = find(part, name)
    assert docstring
    if inspect.isfunction(found) and found.__annotations__.get("return", 0) is not None:
        assert {"Returns", "Yields"} & set(sections(docstring)) or refers(
            docstring, "result"
        )


@each_name
def test_the_docstring_says_what_a_layer_takes(part, name):
    found, docstring = find(part, name)
    is_layer = inspect.isclass(found) and issubclass(found, keras.layers.Layer)
    if is_layer and not issubclass(found, keras.Model):
        has_call = found.call is not keras.layers.Layer.call
        is_documented = "Call arguments" in sections(docstring)
        assert not has_call or is_documented or refers(docstring, "input")


@each_name
def test_the_page_of_a_class_has_all_of_its_arguments(part, name):
    found, _ = find(part, name)
    if not inspect.isclass(found) or part not in ("layers", "models", "decoding"):
        return
    written = reference.sections_of(reference.full_docstring(name))
    listed = reference.items_of(written.get("Args", ""))
    for section in ("Args", "Call arguments", "Returns"):
        assert "As in `" not in written.get(section, "")
    class_ = reference.all_classes()[name]
    taken = [each.lstrip("*") for each in reference.parameters_of(class_)]
    own = inspect.signature(found).parameters.values()
    variadic = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    if listed:
        assert {each.name for each in own if each.kind not in variadic} <= set(listed)
    is_layer = issubclass(found, keras.layers.Layer)
    if part == "layers" and is_layer and found.call is not keras.layers.Layer.call:
        call = inspect.signature(found.call).parameters.values()
        names = {each.name for each in call if each.kind not in variadic} - {"self"}
        assert names <= set(reference.items_of(written["Call arguments"]))
        assert set(taken) - {"kwargs"} <= set(listed)
        assert written["Returns"]


def test_sections_of_prose_become_paragraphs_and_lists_stay_lists():
    lists = "A.\n\nArgs:\n    b: C.\n\n"
    prose = "Call arguments:\n    As in `D`.\n\nReturns:\n    E.\n"
    paragraphs = "**Call arguments:**\n\nAs in `D`.\n\n**Returns:**\n\nE.\n"
    assert reference.translate_sections(lists + prose) == lists + paragraphs


def test_the_site_reads_every_docstring_as_it_is_meant(caplog):
    for name in reference.public_names():
        docstring = reference.load_package()[name].docstring
        docstring.value = reference.translate_sections(docstring.value)
        docstring.parse("google", warn_missing_types=False, warn_unknown_params=False)
    assert not caplog.messages


def test_the_reference_links_every_public_name(pages):
    for part in reference.PARTS:
        table = pages.texts[f"reference/{part}/index.md"]
        for name in importlib.import_module(f"keras_transformer.{part}").__all__:
            assert f"[`{name}`][keras_transformer.{part}.{name}]" in table
            page = pages.texts.get(f"reference/{part}/{name}.md", table)
            assert f"\n::: keras_transformer.{part}.{name}\n" in page


def test_the_page_of_settings_has_every_setting(pages):
    for setting in settings():
        name = setting.name.partition(".")[2]
        row = f"| `{name}` |" if name else f"## {setting.name}"
        assert row in pages.texts["settings.md"]


def test_the_parts_are_those_of_the_package():
    import keras_transformer

    packages = set(keras_transformer.__all__) - {"Translator", "__version__"}
    assert packages <= set(reference.PARTS)


def test_the_navigation_names_every_page_once(pages):
    text = site.with_navigation((ROOT / "mkdocs.yml").read_text("utf-8"))
    named = re.findall(r"^ +- (?:.+: )?([\w/]+\.md)$", text, re.MULTILINE)
    assert sorted(named) == sorted(pages.texts)
    assert "\nstrict: true\n" in text


def test_a_page_links_to_the_repository_once_its_address_is_known(monkeypatch):
    tutorial = ROOT / "tutorials" / "02_positions.py"
    assert "colab" not in site.opening_line(tutorial)
    source = "https://github.com/owner/name/blob/main"
    monkeypatch.setattr(site, "SOURCE_URL", source)
    colab = "https://colab.research.google.com/github/owner/name/blob/main"
    assert f"({colab}/notebooks/02_positions.ipynb)" in site.opening_line(tutorial)
    test = "tests/layers/test_mask_contract.py"
    assert f"({source}/{test})" in site.Pages().texts["guarantees.md"]


def test_every_link_of_a_page_leads_to_a_page_a_heading_or_a_file(pages):
    for page, text in pages.texts.items():
        for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", prose(text)):
            if not re.match(r"[a-z]+:", target):
                path = Path("/", page).parent.joinpath(target or Path(page).name)
                found = str(path.resolve().relative_to("/"))
                assert found in pages.files or found in pages.texts, (page, target)
                assert not anchor or anchor in anchors(pages.texts[found]), (
                    page,
                    anchor,
                )


def test_the_tests_that_hold_a_guarantee_exist():
    text = (ROOT / "docs" / "guarantees.md").read_text("utf-8")
    named = re.findall(r"\(\.\./(tests/[^)]+)\): `(\w+)`", text)
    assert len(named) > 10
    for path, name in named:
        assert f"def {name}(" in (ROOT / path).read_text("utf-8"), (path, name)


def prose(text):
    """Returns Markdown without its fenced blocks."""
    parts = []
    site.outside_code(text, lambda part: parts.append(part) or part)
    return "".join(parts)


def anchors(text):
    """Returns the anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)
    return {slugify(re.sub(r"[`*]", "", heading), "-") for heading in headings}
