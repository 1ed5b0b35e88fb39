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

_NAMES = {
    "run": ("Finished", "New", "Resumable", "Run"),
    "log": ("Log", "WriteLog"),
    "preparing": ("prepare_recipe",),
    "training": ("train",),
}


def __getattr__(name):
    for module, names in _NAMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
