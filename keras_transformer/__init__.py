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

Importing the package is cheap: a submodule, and Keras or TensorFlow with it,
loads when it is first named. A saved model names classes, which
`keras.models.load_model` finds once their modules are loaded: name `models`
first, and `training` if the model was compiled, as in
`from keras_transformer import models, training`.
"""

import importlib

from keras_transformer.version import __version__

__all__ = [
    "Translator",
    "__version__",
    "datasets",
    "decoding",
    "export",
    "layers",
    "models",
    "plots",
    "text",
    "training",
]

_SUBMODULES = frozenset(__all__) - {"Translator", "__version__"}


def __getattr__(name):
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name == "Translator":
        return importlib.import_module(f"{__name__}.translator").Translator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *__all__})
