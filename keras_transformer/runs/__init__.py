"""Runs: training a translator from a recipe, in a folder that keeps every result.

All names but `Recipe` are imported when they are first used, so that a recipe can be
read without loading TensorFlow.
"""

import importlib

from keras_transformer.runs.recipe import Recipe

__all__ = ["Log", "Recipe", "Run", "WriteLog", "train"]

# No module is called `train`: importing it would replace the function of that name.
_MODULES = {"Log": "log", "Run": "folder", "WriteLog": "log", "train": "training"}


def __getattr__(name):
    if name in _MODULES:
        module = importlib.import_module(f"{__name__}.{_MODULES[name]}")
        return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
