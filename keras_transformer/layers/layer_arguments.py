"""Layers passed to layers: one that is configured, a copy wherever it is used."""

import keras


def copy_layer(layer, name, dtype):
    """Makes a fresh layer with the settings of another.

    So a layer that is passed as an argument is a pattern: whoever takes it up
    has weights of its own.

    Args:
        layer: A layer, or what `layer_config` made of one, or None.
        name: Name of the argument, and of the copy.
        dtype: Dtype policy of the copy.

    Returns:
        A layer of the same class, not built; of None, None.

    Raises:
        ValueError: If `layer` is none of those.
    """
    if layer is None:
        return None
    if isinstance(layer, dict):
        layer = keras.saving.deserialize_keras_object(layer)
    if not isinstance(layer, keras.layers.Layer):
        raise ValueError(f"`{name}` must be a layer. Received: {name}={layer!r}.")
    return type(layer).from_config({**layer.get_config(), "name": name, "dtype": dtype})


def layer_config(layer):
    """What `get_config` keeps of a layer that was passed; of None, None."""
    if layer is None:
        return None
    config = keras.saving.serialize_keras_object(layer)
    # The shapes that it was built for are a matter of where it is used.
    config.pop("build_config", None)
    return config
