"""Attention without heads, by its score: dot-product, multiplicative and additive."""

import keras
from keras import ops

from keras_transformer.checks import (
    check_fractions,
    check_positive_integers,
    check_shape,
)
from keras_transformer.kernels.dropout import Dropout
from keras_transformer.kernels.projections import query_key_products
from keras_transformer.layers.attention import attend_by_products, scaled_products
from keras_transformer.layers.masks import (
    check_masks,
    combine_masks,
    combined_mask,
    zero_masked,
)
from keras_transformer.layers.weights import WeightOptionsLayer


class Attention(WeightOptionsLayer):
    """Base class of attention layers without heads.

    Subclasses define `score`, how well each key matches each query. A softmax
    over the keys makes these the weights of the values. Keras masks of `query`,
    `value` and `key` are applied automatically. Each layer can also be the `score`
    of `MultiHeadAttention`, whose own `dropout` then counts.

    Two things differ from `keras.layers.Attention`: the scores returned are not dropped
    out, and a masked query has scores of zero, as it has outputs of zero.

    Args:
        dropout: Fraction of the scores dropped in training.
        seed: Seed of the dropout.
        **kwargs: Base `Layer` arguments, and weight options of layers with weights.

    Call arguments:
        query: Float tensor of shape `(batch, query_length, query_dim)`.
        value: Float tensor of shape `(batch, key_length, value_dim)`.
        key: Float tensor of shape `(batch, key_length, key_dim)`. Default: `value`.
        query_mask: As in `MultiHeadAttention`, without heads; and so are
            `value_mask`, `key_mask`, `attention_mask`, `use_causal_mask`,
            `return_attention_scores` and `training`.

    Returns:
        The outputs, of shape `(batch, query_length, value_dim)`, zeros for a query
        that may attend to nothing; and on request the scores after the softmax, of
        shape `(batch, query_length, key_length)`.

    Raises:
        ValueError: If an input does not have three axes.
    """

    weight_kinds: tuple[str, ...] = ()

    def __init__(self, dropout: float = 0.0, seed: int | None = None, **kwargs):
        super().__init__(**kwargs)
        check_fractions(dropout=dropout)
        self.dropout = dropout
        self.seed = seed
        self.supports_masking = True

    def build(self, query_shape, value_shape, key_shape=None):
        key_shape = value_shape if key_shape is None else key_shape
        shapes = {"query": query_shape, "value": value_shape, "key": key_shape}
        for name, shape in shapes.items():
            check_shape(name, shape, "batch", "length", "hidden_dim")
        self._dropout = Dropout(self.dropout, self.seed, dtype=self.dtype_policy)
        self.build_score(query_shape[-1], key_shape[-1])

    def build_score(self, query_dim: int, key_dim: int):
        """Creates the weights of `score`, if it has any."""

    def score(self, query, key):
        """Computes how well each key matches each query: the higher the better.

        Args:
            query: Float tensor of shape `(..., query_length, query_dim)`.
            key: Float tensor of shape `(..., key_length, key_dim)`.

        Returns:
            A tensor of shape `(..., query_length, key_length)`.
        """
        raise NotImplementedError

    def call(
        self,
        query,
        value,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        use_causal_mask=False,
        return_attention_scores=False,
        training=None,
    ):
        key = value if key is None else key
        check_masks(
            query.shape[1],
            key.shape[1],
            attention_mask,
            query_mask=query_mask,
            value_mask=value_mask,
            key_mask=key_mask,
        )
        query_mask = combine_masks(query_mask)
        value_mask = combine_masks(value_mask, key_mask)
        key, value = zero_masked(key, value_mask), zero_masked(value, value_mask)
        lengths = ops.shape(query)[1], ops.shape(value)[1]
        masks = query_mask, value_mask, attention_mask, use_causal_mask
        mask = combined_mask(*lengths, *masks)
        mask = None if mask is None else mask[:, 0]  # there are no heads
        outputs, scores = attend_by_products(self.score(query, key), value, mask)
        if self.dropout:
            outputs = ops.matmul(self._dropout(scores, training=training), value)
        return (outputs, scores) if return_attention_scores else outputs

    def compute_output_shape(self, query_shape, value_shape, key_shape=None):
        return (*query_shape[:-1], value_shape[-1])

    def compute_output_spec(
        self, query, value, key=None, *args, return_attention_scores=False, **kwargs
    ):
        shape = self.compute_output_shape(query.shape, value.shape)
        outputs = keras.KerasTensor(shape, self.compute_dtype)
        if not return_attention_scores:
            return outputs
        shape = (*query.shape[:-1], value.shape[1])
        return outputs, keras.KerasTensor(shape, self.compute_dtype)

    def get_config(self):
        return {**super().get_config(), "dropout": self.dropout, "seed": self.seed}


@keras.saving.register_keras_serializable(package="keras_transformer")
class DotProductAttention(Attention):
    """Scores a key by `query key^T / sqrt(key_dim)`.

    Unscaled products have a variance that grows with `key_dim`. The softmax then
    saturates on a single key, and its gradient vanishes.

    Args:
        scaled: Whether to divide by the square root of `key_dim`.
        **kwargs: `dropout` and `seed`, see `Attention`; base `Layer` arguments, such as
            `name` and `dtype`.

    Call arguments:
        As in `Attention`; `query_dim` and `key_dim` are the same.

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

    Args:
        **kwargs: `dropout` and `seed`, see `Attention`; base `Layer` arguments, and
            weight options such as `kernel_initializer`; see `WeightOptionsLayer`.

    Call arguments:
        As in `Attention`; `query_dim` and `key_dim` may differ.

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
    """Scores a key by `u tanh(query W1 + key W2)`, a network of one hidden layer.

    The hidden layer is computed for every pair of a query and a key: a tensor
    of shape `(batch, query_length, key_length, units)`, `units` times as large as
    the scores of a dot product.

    Args:
        units: Width of the hidden layer.
        **kwargs: `dropout` and `seed`, see `Attention`; base `Layer` arguments, and
            weight options such as `kernel_initializer`; see `WeightOptionsLayer`.

    Call arguments:
        As in `Attention`; `query_dim` and `key_dim` may differ.

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
