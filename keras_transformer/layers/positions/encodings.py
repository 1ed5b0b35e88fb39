"""Positional encodings: positions as integers, and how they join the inputs."""

import math

import keras
import numpy as np
from keras import ops

from keras_transformer.checks import check_positive_integers, check_shape
from keras_transformer.layers.weights import WeightOptionsLayer

_MERGES = ("add", "concatenate")
_LAYOUTS = ("interleaved", "halves")


class _PositionalEncoding(keras.layers.Layer):
    """Base class of encodings: a table of positions, merged into the inputs."""

    def __init__(self, merge: str = "add", encoding_dim: int | None = None, **kwargs):
        super().__init__(**kwargs)
        if merge not in _MERGES:
            raise ValueError(
                f"`merge` must be one of {_MERGES}. Received: merge={merge!r}."
            )
        if (encoding_dim is not None) != (merge == "concatenate"):
            raise ValueError(
                "`encoding_dim`, the width that `merge='concatenate'` adds, must be "
                "given with it and only with it. "
                f"Received: merge={merge!r}, encoding_dim={encoding_dim}."
            )
        if encoding_dim is not None:
            check_positive_integers(encoding_dim=encoding_dim)
        self.merge = merge
        self.encoding_dim = encoding_dim
        self.supports_masking = True

    def encoding(self, length, start_index=0, positions=None):
        """Float32 encodings `(length, dim)`, or `(batch, length, dim)`."""
        raise NotImplementedError

    def call(self, inputs, start_index=0, positions=None):
        length = ops.shape(inputs)[1]
        if self.merge == "add" and inputs.shape[-1] != self._dim:
            raise ValueError(
                "`inputs` must have the width that the layer was built for. "
                f"Received: inputs of shape {tuple(inputs.shape)}, for a layer built "
                f"with hidden_dim={self._dim}."
            )
        encoding = self.encoding(length, start_index, positions)
        encoding = ops.cast(encoding, inputs.dtype)
        if self.merge == "add":
            return inputs + encoding
        shape = (ops.shape(inputs)[0], length, self.encoding_dim)
        return ops.concatenate([inputs, ops.broadcast_to(encoding, shape)], axis=-1)

    def build(self, input_shape):
        check_shape("inputs", input_shape, "batch", "length", "hidden_dim")
        self._dim = self.encoding_dim or input_shape[-1]

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], input_shape[-1] + (self.encoding_dim or 0))

    def get_config(self):
        settings = {"merge": self.merge, "encoding_dim": self.encoding_dim}
        return {**super().get_config(), **settings}


@keras.saving.register_keras_serializable(package="keras_transformer")
class SinusoidalPositionalEncoding(_PositionalEncoding):
    """Encodes every position as sines and cosines of different wavelengths.

    Column `2i` holds `sin(position / max_wavelength ** (2i / dim))` and column `2i + 1`
    the cosine of the same angle. There are no weights and no maximum length. The table
    is computed in float32 under any dtype policy.

    Args:
        max_wavelength: The paper's 10000. The longest wavelength is `2 pi` times this
            number of positions.
        merge: `"add"` adds the encoding to the inputs, `"concatenate"` widens
            them by `encoding_dim`.
        encoding_dim: Width of the encoding, for `merge="concatenate"`.
        layout: `"interleaved"`: sines in the even columns and cosines in the odd ones,
            as in the paper. `"halves"`: all sines, then all cosines, as in Marian and
            in tensor2tensor (whose `max_wavelength` is `10000 ** (half / (half - 1))`
            here, with half of the width). A model needs the layout it was trained with.
        first_position: Position that this layer assigns to the first input; 2 in
            M2M100.
        **kwargs: Base `Layer` arguments, such as `name` and `dtype`.

    Call arguments:
        inputs: Float tensor of shape `(batch, length, hidden_dim)`.
        start_index: Position of the first input: an integer, a scalar integer
            tensor, or one of shape `(batch,)` with an index for each sequence.
        positions: Positions of the inputs in any order, instead of a `start_index`:
            an integer tensor of shape `(length,)` or `(batch, length)`.

    Returns:
        `inputs` with their positions, wider by `encoding_dim` if concatenated.

    Raises:
        ValueError: If `inputs` do not have the width that the layer was built for or
            `positions` the length of `inputs`, both `start_index` and `positions` are
            given, or either is not integers.

    Example:
        >>> SinusoidalPositionalEncoding()(ops.zeros((2, 5, 16))).shape
        TensorShape([2, 5, 16])

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.5
    """

    def __init__(
        self,
        max_wavelength: float = 10000,
        merge: str = "add",
        encoding_dim: int | None = None,
        layout: str = "interleaved",
        first_position: int = 0,
        **kwargs,
    ):
        super().__init__(merge, encoding_dim, **kwargs)
        check_waves(max_wavelength, layout)
        self.max_wavelength = max_wavelength
        self.layout = layout
        self.first_position = first_position

    def encoding(self, length, start_index=0, positions=None):
        positions = input_positions(length, start_index, positions)
        positions = positions + self.first_position
        angles = position_angles(positions, self._dim, self.max_wavelength)
        waves = ops.sin(angles), ops.cos(angles)
        if self.layout == "halves":
            return ops.concatenate(waves, axis=-1)[..., : self._dim]
        waves = ops.stack(waves, axis=-1)
        return ops.reshape(waves, (*ops.shape(positions), -1))[..., : self._dim]

    def get_config(self):
        return {
            **super().get_config(),
            "max_wavelength": self.max_wavelength,
            "layout": self.layout,
            "first_position": self.first_position,
        }


def check_waves(max_wavelength: float, layout: str) -> None:
    """Raises `ValueError` unless these are a wavelength above 1 and a layout."""
    if max_wavelength <= 1:
        raise ValueError(
            "`max_wavelength` must be above 1. "
            f"Received: max_wavelength={max_wavelength}."
        )
    if layout not in _LAYOUTS:
        raise ValueError(
            f"`layout` must be one of {_LAYOUTS}. Received: layout={layout!r}."
        )


def position_angles(positions, dim: int, max_wavelength: float):
    """The angle of each wave or rotation at each position, in radians modulo `2 pi`.

    `positions` are int32. Every two of the `dim` columns have one frequency. The angles
    are float32, of shape `(*positions.shape, ceil(dim / 2))`.
    """
    frequencies = max_wavelength ** -(np.arange(0, dim, 2) / dim)
    # A float32 angle loses precision as it grows. In units of 2 pi / 2 ** 32, 32-bit
    # integers overflow exactly where the angle is back at zero.
    steps = np.round(frequencies / (2 * math.pi) * 2**32).astype("uint32").view("int32")
    # Converters to LiteRT fail on `positions[..., None]` of unknown shapes.
    counts = ops.expand_dims(positions, -1) * ops.convert_to_tensor(steps)
    return ops.cast(counts, "float32") * (2 * math.pi / 2**32)


@keras.saving.register_keras_serializable(package="keras_transformer")
class LearnedPositionalEncoding(WeightOptionsLayer, _PositionalEncoding):
    """Learns one vector for each position up to `max_length`.

    Longer inputs raise an error if their length is known when the layer is called.
    In a graph of unknown lengths, and where `positions` are given, positions beyond
    `max_length` are encoded as NaN, and outputs and loss become NaN. It takes and
    returns what `SinusoidalPositionalEncoding` does.

    Args:
        max_length: Number of positions.
        merge: As in `SinusoidalPositionalEncoding`.
        encoding_dim: As in `SinusoidalPositionalEncoding`.
        **kwargs: Base `Layer` arguments, and weight options of the table such as
            `embeddings_initializer`; see `WeightOptionsLayer`.

    Raises:
        ValueError: If the inputs are longer than `max_length`.

    Example:
        >>> LearnedPositionalEncoding(max_length=8)(ops.zeros((2, 5, 16))).shape
        TensorShape([2, 5, 16])

    Reference:
        [Gehring et al., 2017](https://arxiv.org/abs/1705.03122), section 3.1; compared
        in [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), table 3, row E
    """

    weight_kinds = ("embeddings",)

    def __init__(
        self,
        max_length: int,
        merge: str = "add",
        encoding_dim: int | None = None,
        **kwargs,
    ):
        super().__init__(merge=merge, encoding_dim=encoding_dim, **kwargs)
        check_positive_integers(max_length=max_length)
        self.max_length = max_length

    def build(self, input_shape):
        super().build(input_shape)
        shape = self.max_length, self._dim
        normal = keras.initializers.RandomNormal(stddev=0.02)
        self.table = self.add_weight_with_options("embeddings", shape, normal, "table")

    def compute_output_spec(self, inputs, start_index=0, positions=None):
        # Keras does not trace `call` to build a functional model.
        if positions is None and inputs.shape[1] is not None:
            check_position_range(self.max_length, inputs.shape[1], start_index)
        return super().compute_output_spec(inputs)

    def encoding(self, length, start_index=0, positions=None):
        if positions is None and isinstance(length, int):
            check_position_range(self.max_length, length, start_index)
        positions = input_positions(length, start_index, positions)
        # What a gather reads beyond the table differs between devices.
        rows = ops.take(self.table, ops.clip(positions, 0, self.max_length - 1), axis=0)
        is_learned = ops.logical_and(positions >= 0, positions < self.max_length)
        return ops.where(is_learned[..., None], rows, float("nan"))

    def get_config(self):
        return {**super().get_config(), "max_length": self.max_length}


def input_positions(length, start_index=0, positions=None, name="positions"):
    """Int32 positions `(length,)` or `(batch, length)`, given or counted.

    Raises:
        ValueError: If both are given, or are not integers, or `positions`, the call
            argument of that name, are not as long as the inputs.
    """
    if positions is None:
        if not isinstance(start_index, int):
            start_index = as_integers("start_index", start_index)[..., None]
        return ops.arange(length, dtype="int32") + start_index
    if not isinstance(start_index, int) or start_index != 0:
        raise ValueError(
            "`start_index` and `positions` must not both be given: add the index to "
            f"the positions. Received: start_index={start_index}."
        )
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


def check_position_range(max_length: int | None, length: int, start_index=0):
    """Raises `ValueError` if inputs are longer than a layer or a model allows.

    `max_length` is None if there is no limit. A `start_index` that is a tensor is not
    checked.
    """
    if max_length is None or not isinstance(start_index, int):
        return
    if start_index + length > max_length:
        raise ValueError(
            f"Positions end at `max_length`={max_length}: shorten the inputs or build "
            "the layer of positions with a larger one. "
            f"Received: length={length}, start_index={start_index}."
        )
