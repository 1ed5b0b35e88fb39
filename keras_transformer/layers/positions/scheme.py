"""Position schemes, by name or as layers."""

import keras

from keras_transformer.layers.positions.encodings import SinusoidalPositionalEncoding
from keras_transformer.layers.positions.relative import (
    AttentionPositions,
    LinearPositionBias,
    RotaryEmbedding,
)
from keras_transformer.layers.saving import copy_layer


def position_layer_of(position_scheme, dtype=None, in_attention: bool = False):
    """Creates the layer of a position scheme, named "positions" and not built; or None.

    The scheme is `"sinusoidal"`, `"rotary"` or `"linear_bias"`; a layer, which is
    copied, or its config; None for no positions. `AttentionPositions` act inside
    attention, as required with `in_attention`; any other layer is called on the inputs,
    as `layer(inputs)`, with `positions=` if these are given, and in cached decoding
    with `start_index=`.
    """
    schemes: dict[str, type[keras.layers.Layer]] = {
        "sinusoidal": SinusoidalPositionalEncoding,
        "rotary": RotaryEmbedding,
        "linear_bias": LinearPositionBias,
    }
    if not isinstance(position_scheme, str):
        layer = copy_layer(position_scheme, "positions", dtype)
    elif position_scheme in schemes:
        layer = schemes[position_scheme](name="positions", dtype=dtype)
    else:
        raise ValueError(
            f"`positions` must be one of {tuple(schemes)}, or a layer such as "
            "`LearnedPositionalEncoding(max_length=512)`. "
            f"Received: positions={position_scheme!r}."
        )
    if in_attention and not isinstance(layer, AttentionPositions | None):
        raise ValueError(
            "`positions` must act inside attention, as `RotaryEmbedding()` and "
            "`LinearPositionBias()` do. Call an encoding on the inputs instead. "
            f"Received: positions={position_scheme!r}."
        )
    return layer
