"""Build, train, understand and serve Transformers in Keras 3.

Names are spelled out. They correspond to the symbols of [Vaswani et al.,
2017](https://arxiv.org/abs/1706.03762) like this:

| Name | Symbol | Meaning |
| --- | --- | --- |
| `hidden_dim` | d_model | width of the states between layers |
| `key_dim` | d_k | width of one head's queries and keys |
| `value_dim` | d_v | width of one head's values |
| `intermediate_dim` | d_ff | inner width of the feed-forward network |
| `num_heads` | h | attention heads side by side |
| `num_layers` | N | blocks of the encoder, and of the decoder |

Importing the package is cheap: Keras, and with it its backend, loads when a part of
the package is first used. As soon as Keras is imported, by whomever, every class of
the package is registered with it, so that `import keras_transformer` is all that
`keras.saving.load_model` needs.
"""

import importlib

import wrapt

from keras_transformer.version import __version__

__all__ = [
    "Translator",
    "__version__",
    "datasets",
    "decoding",
    "layers",
    "models",
    "plots",
    "serving",
    "text",
    "training",
    "translator",
]

_SUBMODULES = frozenset(__all__) - {"Translator", "__version__"}


@wrapt.when_imported("keras")
def _register_classes(keras):
    """Imports the modules whose classes saved models name."""
    for name in ("layers", "decoding", "models", "training"):
        importlib.import_module(f"{__name__}.{name}")


def __getattr__(name):
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name == "Translator":
        importlib.import_module(f"{__name__}.serving")  # registers its export format
        return importlib.import_module(f"{__name__}.translator").Translator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *__all__})
