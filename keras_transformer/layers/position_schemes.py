"""The ways to tell positions apart, by name or as layers."""

from keras_transformer.layers.attention_positions import (
    AttentionPositions,
    LinearPositionBias,
    RotaryEmbedding,
)
from keras_transformer.layers.positions import SinusoidalPositionalEncoding
from keras_transformer.layers.templates import copy_layer

_SCHEMES = {
    "sinusoidal": SinusoidalPositionalEncoding,
    "rotary": RotaryEmbedding,
    "linear_bias": LinearPositionBias,
}


def position_layer(positions, dtype=None):
    """Makes the layer of a position scheme.

    Args:
        positions: `"sinusoidal"`, `"rotary"`, `"linear_bias"`; a layer that is
            taken as a pattern, or its config; None for no positions.
        dtype: Dtype policy of the new layer.

    Returns:
        A new layer named "positions", not built, or None. `AttentionPositions`
        act inside attention; any other layer is called on the inputs of the
        stack, as `layer(inputs, start_index=0)`.

    Raises:
        ValueError: If there is no scheme of that name.
    """
    if isinstance(positions, str):
        if positions not in _SCHEMES:
            raise ValueError(
                f"`positions` must be one of {tuple(_SCHEMES)}, or a layer such as "
                "`LearnedPositionalEncoding(max_length=512)`. "
                f"Received: positions={positions!r}."
            )
        return _SCHEMES[positions](name="positions", dtype=dtype)
    return copy_layer(positions, "positions", dtype)


def attention_positions(positions, dtype=None):
    """As `position_layer`, of schemes that act inside attention only.

    Raises:
        ValueError: If the scheme is another.
    """
    layer = position_layer(positions, dtype)
    if not isinstance(layer, AttentionPositions | None):
        raise ValueError(
            "`positions` must act inside attention, as `RotaryEmbedding()` and "
            "`LinearPositionBias()` do: call an encoding on the inputs before. "
            f"Received: positions={positions!r}."
        )
    return layer
