"""A translator's model as a specification of CTranslate2, with all weights."""

import numpy as np

from keras_transformer.checks import optional
from keras_transformer.interop.expressible import (
    check_same_tokens,
    float_weights,
    known_activation,
    refuse,
    sinusoids,
    unique_pieces,
)
from keras_transformer.layers import (
    LearnedPositionalEncoding,
    RotaryEmbedding,
    SinusoidalPositionalEncoding,
)

SYSTEM = "CTranslate2"
_ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "silu": "SWISH",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
}
# CTranslate2 cuts longer sources by default.
_MIN_POSITIONS = 1024


def model_spec(translator, banned_ids, max_length: int):
    """Describes a translator's model to CTranslate2, all weights included.

    `banned_ids` are never produced, like the padding. `max_length` is the length of the
    longest source and translation.
    """
    purpose = "The format 'ctranslate2'"
    with optional("ctranslate2", extra="ctranslate2", purpose=purpose):
        from ctranslate2 import specs
    model, settings = translator.model, translator.model.settings
    weights = float_weights(model, SYSTEM)
    name = _ACTIVATIONS[known_activation(model, _ACTIVATIONS, SYSTEM)]
    rotary = _rotary_settings(model)
    encoder, decoder = (
        spec_class(
            stack.num_layers,
            stack.num_heads,
            pre_norm=settings["normalize_first"],
            activation=getattr(specs.common_spec.Activation, name),
            **rotary,
        )
        for spec_class, stack in (
            (specs.TransformerEncoderSpec, model.encoder),
            (specs.TransformerDecoderSpec, model.decoder),
        )
    )
    for side, stack in (("encoder", encoder), ("decoder", decoder)):
        stack.scale_embeddings = settings["scale_embeddings"]
        if not rotary:
            table = _position_table(model, weights, side, max_length)
            stack.position_encodings.encodings = table
        embeddings = stack.embeddings[0] if side == "encoder" else stack.embeddings
        embeddings.weight = _embeddings(model, weights, side)
        if settings["normalize_first"]:
            _set(stack.layer_norm, weights, f"model.{side}.layer_norm")
        for index, block in enumerate(stack.layer):
            _set_block(block, weights, f"model.{side}.layers.{index}.")
    _set_projection(decoder.projection, weights, [settings["pad_id"], *banned_ids])
    spec = specs.TransformerSpec(encoder, decoder)
    _set_vocabularies(spec, translator)
    spec.config.layer_norm_epsilon = float(settings["epsilon"])
    return spec


def _token_table(weights, side):
    is_shared = "model.shared.weight" in weights
    return weights[f"model.{'shared' if is_shared else f'{side}.embed_tokens'}.weight"]


def _embeddings(model, weights, side):
    """Returns token embeddings as wide as the states, padded where positions are."""
    table, hidden_dim = _token_table(weights, side), model.settings["hidden_dim"]
    dim = table.shape[1]
    if dim < hidden_dim:
        table = np.pad(table, ((0, 0), (0, hidden_dim - dim)))
        if model.settings["scale_embeddings"]:  # by `hidden_dim` in CTranslate2
            table *= np.sqrt(dim / hidden_dim, dtype="float32")
    return table


def _set_projection(projection, weights, forbidden_ids):
    """Sets the map from states to logits: embeddings, after any `narrow`."""
    table = _token_table(weights, "decoder")
    bias = weights["final_logits_bias"][0]
    if "narrow/weight" in weights:
        bias = bias + table @ weights["narrow/bias"]
        table = table @ weights["narrow/weight"]
    projection.weight, projection.bias = table, bias.copy()
    projection.bias[forbidden_ids] = -np.inf


def _position_table(model, weights, side, max_length):
    """Returns what one side adds to its inputs at each position; zeros for nothing."""
    layer, hidden_dim = model.encoder.positions, model.settings["hidden_dim"]
    count = max(_MIN_POSITIONS, max_length)
    if layer is None:
        return np.zeros((count, hidden_dim), "float32")
    dim = layer.encoding_dim or hidden_dim
    table = weights.get(f"{side}/positions/table")
    table = sinusoids(layer, count, dim) if table is None else table
    return np.pad(table, ((0, 0), (hidden_dim - dim, 0)))


def _rotary_settings(model):
    """Returns the settings of rotary positions, empty for others on the inputs."""
    layer = model.encoder.positions
    on_inputs = LearnedPositionalEncoding | SinusoidalPositionalEncoding
    if layer is None or isinstance(layer, on_inputs):
        return {}
    if not isinstance(layer, RotaryEmbedding):
        refuse(SYSTEM, f"positions={type(layer).__name__}: not in an encoder")
    return {
        "rotary_dim": model.settings["hidden_dim"] // model.settings["num_heads"],
        "rotary_interleave": layer.layout == "interleaved",
        "rotary_base": float(layer.max_wavelength),
    }


def _set_block(block, weights, name):
    """Sets a block's weights; query, key and value of self-attention are joined."""
    attentions = [("self_attn", block.self_attention, ("qkv", "out"))]
    if hasattr(block, "attention"):
        attentions.append(("encoder_attn", block.attention, ("q", "kv", "out")))
    for kind, attention, groups in attentions:
        for linear, group in zip(attention.linear, groups, strict=True):
            parts = ["out"] if group == "out" else group
            _set(linear, weights, *(f"{name}{kind}.{part}_proj" for part in parts))
        _set(attention.layer_norm, weights, f"{name}{kind}_layer_norm")
    _set(block.ffn.linear_0, weights, f"{name}fc1")
    _set(block.ffn.linear_1, weights, f"{name}fc2")
    _set(block.ffn.layer_norm, weights, f"{name}final_layer_norm")


def _set(spec, weights, *names):
    """Sets weight and bias of a linear map or a normalization, joined if several."""
    kernel, bias = (
        np.concatenate([weights[f"{name}.{kind}"] for name in names])
        for kind in ("weight", "bias")
    )
    if hasattr(spec, "gamma"):
        spec.gamma, spec.beta = kernel, bias
    else:
        spec.weight, spec.bias = kernel, bias


def _set_vocabularies(spec, translator):
    source, target = translator.source_tokenizer, translator.target_tokenizer
    check_same_tokens(source, target, ["end_id", "unknown_id"], SYSTEM)
    pieces = unique_pieces(target)
    spec.register_source_vocabulary(unique_pieces(source))
    spec.register_target_vocabulary(pieces)
    config = spec.config
    config.add_source_eos = True
    config.bos_token = config.decoder_start_token = pieces[target.start_id]
    config.eos_token = pieces[target.end_id]
    config.unk_token = pieces[target.unknown_id]
