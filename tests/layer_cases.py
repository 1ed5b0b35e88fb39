"""One call of every public layer, with sizes that are prime or their products."""

import keras
import numpy as np

from keras_transformer import layers

RANDOM = np.random.default_rng(5)
STATES = RANDOM.normal(size=(2, 5, 6)).astype("float32")
MEMORY = RANDOM.normal(size=(2, 7, 6)).astype("float32")
IMAGES = RANDOM.normal(size=(2, 6, 9, 2)).astype("float32")
WIDE = RANDOM.normal(size=(2, 5, 12)).astype("float32")
HEADS = RANDOM.normal(size=(2, 3, 5, 4)).astype("float32")
PRODUCTS = RANDOM.normal(size=(2, 3, 5, 7)).astype("float32")
IDS = np.array([[3, 1, 4, 2, 0], [7, 5, 0, 0, 0]], "int32")
QUERY_AND_VALUE = {"query": STATES, "value": MEMORY}
INPUTS_AND_MEMORY = {"inputs": STATES, "memory": MEMORY}
BLOCK = {"num_heads": 2, "intermediate_dim": 11}
STACK = {"num_layers": 2, **BLOCK}

# Bases, which are not for use by themselves.
ABSTRACT = {"Attention", "AttentionPositions", "WeightOptionsLayer"}

# (constructor arguments, call arguments, shape of the output)
CASES = {
    "AdditiveAttention": ({"units": 11}, QUERY_AND_VALUE, (2, 5, 6)),
    "AttentionPooling": ({"num_heads": 3}, {"inputs": STATES}, (2, 6)),
    "CausalBlock": (BLOCK, {"inputs": STATES}, (2, 5, 6)),
    "CausalDecoder": ({**STACK, "positions": "rotary"}, {"inputs": WIDE}, (2, 5, 12)),
    "ClassToken": ({}, {"inputs": STATES}, (2, 6, 6)),
    "Decoder": ({**STACK, "positions": "linear_bias"}, INPUTS_AND_MEMORY, (2, 5, 6)),
    "DecoderBlock": (BLOCK, INPUTS_AND_MEMORY, (2, 5, 6)),
    "DotProductAttention": ({"scaled": False}, QUERY_AND_VALUE, (2, 5, 6)),
    "Encoder": ({**STACK, "positions": "sinusoidal"}, {"inputs": STATES}, (2, 5, 6)),
    "EncoderBlock": ({**BLOCK, "normalize_first": True}, {"inputs": STATES}, (2, 5, 6)),
    "FeedForward": ({"intermediate_dim": 11}, {"inputs": STATES}, (2, 5, 6)),
    "LearnedPositionalEncoding": ({"max_length": 11}, {"inputs": STATES}, (2, 5, 6)),
    "LinearPositionBias": ({}, {"inputs": PRODUCTS}, (2, 3, 5, 7)),
    "MultiHeadAttention": (
        {"num_heads": 3, "key_dim": 5},
        QUERY_AND_VALUE,
        (2, 5, 6),
    ),
    "MultiplicativeAttention": ({}, QUERY_AND_VALUE, (2, 5, 6)),
    "PatchEmbedding": (
        {"patch_size": 3, "hidden_dim": 7},
        {"inputs": IMAGES},
        (2, 6, 7),
    ),
    "RotaryEmbedding": ({"max_wavelength": 100}, {"inputs": HEADS}, (2, 3, 5, 4)),
    "SinusoidalPositionalEncoding": (
        {"merge": "concatenate", "encoding_dim": 5},
        {"inputs": STATES},
        (2, 5, 11),
    ),
    "TokenEmbedding": (
        {"vocabulary_size": 11, "hidden_dim": 7},
        {"inputs": IDS},
        (2, 5, 7),
    ),
}
# What they return is not as long as what they get.
WITHOUT_MASKS = {"ClassToken", "PatchEmbedding"}
# Called with another layer, as no general check can.
ELSEWHERE = {"Residual"}

PUBLIC = {
    name
    for name in layers.__all__
    if isinstance(getattr(layers, name), type)
    and issubclass(getattr(layers, name), keras.layers.Layer)
} - ABSTRACT
