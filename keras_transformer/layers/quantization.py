"""Quantised layers inside of layers, saved and loaded."""

import keras

from keras_transformer.kernels.keras_private import all_layers


class QuantizedInsideMixin:
    """Lets a layer in which layers are quantised be loaded with these quantised.

    Keras saves what `quantize` does to a layer in the config of that layer, which it
    does not save for layers inside of others. Here the build config holds it.
    """

    def get_build_config(self):
        config = super().get_build_config()
        policies = quantized_policies(self)
        return {**config, "quantized": policies} if policies else config

    def build_from_config(self, config):
        config = dict(config)
        policies = config.pop("quantized", {})
        super().build_from_config(config)
        for layer in all_layers(self):
            policy = policies.get(_path_inside(self, layer))
            if policy:
                layer.dtype_policy = keras.dtype_policies.deserialize(policy)


def quantized_policies(layer) -> dict:
    """Returns the dtype policy of each quantised layer, by its path in `layer`."""
    return {
        _path_inside(layer, inner): keras.dtype_policies.serialize(inner.dtype_policy)
        for inner in all_layers(layer)
        if inner.quantization_mode is not None
    }


def _path_inside(layer, inner):
    return (inner.path or inner.name).removeprefix(f"{layer.path}/")
