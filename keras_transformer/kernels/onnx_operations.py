"""TensorFlow's operations that `tf2onnx`, which Keras exports with, cannot convert."""

import numpy as np


def add_missing_operations() -> None:
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
