"""Saving: objects and layers by their arguments, and what was changed inside layers."""

import contextlib
import inspect
import json
import os
import tempfile
import zipfile
from collections.abc import Callable

import h5py
import keras

from keras_transformer.keras_private import all_layers

Activation = str | Callable
Dtype = str | keras.DTypePolicy | None
# The name of a scheme, a layer or its config.
Positions = str | keras.layers.Layer | dict | None


class ConfigObject:
    """Base of searches, processors and length penalties.

    Two of them with equal settings are equal, so that a program compiled for one
    serves the other. Subclasses store every constructor argument under its own name.
    """

    def get_config(self):
        config = {}
        for name in inspect.signature(type(self)).parameters:
            value = getattr(self, name)
            value = list(value) if isinstance(value, tuple) else value
            config[name] = keras.saving.serialize_keras_object(value)
        return config

    @classmethod
    def from_config(cls, config):
        deserialize = keras.saving.deserialize_keras_object
        return cls(**{name: deserialize(value) for name, value in config.items()})

    def __eq__(self, other):
        return type(self) is type(other) and self.get_config() == other.get_config()

    def __hash__(self):
        return hash((type(self), json.dumps(self.get_config(), sort_keys=True)))

    def __repr__(self):
        names = inspect.signature(type(self)).parameters
        settings = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__name__}({settings})"


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
    return config


def modifications(layer) -> dict:
    """Returns how a layer was quantised and adapted, for `modify`; {} if it was not."""
    found = {}
    if layer.quantization_mode is not None:
        found["dtype"] = keras.dtype_policies.serialize(layer.dtype_policy)
        config = getattr(layer, "quantization_config", None)
        if config is not None:
            found["quantization"] = keras.saving.serialize_keras_object(config)
    if getattr(layer, "lora_enabled", False):
        found["lora"] = [layer.lora_rank, layer.lora_alpha]
    return found


def modify(layer, found: dict) -> None:
    """Quantises and adapts a layer as `modifications` says."""
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
    """Returns what was quantised, adapted or frozen inside of a layer, by its paths.

    Keras saves this in the config of the layer itself, but does not save the configs of
    layers inside of others.
    """
    layers = all_layers(layer)
    frozen = {id(x) for y in layers if not y.trainable for x in all_layers(y)}
    found = {}
    for inner in layers:
        found_here = modifications(inner)
        if inner.weights and id(inner) in frozen:
            found_here["trainable"] = inner.trainable
        if found_here:
            found[_path_inside(layer, inner)] = found_here
    return found


def modify_inside(layer, found: dict) -> None:
    """Quantises, adapts and freezes as `modifications_inside` says."""
    for inner in all_layers(layer):  # outer layers first
        modify(inner, found.get(_path_inside(layer, inner), {}))


def first_difference(model, path: str) -> str | None:
    """Describes the first weight of a model that a file lacks, or has in another shape.

    The file is a `.weights.h5` or `.keras` file. None if it has all, as far as known.
    """
    with tempfile.TemporaryDirectory() as folder:
        own = os.path.join(folder, "own.weights.h5")
        model.save_weights(own)
        wanted, found = _weight_shapes(own), _weight_shapes(path)
    for name, shape in wanted.items():
        if name.startswith("layers/") and found.get(name) != shape:
            has = f"of the shape {found[name]}" if name in found else "missing"
            return f"{name} {has}, where the model has {shape}"
    return None


def _weight_shapes(path):
    """Returns the shapes of the weights in a file, None for groups, by their names."""
    shapes: dict = {}
    with contextlib.ExitStack() as stack:
        file = path
        if path.endswith(".keras"):
            archive = stack.enter_context(zipfile.ZipFile(path))
            file = stack.enter_context(archive.open("model.weights.h5"))
        weights = stack.enter_context(h5py.File(file))
        weights.visititems(
            lambda name, x: shapes.update({name: getattr(x, "shape", None)})
        )
    return shapes


def _path_inside(layer, inner):
    return (inner.path or inner.name).removeprefix(f"{layer.path}/")
