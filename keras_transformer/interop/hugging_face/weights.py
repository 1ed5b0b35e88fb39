"""Weights of Marian, Pegasus and M2M100, whose checkpoints use the same names."""

import re
from collections.abc import Mapping

import numpy as np

# From our path to the name in a checkpoint, applied in this order.
_RENAMES = (
    (r"^(encoder|decoder)/block_(\d+)/", r"model.\1.layers.\2."),
    (r"^(encoder|decoder)/final_norm/", r"model.\1.layer_norm."),
    (r"^embedding/embeddings$", "model.shared.weight"),
    (r"^source_embedding/embeddings$", "model.encoder.embed_tokens.weight"),
    (r"^target_embedding/embeddings$", "model.decoder.embed_tokens.weight"),
    (r"^output_bias/bias$", "final_logits_bias"),
    (r"self_attention_residual/norm/", "self_attn_layer_norm."),
    (r"cross_attention_residual/norm/", "encoder_attn_layer_norm."),
    (r"feed_forward_residual/norm/", "final_layer_norm."),
    (r"self_attention/", "self_attn."),
    (r"cross_attention/", "encoder_attn."),
    (r"query/", "q_proj."),
    (r"key/", "k_proj."),
    (r"value/", "v_proj."),
    (r"output/", "out_proj."),
    (r"feed_forward/widen/", "fc1."),
    (r"feed_forward/narrow/", "fc2."),
    (r"(kernel|gamma)$", "weight"),
    (r"beta$", "bias"),
)

# Of a table of positions: bfloat16 rounds them by up to 0.002.
_POSITIONS_TOLERANCE = 1e-2
_TIED_TOLERANCE = 1e-5


def weights_of(model) -> dict[str, np.ndarray]:
    """Returns the weights of a `Transformer` under their names in a checkpoint."""
    weights = {}
    for weight in model.weights:
        name, array = weight.path, np.asarray(weight)
        for pattern, replacement in _RENAMES:
            name = re.sub(pattern, replacement, name)
        # PyTorch keeps the kernels of linear layers transposed, and this bias 2-D.
        array = array.T if weight.path.endswith("/kernel") else array
        weights[name] = array[None] if name == "final_logits_bias" else array
    return weights


def set_weights(model, weights: Mapping[str, np.ndarray]) -> None:
    """Sets all weights of a `Transformer` from a checkpoint, which holds no others.

    What it holds twice must be equal, and so must be what our model computes.
    """
    remaining = dict(weights)
    duplicates = _complete(remaining, model)
    values = []
    for name, current in weights_of(model).items():
        if name not in remaining:
            raise ValueError(f"The checkpoint has no weight {name!r}.")
        values.append(_of_shape(current.shape, remaining.pop(name), name))
    for name, expected in duplicates.items():
        if name not in remaining:
            continue
        array = _of_shape(expected.shape, remaining.pop(name), name)
        difference = np.max(np.abs(array - expected), initial=0)
        is_table = ".embed_positions." in name
        tolerance = _POSITIONS_TOLERANCE if is_table else _TIED_TOLERANCE
        if not difference <= tolerance:  # it may be NaN
            other = "positions of its family" if is_table else "one that it is tied to"
            raise ValueError(
                f"The checkpoint's weight {name!r} differs from the {other} by up to "
                f"{difference:.2g}, more than {tolerance:g}."
            )
    if remaining:
        raise ValueError(
            f"The checkpoint has weights that are not understood: {sorted(remaining)}."
        )
    for weight, array in zip(model.weights, values, strict=True):
        array = array.T if weight.path.endswith("/kernel") else array
        weight.assign(array.reshape(weight.shape))


def _complete(weights, model) -> dict[str, np.ndarray]:
    """Adds what a checkpoint leaves out, and returns what its other weights must equal.

    These are the embeddings by their other names, and the sinusoids that we compute.
    """
    sides = [f"model.{side}" for side in ("encoder", "decoder")]
    tables = [f"{side}.embed_tokens.weight" for side in sides]
    if model.settings["output_bias"]:
        bias = np.zeros((1, model.target_embedding.vocabulary_size), "float32")
        weights.setdefault("final_logits_bias", bias)
    duplicates = {}
    if model.source_embedding is model.target_embedding:
        aliases = [*tables, "lm_head.weight"]
        for alias in filter(weights.__contains__, aliases):
            weights.setdefault("model.shared.weight", weights[alias])
        if "model.shared.weight" in weights:
            duplicates = dict.fromkeys(aliases, weights["model.shared.weight"])
    elif tables[1] in weights:
        duplicates["lm_head.weight"] = weights[tables[1]]
    # Rows before the first position are never read.
    layer = model.encoder.positions
    first = layer.first_position
    for side in sides:
        for name in (f"{side}.embed_positions.{end}" for end in ("weight", "weights")):
            if name in weights:
                rows = np.asarray(layer.encoding(len(weights[name]) - first))
                duplicates[name] = np.concatenate([weights[name][:first], rows])
    return duplicates


def _of_shape(shape, array, name):
    if array.shape != shape:
        raise ValueError(
            f"The checkpoint's weight {name!r} must have the shape {shape}, as "
            f"config.json says. Received: {array.shape}."
        )
    return array
