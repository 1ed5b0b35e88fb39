"""Saving: layers as arguments of layers, and what was changed inside of a layer."""

from collections.abc import Callable

import keras

from keras_transformer.keras_private import all_layers

Activation = str | Callable
Dtype = str | keras.DTypePolicy | None
# The name of a scheme, a layer or its config.
Positions = str | keras.layers.Layer | dict | None


def copy_layer(layer, name, dtype):
    """Creates an unbuilt copy of a layer or of a `layer_config`; None for None.

    So every layer that receives the same layer as an argument has its own weights.
    The copy gets the `name` of the argument, which errors name too.
    """
    if layer is None:
        return None
    if isinstance(layer, dict):
        layer = keras.saving.deserialize_keras_object(layer)
    if not isinstance(layer, keras.layers.Layer):
        raise ValueError(f"`{name}` must be a layer. Received: {name}={layer!r}.")
    return type(layer).from_config({**layer.get_config(), "name": name, "dtype": dtype})


def layer_config(layer):
    """The config of a layer argument, for `get_config`; None for None."""
    if layer is None:
        return None
    config = keras.saving.serialize_keras_object(layer)
    # The copy is built for the shapes of the place where it is used.
    config.pop("build_config", None)
    config["config"]["dtype"] = policy_config(layer.dtype_policy)
    return config


def policy_config(policy) -> dict:
    """The config of a dtype policy.

    While Keras loads a model, it adds ids of shared objects to what `serialize` returns
    or has returned.
    """
    config = dict(keras.dtype_policies.serialize(policy))
    config.pop("shared_object_id", None)
    return config


def modifications(layer) -> dict:
    """Returns how a layer was quantized and adapted, for `modify`; {} if it was not."""
    found: dict = {}
    if layer.quantization_mode is not None:
        found["dtype"] = policy_config(layer.dtype_policy)
        config = getattr(layer, "quantization_config", None)
        if config is not None:
            found["quantization"] = keras.saving.serialize_keras_object(config)
    if getattr(layer, "lora_enabled", False):
        found["lora"] = [layer.lora_rank, layer.lora_alpha]
    return found


def modify(layer, found: dict) -> None:
    """Quantizes and adapts a layer as `modifications` says."""
    if "quantization" in found:
        config = keras.saving.deserialize_keras_object(found["quantization"])
        layer.quantize(config.mode, config=config)
    elif "dtype" in found:
        layer.dtype_policy = keras.dtype_policies.deserialize(found["dtype"])
    if "lora" in found:
        layer.enable_lora(*found["lora"])
    if "trainable" in found:
        layer.trainable = found["trainable"]


def modifications_inside(layer) -> dict:
    """Returns what was quantized, adapted or frozen inside of a layer, by its paths.

    Keras saves this in the config of the layer itself, but does not save the configs of
    layers inside of others.
    """
    layers = all_layers(layer)
    frozen = {id(x) for y in layers if not y.trainable for x in all_layers(y)}
    found: dict = {}
    for inner in layers:
        found_here = modifications(inner)
        if inner.weights and id(inner) in frozen:
            found_here["trainable"] = inner.trainable
        if found_here:
            found[_path_inside(layer, inner)] = found_here
    return found


def modify_inside(layer, found: dict) -> None:
    """Quantizes, adapts and freezes as `modifications_inside` says."""
    for inner in all_layers(layer):  # outer layers first
        modify(inner, found.get(_path_inside(layer, inner), {}))


def _path_inside(layer, inner):
    return (inner.path or inner.name).removeprefix(f"{layer.path}/")
