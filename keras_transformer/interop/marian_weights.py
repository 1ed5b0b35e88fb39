"""Weights of Marian's files, by the paths of a `Transformer`."""

import re

import numpy as np

NEVER = -1e4  # bias of ids that the file does not have: their probability is exactly 0
_RENAMES = (
    (r"^embedding/embeddings$", "Wemb"),
    (r"^source_embedding/embeddings$", "encoder_Wemb"),
    (r"^target_embedding/embeddings$", "decoder_Wemb"),
    (r"^output_bias/bias$", "decoder_ff_logit_out_b"),
    (r"/block_(\d+)/", lambda found: f"_l{int(found[1]) + 1}_"),
    (r"/final_norm/", "_top_ln_"),
    (r"self_attention_residual/norm/", "self_Wo_ln_"),
    (r"cross_attention_residual/norm/", "context_Wo_ln_"),
    (r"feed_forward_residual/norm/", "ffn_ffn_ln_"),
    (r"self_attention/", "self_"),
    (r"cross_attention/", "context_"),
    (r"feed_forward/", "ffn_"),
    (r"([qkvo])(uery|ey|alue|utput)/kernel$", r"W\1"),
    (r"([qkvo])(uery|ey|alue|utput)/bias$", r"b\1"),
    (r"widen/kernel$", "W1"),
    (r"widen/bias$", "b1"),
    (r"narrow/kernel$", "W2"),
    (r"narrow/bias$", "b2"),
    (r"gamma$", "scale"),
    (r"beta$", "bias"),
)


def set_weights(model, weights, sizes, normalize_first, path) -> None:
    """Sets all weights of a `Transformer` from those of a file of Marian's.

    Args:
        model: A `Transformer` of the file's sizes, with an additional id for padding.
        weights: Arrays by name; those that are set are removed.
        sizes: Sizes of the two vocabularies.
        normalize_first: Whether the model is pre-norm.
        path: Path of the file, for messages.

    Raises:
        ValueError: If a weight is missing, has another shape or is not understood.
    """
    suffix = "_pre" if normalize_first else ""
    source, target = sizes
    sizes = {"Wemb": source, "encoder_Wemb": source, "decoder_Wemb": target}
    sizes["decoder_ff_logit_out_b"] = target
    values = []
    for weight in model.weights:
        name = _marian_name(weight.path)
        if "_ln_" in name and "_top_" not in name:
            name += suffix
        if name not in weights:
            raise ValueError(f"{path} has no weight {name!r}.")
        array, shape = weights.pop(name), tuple(weight.shape)
        if len(shape) == 1:
            array = array.reshape(-1)  # Marian's have a first axis of 1.
        of_vocabulary = sizes.get(name)
        if of_vocabulary:
            shape = (of_vocabulary, *shape[1:])
        if array.shape != shape:
            raise ValueError(
                f"{path}: the weight {name!r} must have the shape {shape}, as its "
                f"settings say. Received: {array.shape}."
            )
        if of_vocabulary:
            missing = [(0, model.pad_id + 1 - of_vocabulary), (0, 0)][: array.ndim]
            value = 0 if array.ndim == 2 else NEVER
            array = np.pad(array, missing, constant_values=value)
        values.append(array)
    if weights:
        raise ValueError(f"{path} has weights that are not understood: {[*weights]}.")
    for weight, array in zip(model.weights, values, strict=True):
        weight.assign(array)


def _marian_name(path):
    for pattern, replacement in _RENAMES:
        path = re.sub(pattern, replacement, path)
    return path
