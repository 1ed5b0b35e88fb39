"""Exports of models to other runtimes."""

import importlib
import os

import keras
import numpy as np

from keras_transformer.checks import optional
from keras_transformer.keras_private import all_layers
from keras_transformer.kernels import target


def export(model, filepath: str | os.PathLike, format: str, **kwargs) -> None:
    """Exports any Keras model with layers of this package, like `keras.Model.export`.

    The models of this package offer this as their method `export`.

    Args:
        model: A `keras.Model`.
        filepath: Path to write to.
        format: `"onnx"`, `"litert"`, `"openvino"`, or another format of Keras.
        **kwargs: The other arguments of `keras.Model.export`.

    Raises:
        ValueError: If a model quantized to int8 is exported to LiteRT.
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
        _teach_erfc()
    # Some formats take a path only as a string.
    keras.Model.export(model, str(filepath), format=format, **kwargs)


def check_suits_litert(model) -> None:
    """Raises `ValueError` for a model that is quantized to int8."""
    if "int8" in {x.quantization_mode for x in all_layers(model)}:
        raise ValueError(
            "LiteRT has no products of int8 kernels as Keras computes them. Export the "
            "model from before `quantize`, or quantize it to int4, which LiteRT takes."
        )


def _teach_erfc() -> None:
    """Teaches `tf2onnx` to convert `Erfc`, by which TensorFlow computes GELU."""
    from tf2onnx import constants, tfonnx, utils

    tf_op = tfonnx.handler.tf_op
    converters = tf_op.get_opsets()[constants.ONNX_DOMAIN]
    if any("Erfc" in names for names in converters):
        return

    def convert(graph, node, **kwargs):
        """Replaces `erfc(x)` by `1 - erf(x)`."""
        inputs, outputs = node.input, node.output
        dtype = utils.map_onnx_to_numpy_type(graph.get_dtype(outputs[0]))
        graph.remove_node(node.name)
        one = graph.make_const(utils.make_name("one"), np.ones((), dtype))
        erf = graph.make_node("Erf", inputs)
        graph.make_node("Sub", [one.output[0], erf.output[0]], outputs=outputs)

    tf_op("Erfc").register_compat_handler(convert, version=9)
