"""Positions: encodings of the inputs, and position-dependent attention."""

from keras_transformer.layers.positions.checks import (
    check_position_range,
    given_positions,
    input_positions,
)
from keras_transformer.layers.positions.encodings import (
    LearnedPositionalEncoding,
    SinusoidalPositionalEncoding,
)
from keras_transformer.layers.positions.relative import (
    AttentionPositions,
    LinearPositionBias,
    RotaryEmbedding,
)
from keras_transformer.layers.positions.rotary_scaling import (
    LinearRotaryScaling,
    NTKRotaryScaling,
    RotaryScaling,
    YarnRotaryScaling,
)
from keras_transformer.layers.positions.schemes import (
    acts_on_inputs,
    attention_positions,
    merge_positions,
    merge_positions_at,
    position_layer,
)

__all__ = [
    "AttentionPositions",
    "LearnedPositionalEncoding",
    "LinearPositionBias",
    "LinearRotaryScaling",
    "NTKRotaryScaling",
    "RotaryEmbedding",
    "RotaryScaling",
    "SinusoidalPositionalEncoding",
    "YarnRotaryScaling",
    "acts_on_inputs",
    "attention_positions",
    "check_position_range",
    "given_positions",
    "input_positions",
    "merge_positions",
    "merge_positions_at",
    "position_layer",
]
