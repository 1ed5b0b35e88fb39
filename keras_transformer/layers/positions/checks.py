"""Positions as callers give them: checked, made integers, or counted."""

import keras
from keras import ops


def input_positions(length, start_index=0, positions=None):
    """Int32 positions `(length,)` or `(batch, length)`, given or counted.

    Raises:
        ValueError: If both are given, or are not integers, or `positions` are not as
            long as the inputs.
    """
    if positions is None:
        start_index = ops.expand_dims(as_integers("start_index", start_index), axis=-1)
        return ops.arange(length, dtype="int32") + start_index
    if not isinstance(start_index, int) or start_index != 0:
        raise ValueError(
            "`start_index` and `positions` must not both be given: add the index to "
            f"the positions. Received: start_index={start_index}."
        )
    return given_positions("positions", positions, length)


def given_positions(name, positions, length):
    """Int32 positions as a call argument of that name has them; None for None.

    Raises:
        ValueError: If they are not integers, or not as many as `length`, if known.
    """
    if positions is None:
        return None
    positions = as_integers(name, positions)
    lengths = {x for x in (*positions.shape[-1:], length) if isinstance(x, int)}
    if len(positions.shape) not in (1, 2) or len(lengths) > 1:
        raise ValueError(
            f"`{name}` must have the shape (length,) or (batch, length). Received: "
            f"{name} of shape {tuple(positions.shape)} for length={length}."
        )
    return positions


def as_integers(name, positions):
    """Int32 positions; `ValueError` for floats, which Keras may have rounded."""
    positions = ops.convert_to_tensor(positions)
    dtype = keras.backend.standardize_dtype(positions.dtype)
    if "int" not in dtype:
        raise ValueError(
            f"`{name}` must be integers: Keras rounds floats in mixed precision. "
            f"Received: {name} of dtype {dtype}."
        )
    return ops.cast(positions, "int32")


def check_position_range(positions, length: int, start_index=0):
    """Raises `ValueError` if the inputs are longer than a position layer allows.

    A `start_index` that is a tensor is not checked.
    """
    max_length = getattr(positions, "max_length", None)
    if max_length is None or not isinstance(start_index, int):
        return
    if start_index + length > max_length:
        raise ValueError(
            f"Positions end at `max_length`={max_length}: shorten the inputs "
            "or build the layer with a larger one. "
            f"Received: length={length}, start_index={start_index}."
        )
