"""Low-rank adaptation (LoRA) of a whole model.

Reference: [Hu et al., 2021](https://arxiv.org/abs/2106.09685), section 4
"""

from keras_transformer.checks import check_positive_integers
from keras_transformer.keras_private import all_layers
from keras_transformer.layers.projection import Projection
from keras_transformer.models.layer_paths import (
    changed_layers,
    layer_at,
    layers_with_paths,
)


def enable_lora(model, rank: int, alpha: float | None, projections) -> None:
    """Adapts the projections of these names; see `SettingsModel.enable_lora`."""
    check_positive_integers(rank=rank)
    if changed_layers(model):
        raise ValueError(
            "Low-rank adaptation needs a model that is not quantised and has none yet: "
            "`model.merge_lora()` ends an adaptation, and quantising comes last."
        )
    found = [x for x in all_layers(model) if isinstance(x, Projection)]
    names = sorted({layer.name for layer in found})
    unknown = sorted(set(projections) - set(names))
    if unknown or not projections:
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


def has_lora(model) -> bool:
    """Tells whether a model has low-rank adaptations."""
    return any("lora" in change for _, change in changed_layers(model))


def merge_lora(model):
    """Returns a model whose kernels hold the adaptations; itself if it has none."""
    if not has_lora(model):
        return model
    changes = changed_layers(model)
    quantised = [layer_at(model, path).path for path, x in changes if "dtype" in x]
    if quantised:
        raise ValueError(
            "Adaptations must be merged before the model is quantised: train them, "
            "then `model.merge_lora()`, and quantise what it returns. "
            f"Received: {len(quantised)} quantised layers, such as {quantised[0]}."
        )
    config = {**model.get_config(), "frozen_layers": [], "changed_layers": []}
    merged = type(model).from_config(config)
    adapted = [(path, layer_at(model, path)) for path, _ in changes]
    factors = {id(x) for _, layer in adapted for x in layer.factors()}
    weights = [weight for weight in model.weights if id(weight) not in factors]
    for weight, value in zip(merged.weights, weights, strict=True):
        weight.assign(value)
    for path, layer in adapted:
        layer_at(merged, path).kernel.assign(layer.merged_kernel())
    return merged
