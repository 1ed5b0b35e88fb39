"""What was done to the layers of a model: frozen, quantized or adapted (LoRA).

Reference: [Hu et al., 2021](https://arxiv.org/abs/2106.09685), section 4
"""

import keras

from keras_transformer.checks import check_positive_integers
from keras_transformer.keras_private import all_layers
from keras_transformer.layers.projection import Projection
from keras_transformer.layers.saving import modifications


def layers_with_paths(model):
    """Yields every layer inside of a model with its path, outer layers first.

    A config can hold a path. It is the index of the layer in `model.layers`, after the
    indices of the models around it; for a layer inside of a layer, such as a block, the
    Keras path of the layer follows.
    """
    for index, layer in enumerate(model.layers):
        yield [index], layer
        if isinstance(layer, keras.Model):
            inner = layers_with_paths(layer)
            yield from (([index, *path], x) for path, x in inner)
        else:
            yield from (([index, x.path], x) for x in all_layers(layer)[1:])


def layer_at(model, path: list):
    """Returns the layer with this path."""
    layer = model
    for step in path:
        if isinstance(step, int):
            layer = layer.layers[step]
        else:
            (layer,) = (x for x in all_layers(layer) if x.path == step)
    return layer


def frozen_layers(model) -> list[list]:
    """Returns the paths of all frozen layers, without layers inside of frozen ones."""
    frozen: list[list] = []
    for path, layer in layers_with_paths(model):
        is_in_frozen = any(_is_inside(path, outer) for outer in frozen)
        if layer.weights and not layer.trainable and not is_in_frozen:
            frozen.append(path)
    return frozen


def _is_inside(path, outer):
    *outer_models, last = outer
    if path[: len(outer)] == outer:
        return True
    return path[:-1] == outer_models and str(path[-1]).startswith(f"{last}/")


def changed_layers(model) -> list[list]:
    """Returns the path of each quantized or adapted layer, with what was done to it."""
    return [
        [path, change]
        for path, layer in layers_with_paths(model)
        if not isinstance(layer, keras.Model) and (change := modifications(layer))
    ]


def is_quantizable(layer, mode: str | None) -> bool:
    """Tells whether Keras can quantize a layer: embeddings only to integers."""
    dense, embedding = keras.layers.Dense, keras.layers.Embedding
    return isinstance(layer, dense | embedding if mode in ("int8", "int4") else dense)


def has_lora(model) -> bool:
    """Tells whether a model has low-rank adaptations."""
    return any("lora" in change for _, change in changed_layers(model))


def enable_lora(model, rank: int, alpha: float | None, projections) -> None:
    """Adapts the projections of these names; see `SettingsModel.enable_lora`."""
    check_positive_integers(rank=rank)
    if changed_layers(model):
        raise ValueError(
            "Low-rank adaptation needs a model without earlier adaptation or "
            "quantization: call `model.merge_lora()` first, and quantize last."
        )
    found = [x for x in all_layers(model) if isinstance(x, Projection)]
    names = sorted({layer.name for layer in found})
    if not projections or not set(projections) <= set(names):
        raise ValueError(
            f"`projections` must be among {names}. Received: projections={projections}."
        )
    adapted = [layer for layer in found if layer.name in projections]
    for layer in adapted:
        layer.enable_lora(rank, alpha)
    for _, layer in layers_with_paths(model):  # outer layers first
        inside = map(id, all_layers(layer))
        layer.trainable = not {id(x) for x in adapted}.isdisjoint(inside)
    for layer in adapted:
        layer.freeze_kernel()


def merge_lora(model):
    """Returns a model with the adaptations merged into its kernels, or the model."""
    if not has_lora(model):
        return model
    changes = changed_layers(model)
    quantized = [layer_at(model, path).path for path, x in changes if "dtype" in x]
    if quantized:
        raise ValueError(
            "Adaptations must be merged before the model is quantized: train them, "
            "then `model.merge_lora()`, and quantize what it returns. "
            f"Received: {len(quantized)} quantized layers, such as {quantized[0]}."
        )
    config = {**model.get_config(), "frozen": [], "changed": []}
    merged = type(model).from_config(config)
    adapted = [(path, layer_at(model, path)) for path, _ in changes]
    factors = {id(x) for _, layer in adapted for x in layer.factors()}
    weights = [weight for weight in model.weights if id(weight) not in factors]
    for weight, value in zip(merged.weights, weights, strict=True):
        weight.assign(value)
    for path, layer in adapted:
        layer_at(merged, path).kernel.assign(layer.merged_kernel())
    return merged
