"""A run that is trained once, for all tests that look at one."""

import shutil

import pytest

from keras_transformer.runs import Recipe, Run


@pytest.fixture(scope="session")
def text(small_text):
    """Folder of the corpus and the recipe, small.yaml."""
    return small_text


@pytest.fixture(scope="session")
def load(text):
    """Function from settings to the recipe that differs in them."""
    return lambda **settings: Recipe.load(
        text / "small.yaml", {"data.folder": str(text), **settings}
    )


@pytest.fixture(scope="session")
def trained(trained_by_the_shell):
    """A run of three epochs; copy it rather than change it."""
    return Run(trained_by_the_shell / "run")


@pytest.fixture
def copy(trained, tmp_path):
    """A copy of the trained run, to change."""
    shutil.copytree(trained.folder, tmp_path / "copy")
    return Run(tmp_path / "copy")
