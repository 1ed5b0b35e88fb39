"""Runs: training a translator from a recipe, in a folder that keeps every result.

All names but `Recipe` and `Settings` are imported when they are first used, so that a
recipe can be read without loading TensorFlow.
"""

import importlib

from keras_transformer.runs.recipe import Recipe, Settings

__all__ = [
    "Finished",
    "Log",
    "New",
    "Recipe",
    "Resumable",
    "Run",
    "Settings",
    "WriteLog",
    "prepare_recipe",
    "train",
]

_MODULES = {
    "Finished": "run",
    "Log": "log",
    "New": "run",
    "Resumable": "run",
    "Run": "run",
    "WriteLog": "log",
    "prepare_recipe": "preparing",
    "train": "training",
}


def __getattr__(name):
    if name in _MODULES:
        module = importlib.import_module(f"{__name__}.{_MODULES[name]}")
        return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
