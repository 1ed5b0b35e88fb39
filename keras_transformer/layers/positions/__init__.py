"""Positions: encodings of the inputs, and position-dependent attention."""

from keras_transformer.layers.positions.encodings import (
    LearnedPositionalEncoding,
    SinusoidalPositionalEncoding,
    check_position_range,
    input_positions,
)
from keras_transformer.layers.positions.relative import (
    AttentionPositions,
    LinearPositionBias,
    RotaryEmbedding,
)
from keras_transformer.layers.positions.scheme import position_layer_of

__all__ = [
    "AttentionPositions",
    "LearnedPositionalEncoding",
    "LinearPositionBias",
    "RotaryEmbedding",
    "SinusoidalPositionalEncoding",
    "check_position_range",
    "input_positions",
    "position_layer_of",
]
