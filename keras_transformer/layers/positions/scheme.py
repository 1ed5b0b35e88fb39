"""Position schemes by name or as layers, and their application to inputs."""

import functools
from collections.abc import Callable

from keras import ops

from keras_transformer.layers.positions.encodings import (
    LearnedPositionalEncoding,
    SinusoidalPositionalEncoding,
)
from keras_transformer.layers.positions.relative import (
    AttentionPositions,
    LinearPositionBias,
    RotaryEmbedding,
)
from keras_transformer.layers.saving import copy_layer


def position_layer_of(position_scheme, dtype=None, max_length: int | None = None):
    """Creates the layer of a position scheme.

    Args:
        position_scheme: `"sinusoidal"`, `"rotary"`, `"linear_bias"`; a layer, which is
            copied, or its config; None for no positions.
        dtype: Dtype policy of the new layer.
        max_length: Number of positions. If given, `"learned"` is a scheme too.

    Returns:
        A new layer named "positions", not built, or None. `AttentionPositions`
        act inside attention; any other layer is called on the inputs, as
        `layer(inputs)`, with `positions=` if these are given, and in cached decoding
        with `start_index=`.

    Raises:
        ValueError: If there is no scheme of that name.
    """
    if not isinstance(position_scheme, str):
        return copy_layer(position_scheme, "positions", dtype)
    schemes: dict[str, Callable] = {
        "sinusoidal": SinusoidalPositionalEncoding,
        "rotary": RotaryEmbedding,
        "linear_bias": LinearPositionBias,
    }
    if max_length is not None:
        schemes["learned"] = functools.partial(LearnedPositionalEncoding, max_length)
    if position_scheme not in schemes:
        raise ValueError(
            f"`positions` must be one of {tuple(schemes)}, or a layer such as "
            "`LearnedPositionalEncoding(max_length=512)`. "
            f"Received: positions={position_scheme!r}."
        )
    return schemes[position_scheme](name="positions", dtype=dtype)


def attention_positions(position_scheme, dtype=None):
    """As `position_layer_of`; `ValueError` unless the scheme acts inside attention."""
    layer = position_layer_of(position_scheme, dtype)
    if acts_on_inputs(layer):
        raise ValueError(
            "`positions` must act inside attention, as `RotaryEmbedding()` and "
            "`LinearPositionBias()` do. Call an encoding on the inputs instead. "
            f"Received: positions={position_scheme!r}."
        )
    return layer


def acts_on_inputs(position_layer) -> bool:
    """Whether a position layer is called on inputs rather than inside attention."""
    return not isinstance(position_layer, AttentionPositions | None)


def merge_positions(position_layer, states, positions=None):
    """Calls a position layer, if any, on states `(batch, length, hidden_dim)`.

    Default positions: 0, 1, 2, ...
    """
    if position_layer is None:
        return states
    given = {} if positions is None else {"positions": positions}
    return position_layer(states, **given)


def merge_positions_at(position_layer, states, index):
    """Calls a position layer, if any, on states `(batch, num_hypotheses, hidden_dim)`.

    `index` is the position of this step, a scalar integer tensor, or one position for
    each sentence, of shape `(batch,)`.
    """
    if position_layer is None:
        return states
    batch, num_hypotheses, width = ops.shape(states)
    index = ops.cast(index, "int32")
    if len(index.shape) == 1:
        index = ops.repeat(index, num_hypotheses)
    states = position_layer(ops.reshape(states, (-1, 1, width)), start_index=index)
    return ops.reshape(states, (batch, num_hypotheses, states.shape[-1]))
