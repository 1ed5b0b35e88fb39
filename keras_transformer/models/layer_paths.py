"""Where layers are in a model, in a form that a config can hold."""

import keras

from keras_transformer.keras_private import all_layers
from keras_transformer.layers.saving import modifications


def layers_with_paths(model):
    """Yields every layer inside of a model with its path, outer layers first.

    A path holds the index of the layer in `model.layers`, after those of the models
    around it; and for a layer inside of a layer, such as a block, its Keras path.
    """
    for index, layer in enumerate(model.layers):
        yield [index], layer
        if isinstance(layer, keras.Model):
            inner = layers_with_paths(layer)
            yield from (([index, *path], x) for path, x in inner)
        else:
            yield from (([index, x.path], x) for x in all_layers(layer)[1:])


def frozen_layers(model) -> list:
    """Returns the paths of all frozen layers, without those inside of frozen layers."""
    frozen: list[list] = []
    for path, layer in layers_with_paths(model):
        is_in_frozen = any(_is_inside(path, outer) for outer in frozen)
        if layer.weights and not layer.trainable and not is_in_frozen:
            frozen.append(path)
    return frozen


def changed_layers(model) -> list:
    """Returns the path of each quantised or adapted layer, with what was done to it."""
    return [
        [path, change]
        for path, layer in layers_with_paths(model)
        if not isinstance(layer, keras.Model) and (change := modifications(layer))
    ]


def is_quantizable(layer) -> bool:
    """Tells whether Keras can quantise a layer."""
    return isinstance(layer, keras.layers.Dense | keras.layers.Embedding)


def layer_at(model, path):
    """Returns the layer with this path."""
    layer = model
    for step in path:
        if isinstance(step, int):
            layer = layer.layers[step]
        else:
            (layer,) = (x for x in all_layers(layer) if x.path == step)
    return layer


def _is_inside(path, outer):
    *outer_models, last = outer
    if path[: len(outer)] == outer:
        return True
    return path[:-1] == outer_models and str(path[-1]).startswith(f"{last}/")
