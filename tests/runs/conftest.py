"""A run that is trained once, for all tests that look at one."""

import shutil

import pytest
from small_corpus import write_corpus, write_recipe

from keras_transformer.runs import Recipe, Run, train


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    """Folder of the corpus and the recipe, small.yaml."""
    folder = tmp_path_factory.mktemp("text")
    write_corpus(folder)
    write_recipe(folder / "small.yaml")
    return folder


@pytest.fixture(scope="session")
def load(text):
    """Function from settings to the recipe that differs in them."""
    return lambda **settings: Recipe.load(
        text / "small.yaml", {"data.folder": str(text), **settings}
    )


@pytest.fixture(scope="session")
def trained(load, tmp_path_factory):
    """A run of three epochs; copy it rather than change it."""
    return train(
        load(**{"training.epochs": 3}), tmp_path_factory.mktemp("runs") / "trained"
    )


@pytest.fixture
def copy(trained, tmp_path):
    """A copy of the trained run, to change."""
    shutil.copytree(trained.folder, tmp_path / "copy")
    return Run(tmp_path / "copy")
