"""The formats of `Translator.export`, registered and looked up by name."""

import importlib
from collections.abc import Callable

# They import the translator and register their formats. Loaded at the first look-up.
_MODULES = ("keras_transformer.serving.saved_model",)
_EXPORTERS = {}


def register_format(name: str):
    """Decorates the function that writes a format, with the arguments of `export`.

    It is called as `exporter(translator, path, search, max_length, **options)` and
    returns the path.
    """

    def register(exporter):
        _EXPORTERS[name] = exporter
        return exporter

    return register


def find_format(name: str) -> Callable:
    """Returns the exporter of a format; raises `ValueError` if there is none."""
    for module in _MODULES:
        importlib.import_module(module)
    if name not in _EXPORTERS:
        known = ", ".join(map(repr, sorted(_EXPORTERS)))
        raise ValueError(f"`format` must be one of {known}. Received: format={name!r}.")
    return _EXPORTERS[name]
