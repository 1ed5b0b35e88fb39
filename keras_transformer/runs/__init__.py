"""Runs: training a translator from a recipe, in a folder that keeps every result."""

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

# Imported when first used: a recipe can be read without loading TensorFlow.
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
