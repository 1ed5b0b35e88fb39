"""Runs: training a translator from a recipe, in a folder that keeps every result.

All names but `Recipe` are imported when they are first used, so that a recipe can be
read without loading TensorFlow.
"""

import importlib

from keras_transformer.runs.recipe import Recipe

__all__ = ["Log", "Plan", "Recipe", "Run", "WriteLog", "fit", "plan", "prepare"]

_MODULES = {
    "Log": "log",
    "Plan": "training",
    "Run": "folder",
    "WriteLog": "log",
    "fit": "training",
    "plan": "training",
    "prepare": "preparing",
}


def __getattr__(name):
    if name in _MODULES:
        module = importlib.import_module(f"{__name__}.{_MODULES[name]}")
        return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
