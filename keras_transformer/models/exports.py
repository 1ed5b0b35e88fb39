"""Exports of models to other runtimes."""

import importlib
import os

import keras

from keras_transformer.checks import optional
from keras_transformer.keras_private import all_layers
from keras_transformer.kernels import onnx_operations, target


def export(model, filepath: str | os.PathLike, format: str, **kwargs) -> None:
    """Exports any Keras model with layers of this package, as `keras.Model.export`.

    The models of this package do so in their method `export`.

    Args:
        model: A `keras.Model`.
        filepath: Path to write to.
        format: `"onnx"`, `"litert"`, `"openvino"`, or another one of Keras.
        **kwargs: The other arguments of `keras.Model.export`.

    Raises:
        ValueError: If a model that is quantised to int8 goes to LiteRT.
        ImportError: If the converter of the format is not installed.

    Example:
        >>> inputs = keras.Input((None, 16))
        >>> layer = kt.layers.EncoderBlock(num_heads=2, intermediate_dim=32)
        >>> model = keras.Model(inputs, layer(inputs))
        >>> kt.models.export(model, "model.onnx", format="onnx")  # doctest: +SKIP
    """
    if format == "litert":
        check_suits_litert(model)
    package = {"onnx": "tf2onnx", "openvino": "openvino"}.get(format)
    if package is not None and target.BACKEND == "tensorflow":
        with optional(package, extra="export", purpose=f"The format {format!r}"):
            importlib.import_module(package)
    if format == "onnx" and target.BACKEND == "tensorflow":
        onnx_operations.add_missing_operations()
    # Some formats take a path only as a string.
    keras.Model.export(model, str(filepath), format=format, **kwargs)


def check_suits_litert(model) -> None:
    """Raises `ValueError` for a model that is quantised to int8."""
    if "int8" in {x.quantization_mode for x in all_layers(model)}:
        raise ValueError(
            "LiteRT has no products of int8 kernels as Keras computes them. Export the "
            "model from before `quantize`, or quantise it to int4, which LiteRT takes."
        )
