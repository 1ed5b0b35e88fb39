"""Layers as arguments of layers: copied where they are used, saved as configs."""

from collections.abc import Callable

import keras

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
    return config
