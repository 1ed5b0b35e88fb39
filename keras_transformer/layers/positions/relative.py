"""Relative positions inside attention: rotary embeddings and linear biases."""

import keras
import numpy as np
from keras import ops

from keras_transformer.checks import check_shape
from keras_transformer.kernels.graphs import shape_of
from keras_transformer.layers.positions.encodings import (
    as_integers,
    check_waves,
    input_positions,
    position_angles,
)


class AttentionPositions(keras.layers.Layer):
    """Base class of positions that act inside attention.

    Subclasses either rotate queries and keys before they are multiplied (`rotate`),
    or add to the products (`bias`). Positions are integer tensors of shape `()`, the
    same position for all, `(length,)`, or `(batch, length)`.
    """

    def rotate(self, states, positions):
        """Rotates `states`, `(batch, heads, length, dim)`, to their positions."""
        return states

    def bias(self, query_positions, key_positions):
        """Returns the bias of products `(batch, heads, query_length, key_length)`.

        A float32 tensor that broadcasts to that shape; None for nothing.
        """

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        # Without this, Keras refuses subclasses that receive a dtype policy.
        return super().get_config()


@keras.saving.register_keras_serializable(package="keras_transformer")
class RotaryEmbedding(AttentionPositions):
    """Rotates queries and keys by angles proportional to their position (RoPE).

    Each pair of columns holds the coordinates of a point; the `i`-th point is rotated
    by `position / max_wavelength ** (2i / dim)`. The product of a query and a key then
    depends only on the distance between their positions. There are no weights and no
    maximum length. It is computed in float32 under any dtype policy.

    Args:
        max_wavelength: As in `SinusoidalPositionalEncoding`.
        layout: Which columns are rotated together. `"interleaved"`: columns `2i` and
            `2i + 1`, as in the paper and in GPT-J. `"halves"`: columns `i` and
            `dim / 2 + i`, as in GPT-NeoX, Llama and KerasHub. A model needs the layout
            it was trained with.
        **kwargs: Base `Layer` arguments, such as `name` and `dtype`.

    Call arguments:
        inputs: Float tensor of shape `(..., length, dim)`; an even `dim`.
        start_index: As in `SinusoidalPositionalEncoding`.
        positions: As in `SinusoidalPositionalEncoding`.

    Returns:
        A tensor of the same shape as `inputs`.

    Raises:
        ValueError: If `dim` is odd, `max_wavelength` is not above 1, there is no such
            `layout`, or positions are not integers.

    Example:
        >>> queries = keras.random.normal((2, 3, 5, 8))
        >>> RotaryEmbedding()(queries, start_index=7).shape
        TensorShape([2, 3, 5, 8])

    Reference:
        [Su et al., 2021](https://arxiv.org/abs/2104.09864), section 3.2.2
    """

    def __init__(
        self, max_wavelength: float = 10000, layout: str = "interleaved", **kwargs
    ):
        super().__init__(**kwargs)
        check_waves(max_wavelength, layout)
        self.max_wavelength = max_wavelength
        self.layout = layout
        self.supports_masking = True

    def build(self, input_shape):
        _check_even(input_shape[-1])

    def call(self, inputs, start_index=0, positions=None):
        length = ops.shape(inputs)[-2]
        return self.rotate(inputs, input_positions(length, start_index, positions))

    def rotate(self, states, positions):
        dim = states.shape[-1]
        _check_even(dim)
        positions = as_integers("positions", positions)
        angles = position_angles(positions, dim, self.max_wavelength)
        if len(angles.shape) == 3:
            for _ in states.shape[1:-2]:
                angles = ops.expand_dims(angles, 1)  # the same for all heads
        sines, cosines = ops.sin(angles), ops.cos(angles)
        points = ops.cast(states, "float32")
        if self.layout == "interleaved":
            x, y = points[..., 0::2], points[..., 1::2]
        else:
            x, y = points[..., : dim // 2], points[..., dim // 2 :]
        rotated = x * cosines - y * sines, y * cosines + x * sines
        if self.layout == "interleaved":
            rotated = ops.reshape(
                ops.stack(rotated, axis=-1), shape_of(states, for_reshape=True)
            )
        else:
            rotated = ops.concatenate(rotated, axis=-1)
        return ops.cast(rotated, states.dtype)

    def get_config(self):
        settings = {"max_wavelength": self.max_wavelength, "layout": self.layout}
        return {**super().get_config(), **settings}


def _check_even(dim):
    if dim % 2:
        raise ValueError(
            "`dim`, the width of queries and keys, must be even: columns are "
            f"rotated in pairs. Received: dim={dim}."
        )


@keras.saving.register_keras_serializable(package="keras_transformer")
class LinearPositionBias(AttentionPositions):
    """Lowers the products of distant queries and keys linearly (ALiBi).

    Adds `-slope * |query position - key position|`, with a slope for each head. There
    are no weights and no maximum length: models trained on short sequences work on
    longer ones. Under a causal mask this is the bias of the paper; without one, it is
    symmetric. It is computed in float32 under any dtype policy.

    Args:
        bias_max: The steepest slope of `n` heads is `2 ** (-bias_max / n)`; the slope
            of the `i`-th head is its `i`-th power. The paper's 8.
        **kwargs: Base `Layer` arguments, such as `name` and `dtype`.

    Call arguments:
        inputs: Products of queries and keys, a float tensor of shape
            `(batch, num_heads, query_length, key_length)`.
        start_index: Position of the first query, an integer or a scalar tensor. The
            first key is at position 0.

    Returns:
        A tensor of the same shape as `inputs`.

    Raises:
        ValueError: If `inputs` do not have four axes and the number of heads that the
            layer was built for, or `bias_max` is not positive.

    Example:
        >>> products = ops.zeros((1, 8, 1, 4))
        >>> ops.convert_to_numpy(LinearPositionBias()(products, start_index=3))[0, 0]
        array([[-1.5, -1. , -0.5,  0. ]], dtype=float32)

    Reference:
        [Press et al., 2021](https://arxiv.org/abs/2108.12409), section 3
    """

    def __init__(self, bias_max: float = 8, **kwargs):
        super().__init__(**kwargs)
        if bias_max <= 0:
            raise ValueError(
                f"`bias_max` must be positive. Received: bias_max={bias_max}."
            )
        self.bias_max = bias_max
        self.supports_masking = True

    def build(self, input_shape):
        check_shape(
            "inputs", input_shape, "batch", "num_heads", "query_length", "key_length"
        )
        self._slopes = head_slopes(input_shape[1], self.bias_max)

    def call(self, inputs, start_index=0):
        if inputs.shape[1] != len(self._slopes):
            raise ValueError(
                "`inputs` must have the heads that the layer was built for. Received: "
                f"inputs of shape {tuple(inputs.shape)}, for a layer built with "
                f"num_heads={len(self._slopes)}."
            )
        queries, keys = (ops.arange(x, dtype="int32") for x in ops.shape(inputs)[2:])
        bias = self.bias(queries + as_integers("start_index", start_index), keys)
        return ops.cast(ops.cast(inputs, "float32") + bias, inputs.dtype)

    def bias(self, query_positions, key_positions):
        both = query_positions, key_positions
        queries, keys = (as_integers("positions", x) for x in both)
        # (..., query, 1) - (..., 1, key)
        distances = ops.abs(ops.expand_dims(queries, -1) - ops.expand_dims(keys, -2))
        if len(distances.shape) == 3:
            distances = ops.expand_dims(distances, 1)  # the same for all heads
        slopes = ops.convert_to_tensor(-self._slopes[:, None, None])
        return ops.cast(distances, "float32") * slopes

    def get_config(self):
        return {**super().get_config(), "bias_max": self.bias_max}


def head_slopes(num_heads: int, bias_max: float = 8):
    """The slope of each head, a float32 array of shape `(num_heads,)`.

    If `num_heads` is a power of two: the first `num_heads` powers of
    `2 ** (-bias_max / num_heads)`. Otherwise the slopes of the next lower power of two,
    then every other slope of the next higher one, as in the paper's code.
    """
    lower = 1 << (num_heads.bit_length() - 1)
    slopes = 2.0 ** (-bias_max * np.arange(1, lower + 1) / lower)
    between = 2.0 ** (-bias_max / 2 * np.arange(1, 2 * lower + 1, 2) / lower)
    return np.append(slopes, between[: num_heads - lower]).astype("float32")
