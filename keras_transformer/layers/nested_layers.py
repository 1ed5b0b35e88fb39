"""Saving and loading of layers whose inner layers were changed or frozen."""

import keras

from keras_transformer.kernels.keras_private import all_layers


class NestedLayersMixin:
    """Saves which layers inside of a layer are frozen, quantised or adapted.

    Keras saves this in the config of the layer itself, but does not save the configs of
    layers inside of others. So the build config of the outer layer holds it.
    """

    def get_build_config(self):
        config = super().get_build_config()
        layers = all_layers(self)
        frozen = {id(x) for y in layers if not y.trainable for x in all_layers(y)}
        changes = {
            _path_inside(self, layer): change
            for layer in layers
            if (change := change_of(layer) | _trainable(layer, frozen))
        }
        return {**config, "inside": changes} if changes else config

    def build_from_config(self, config):
        config = dict(config)
        # "quantized" is the name in older files, which hold policies alone.
        policies = config.pop("quantized", {})
        changes = {path: {"dtype": policies[path]} for path in policies}
        changes |= config.pop("inside", {})
        super().build_from_config(config)
        for layer in all_layers(self):  # outer layers first
            change = changes.get(_path_inside(self, layer), {})
            apply_change(layer, change)
            if "trainable" in change:
                layer.trainable = change["trainable"]


def change_of(layer) -> dict:
    """Returns what was done to a layer, as `apply_change` takes it; {} for nothing."""
    change = {}
    if layer.quantization_mode is not None:
        change["dtype"] = keras.dtype_policies.serialize(layer.dtype_policy)
        config = getattr(layer, "quantization_config", None)
        if config is not None:
            change["quantization"] = keras.saving.serialize_keras_object(config)
    if getattr(layer, "lora_enabled", False):
        change["lora"] = [layer.lora_rank, layer.lora_alpha]
    return change


def apply_change(layer, change: dict) -> None:
    """Quantises a layer, or enables its low-rank adaptation, as it was in another."""
    if "quantization" in change:
        config = keras.saving.deserialize_keras_object(change["quantization"])
        layer.quantize(config.mode, config=config)
    elif "dtype" in change:
        layer.dtype_policy = keras.dtype_policies.deserialize(change["dtype"])
    if "lora" in change:
        layer.enable_lora(*change["lora"])


def _trainable(layer, frozen):
    """Whether a layer is trainable, if it or one around it is frozen."""
    is_told = layer.weights and id(layer) in frozen
    return {"trainable": layer.trainable} if is_told else {}


def _path_inside(layer, inner):
    return (inner.path or inner.name).removeprefix(f"{layer.path}/")
