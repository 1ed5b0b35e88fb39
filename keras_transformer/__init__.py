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

Importing the package registers all of its classes with Keras, so that
`keras.saving.load_model` finds them. What needs TensorFlow Text or Matplotlib loads
when it is first used.
"""

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if sys.version_info < (3, 10):  # noqa: UP036  pip does not check a checkout
    raise ImportError(
        "keras_transformer needs Python 3.10 to 3.13. This is Python "
        f"{sys.version.split()[0]}."
    )

from keras_transformer.checks import needs_backend, needs_tensorflow
from keras_transformer.version import __version__

if TYPE_CHECKING:
    from keras_transformer import (
        datasets,
        documents,
        evaluation,
        plots,
        serving,
        text,
        translator,
    )
    from keras_transformer.translator import Translator

__all__ = [
    "Translator",
    "__version__",
    "datasets",
    "decoding",
    "documents",
    "evaluation",
    "layers",
    "models",
    "plots",
    "serving",
    "text",
    "training",
    "translator",
]

# The shell answers `--help` before it loads Keras; its commands import what they need.
_IS_SHELL = (
    Path(*sys.argv[:1]).stem == "keras-transformer"
    or "keras_transformer.cli" in sys.orig_argv  # after `python -m`
)
if not _IS_SHELL:
    with needs_backend():
        from keras_transformer import decoding, layers, models, training


def __getattr__(name: str):
    if name in __all__:
        with needs_tensorflow(f"`{__name__}.{name}`"):
            found = importlib.import_module(f"{__name__}.{name.lower()}")
        return found.Translator if name == "Translator" else found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *__all__})
