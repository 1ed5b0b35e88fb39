"""Score functions of attention: dot-product, multiplicative and additive."""

import keras
from keras import ops

from keras_transformer.checks import check_positive_integers
from keras_transformer.kernels.projections import query_key_products
from keras_transformer.layers.attention import Attention, scaled_products


@keras.saving.register_keras_serializable(package="keras_transformer")
class DotProductAttention(Attention):
    """Scores a key by `query key^T / sqrt(key_dim)`.

    Unscaled products have a variance that grows with `key_dim`. The softmax then
    saturates on a single key, and its gradient vanishes. It takes and returns what
    `Attention` does.

    Args:
        scaled: Whether to divide by the square root of `key_dim`.
        **kwargs: `dropout` and `seed`, see `Attention`; base `Layer` arguments, such as
            `name` and `dtype`.

    Raises:
        ValueError: If queries and keys differ in width.

    Example:
        >>> states = keras.random.normal((2, 5, 16))
        >>> DotProductAttention()(states, states, use_causal_mask=True).shape
        TensorShape([2, 5, 16])

    Reference:
        [Luong et al., 2015](https://arxiv.org/abs/1508.04025), section 3.1
        ("dot"); scaled: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762),
        section 3.2.1
    """

    def __init__(self, scaled: bool = True, **kwargs):
        super().__init__(**kwargs)
        self.scaled = scaled

    def build_score(self, query_dim: int, key_dim: int):
        if query_dim != key_dim:
            raise ValueError(
                "`query` and `key` must have the same width for a dot product; "
                "`MultiplicativeAttention` takes different ones. "
                f"Received: query_dim={query_dim}, key_dim={key_dim}."
            )

    def score(self, query, key):
        products = scaled_products if self.scaled else query_key_products
        return products(query, key)

    def get_config(self):
        return {**super().get_config(), "scaled": self.scaled}


@keras.saving.register_keras_serializable(package="keras_transformer")
class MultiplicativeAttention(Attention):
    """Scores a key by `query W key^T`, with a learned matrix between the two.

    Queries and keys may differ in width. It takes and returns what `Attention` does.

    Args:
        **kwargs: `dropout` and `seed`, see `Attention`; base `Layer` arguments, and
            weight options such as `kernel_initializer`; see `WeightOptionsLayer`.

    Example:
        >>> query = keras.random.normal((2, 5, 16))
        >>> MultiplicativeAttention()(query, keras.random.normal((2, 7, 8))).shape
        TensorShape([2, 5, 8])

    Reference:
        [Luong et al., 2015](https://arxiv.org/abs/1508.04025), section 3.1
        ("general")
    """

    weight_kinds = ("kernel",)

    def build_score(self, query_dim: int, key_dim: int):
        shape = query_dim, key_dim
        self.kernel = self.add_weight_with_options("kernel", shape, "glorot_uniform")

    def score(self, query, key):
        projected = ops.matmul(query, ops.cast(self.kernel, query.dtype))
        return ops.matmul(projected, ops.swapaxes(key, -1, -2))


@keras.saving.register_keras_serializable(package="keras_transformer")
class AdditiveAttention(Attention):
    """Scores a key by `u tanh(query W1 + key W2)`, a network with one hidden layer.

    The hidden layer is computed for every pair of a query and a key: a tensor
    of shape `(batch, query_length, key_length, units)`, `units` times as large as
    the products of a dot-product attention. Queries and keys may differ in width. It
    takes and returns what `Attention` does.

    Args:
        units: Width of the hidden layer.
        **kwargs: `dropout` and `seed`, see `Attention`; base `Layer` arguments, and
            weight options such as `kernel_initializer`; see `WeightOptionsLayer`.

    Raises:
        ValueError: If `units` is not positive.

    Example:
        >>> query = keras.random.normal((2, 5, 16))
        >>> AdditiveAttention(units=3)(query, keras.random.normal((2, 7, 8))).shape
        TensorShape([2, 5, 8])

    Reference:
        [Bahdanau et al., 2014](https://arxiv.org/abs/1409.0473), section A.1.2
    """

    weight_kinds = ("kernel",)

    def __init__(self, units: int, **kwargs):
        super().__init__(**kwargs)
        check_positive_integers(units=units)
        self.units = units

    def build_score(self, query_dim: int, key_dim: int):
        def kernel(name, shape):
            return self.add_weight_with_options("kernel", shape, "glorot_uniform", name)

        self.query_kernel = kernel("query_kernel", (query_dim, self.units))
        self.key_kernel = kernel("key_kernel", (key_dim, self.units))
        self.score_kernel = kernel("score_kernel", (self.units, 1))

    def score(self, query, key):
        query, key = (
            ops.matmul(states, ops.cast(kernel, states.dtype))
            for states, kernel in ((query, self.query_kernel), (key, self.key_kernel))
        )
        # (..., query, 1, units) + (..., 1, key, units)
        hidden = ops.tanh(query[..., :, None, :] + key[..., None, :, :])
        return ops.matmul(hidden, ops.cast(self.score_kernel, hidden.dtype))[..., 0]

    def get_config(self):
        return {**super().get_config(), "units": self.units}
