"""What a recipe may hold, as text, as a page and as a recipe of comments."""

import re

import pytest

from keras_transformer.runs import Recipe
from keras_transformer.runs.recipe import names_from_text
from keras_transformer.runs.reference import (
    as_recipe,
    as_text,
    settings,
)
from keras_transformer.runs.settings import fields

WRITTEN = {
    "data.source": "en",
    "data.target": "fr",
    "data.train.source": '"train.{source}"',
    "data.train.target": '"train.{target}"',
}
NAMES = [name for name, _ in fields(Recipe)]


def test_every_setting_has_a_meaning():
    found = {setting.name: setting for setting in settings()}
    assert list(found) == NAMES
    assert all(setting.meaning.endswith(".") for setting in found.values())
    assert found["training.seed"].default == "1"
    assert found["data.source"].default == ""
    assert "`muon`" in found["training.optimizer"].meaning
    for name in names_from_text():
        assert found[name].default == ""
        assert f"{name} (default: from the text)" in as_text()
        assert re.search("Default: ", found[name].meaning), name


def test_the_text_holds_every_setting():
    text = as_text()
    for setting in settings():
        assert re.search(rf"^{re.escape(setting.name)}( \(|$)", text, re.MULTILINE)
    assert max(map(len, text.splitlines())) <= 88


def test_a_recipe_of_comments_names_its_files_alone(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(as_recipe(WRITTEN, is_long=True), "utf-8")
    recipe = Recipe.load(path)
    assert recipe.data.paths("train", "target")[0].path.name == "train.fr"
    named = recipe.model_dump(exclude_unset=True)
    assert named.keys() == {"data"}
    assert named["data"].keys() == {"source", "target", "train"}
    path.write_text(as_recipe(WRITTEN), "utf-8")
    assert Recipe.load(path) == recipe
    assert len(path.read_text().splitlines()) == 7


OPTIONAL = "data.test", "data.validation"


@pytest.mark.parametrize("name", [x for x in NAMES if not x.startswith(OPTIONAL)])
def test_a_comment_that_becomes_a_line_is_the_default(tmp_path, name):
    """As a reader would uncomment it, in the section that the recipe has."""
    section, _, key = name.rpartition(".")
    lines, here = as_recipe(WRITTEN, is_long=True).splitlines(), []
    for number, line in enumerate(lines):
        if found := re.match(r"( *)(# )?([a-z_]+):", line):
            here[len(found[1]) // 2 :] = [found[3]]
            if found[2] and ".".join(here) == name:
                lines[number] = line.replace("# ", "", 1)
    path = tmp_path / "recipe.yaml"
    path.write_text("\n".join(lines), "utf-8")
    recipe = Recipe.load(path)
    plain = tmp_path / "plain.yaml"
    plain.write_text(as_recipe(WRITTEN, is_long=True), "utf-8")
    assert recipe == Recipe.load(plain)
    if section and f"# {key}:" in as_recipe(WRITTEN, is_long=True):
        *sections, key = name.split(".")
        for each in sections:
            recipe = getattr(recipe, each)
            recipe = recipe[0] if isinstance(recipe, tuple) else recipe
        assert key in recipe.model_fields_set
