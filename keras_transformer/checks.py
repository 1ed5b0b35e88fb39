"""Checks shared by all parts of the package: arguments, and optional packages."""

import contextlib
import math
import numbers
import os
from collections.abc import Iterator

from keras_transformer.version import INSTALL


@contextlib.contextmanager
def optional(package: str, extra: str, purpose: str) -> Iterator[None]:
    """Names the extra to install if `package` cannot be imported inside.

    Args:
        package: Name of the package as it is imported.
        extra: The extra of this package that installs it.
        purpose: What needs it, as the subject of a sentence.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise  # it is installed, and lacks something itself
        raise ImportError(
            f"{purpose} needs the package {package}, which is not installed. "
            f"Install it with: {INSTALL.format(extra=extra)}"
        ) from None


@contextlib.contextmanager
def needs_tensorflow(purpose: str) -> Iterator[None]:
    """Says what to install if TensorFlow cannot be imported inside."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in ("tensorflow", "tensorflow_text"):
            raise
        raise ImportError(
            f"{purpose} needs the package {error.name}, which is not installed. "
            "Install it with: pip install tensorflow tensorflow-text. Without it, "
            "layers, models and decoding work on JAX and PyTorch."
        ) from None


@contextlib.contextmanager
def needs_backend() -> Iterator[None]:
    """Says what to do if the backend of Keras cannot be imported inside."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("tensorflow", "jax", "torch"):
            raise
        raise ImportError(
            f"Keras's backend needs the package {package}, which is not installed. "
            "Install it, or choose another backend by the environment variable "
            "KERAS_BACKEND: tensorflow, jax or torch."
        ) from None
    except ValueError as error:
        if "import backend" not in str(error):  # Keras's words on an unknown one
            raise
        raise ValueError(
            "`KERAS_BACKEND` must be tensorflow, jax or torch. "
            f"Received: KERAS_BACKEND={os.environ.get('KERAS_BACKEND')}."
        ) from None


def check_positive_integers(**values) -> None:
    """Raises `ValueError` unless every value is a positive integer."""
    for name, value in values.items():
        if not isinstance(value, numbers.Integral) or value < 1:
            raise ValueError(
                f"`{name}` must be a positive integer. Received: {name}={value!r}."
            )


def check_fractions(**values) -> None:
    """Raises `ValueError` unless every value is a number from 0 to 1."""
    for name, value in values.items():
        if not isinstance(value, numbers.Real) or not 0 <= float(value) <= 1:
            raise ValueError(
                f"`{name}` must be a number from 0 to 1. Received: {name}={value!r}."
            )


def is_finite_number(value) -> bool:
    """Returns whether a setting is a finite number, rather than a str or a list."""
    return isinstance(value, numbers.Real) and math.isfinite(value)


def check_shape(name: str, shape, *axes: str) -> None:
    """Raises `ValueError` unless `shape` has the named axes."""
    if len(shape) != len(axes):
        raise ValueError(
            f"`{name}` must have the shape ({', '.join(axes)}). "
            f"Received: {name} of shape {tuple(shape)}."
        )


def check_ids(
    ids,
    name: str = "ids",
    is_batch: bool = False,
    vocabulary_size: int | None = None,
) -> None:
    """Raises `ValueError` unless `ids` is a tensor or an array of integers.

    With `is_batch`, its shape must be `(batch, length)`. If a `vocabulary_size` is
    given, all ids must be in the vocabulary.
    """
    if not hasattr(ids, "dtype"):
        raise ValueError(
            f"`{name}` must be an array or a tensor of integers. "
            f"Received: {name} of type {type(ids).__name__}."
        )
    import keras  # here, because checks of plain numbers do without its slow import

    dtype = keras.backend.standardize_dtype(ids.dtype)
    if "int" not in dtype:
        raise ValueError(
            f"`{name}` must be integers, as tokenizers return them; `Sequential` "
            "passes them on after `keras.Input((None,), dtype='int32')`. "
            f"Received: {name} of dtype {dtype}."
        )
    if is_batch and len(ids.shape) != 2:
        raise ValueError(
            f"`{name}` must have the shape (batch, length). "
            f"Received: {name} of shape {tuple(ids.shape)}."
        )
    if vocabulary_size is not None:
        check_vocabulary(ids, vocabulary_size)


def check_vocabulary(ids, vocabulary_size: int) -> None:
    """Raises `ValueError` unless all ids are in a vocabulary."""
    from keras import ops

    ids = ops.convert_to_numpy(ids)
    outside = ids[(ids < 0) | (ids >= vocabulary_size)]
    if outside.size:
        raise ValueError(
            f"Ids must lie in the model's vocabulary of {vocabulary_size} tokens. "
            f"Received: {outside[0]}. Use the tokenizer that the model was trained "
            "with."
        )
