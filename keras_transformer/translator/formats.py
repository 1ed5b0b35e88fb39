"""The formats of `Translator.export`, registered and looked up by name."""

import importlib
import inspect
from collections.abc import Callable

# These modules register formats. They import the translator, so they are imported late.
_MODULES = (
    "keras_transformer.serving.saved_model",
    "keras_transformer.interop.ctranslate2",
    "keras_transformer.interop.hugging_face.export",
)
_EXPORTERS: dict[str, Callable] = {}


def register_format(name: str):
    """Decorates the function that writes a format, with the arguments of `export`.

    It is called as `exporter(translator, path, search, max_length, **options)` and
    returns the path. It names the options that it has, with defaults.
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


def export_as(name: str, translator, path, search, max_length=None, **options):
    """Writes a translator in a format, and returns the path.

    Options that are None or False are left to the format.

    Raises:
        ValueError: If there is no such format, or it lacks one of the options.
    """
    exporter = find_format(name)
    given = {option: x for option, x in options.items() if x not in (None, False)}
    known = inspect.signature(exporter).parameters
    for option, value in given.items():
        if option not in known:
            raise ValueError(
                f"`{option}` must be left out for format={name!r}, which has no such "
                f"option. Received: {option}={value!r}."
            )
    return exporter(translator, path, search, max_length, **given)
