"""Attention without heads: the base class of the score functions."""

import keras
from keras import ops

from keras_transformer.checks import check_fractions, check_shape
from keras_transformer.kernels.dropout import Dropout
from keras_transformer.layers.attention import attend_by_products
from keras_transformer.layers.masks import AttentionMasks, combine_masks, zero_masked
from keras_transformer.layers.weight_options import WeightOptionsLayer


class Attention(WeightOptionsLayer):
    """Base class of attention layers without heads.

    Subclasses define `score`, how well each key matches each query. A softmax
    over the keys makes these the weights of the values. Keras masks of `query`,
    `value` and `key` are applied automatically. Each layer can also be the `score`
    of `MultiHeadAttention`, whose own `dropout` then counts.

    The inputs may also be a list, `layer([query, value])` or
    `layer([query, value, key])`, as `keras.layers.Attention` takes them. Two things
    differ from that layer: the scores returned are those before dropout, and a masked
    query has scores of zero, as it has outputs of zero.

    Args:
        dropout: Fraction of the scores dropped in training.
        seed: Seed of the dropout.
        **kwargs: Base `Layer` arguments, and weight options of layers with weights.

    Call arguments:
        query: Float tensor of shape `(batch, query_length, query_dim)`; or a list of
            query, value and perhaps key.
        value: Float tensor of shape `(batch, key_length, value_dim)`.
        key: Float tensor of shape `(batch, key_length, key_dim)`; `value`
            unless given.
        query_mask: As in `MultiHeadAttention`, without heads; and so are
            `value_mask`, `key_mask`, `attention_mask`, `use_causal_mask`,
            `return_attention_scores` and `training`.
        mask: List of `query_mask`, `value_mask` and perhaps `key_mask`, each a tensor
            or None: another way to pass them.

    Returns:
        The outputs, of shape `(batch, query_length, value_dim)`, zeros for a query
        that may attend to nothing; and on request the scores after the softmax, of
        shape `(batch, query_length, key_length)`.

    Raises:
        ValueError: If an input does not have three axes, or there are not two or three
            inputs or masks.
    """

    weight_kinds: tuple[str, ...] = ()

    def __init__(self, dropout: float = 0.0, seed: int | None = None, **kwargs):
        super().__init__(**kwargs)
        check_fractions(dropout=dropout)
        self.dropout = dropout
        self.seed = seed
        self.supports_masking = True

    def build(self, query_shape, value_shape=None, key_shape=None):
        shapes = _query_value_key(query_shape, value_shape, key_shape)
        for name, shape in zip(("query", "value", "key"), shapes, strict=True):
            check_shape(name, shape, "batch", "length", "hidden_dim")
        self._dropout = Dropout(self.dropout, self.seed, dtype=self.dtype_policy)
        query_shape, _, key_shape = shapes
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
        value=None,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        use_causal_mask=False,
        return_attention_scores=False,
        training=None,
        mask=None,
    ):
        query, value, key = _query_value_key(query, value, key)
        if isinstance(query_mask, list | tuple):  # Keras masks of a list of inputs
            mask, query_mask = query_mask if mask is None else mask, None
        listed = _listed_masks(mask)
        query_mask = listed[0] if query_mask is None else query_mask
        value_mask = listed[1] if value_mask is None else value_mask
        key_mask = listed[2] if key_mask is None else key_mask
        value_mask = combine_masks(value_mask, key_mask)
        key, value = zero_masked(key, value_mask), zero_masked(value, value_mask)
        masks = AttentionMasks(query_mask, value_mask, attention_mask, use_causal_mask)
        mask = masks.combined(ops.shape(query)[1], ops.shape(value)[1])
        mask = None if mask is None else mask[:, 0]  # there are no heads
        outputs, scores = attend_by_products(self.score(query, key), value, mask)
        if self.dropout:
            outputs = ops.matmul(self._dropout(scores, training=training), value)
        return (outputs, scores) if return_attention_scores else outputs

    def compute_mask(self, inputs, mask=None):
        if isinstance(mask, list | tuple):
            mask = mask[0]
        return None if mask is None else ops.convert_to_tensor(mask)

    def compute_output_shape(self, query_shape, value_shape=None, key_shape=None):
        query, value, _ = _query_value_key(query_shape, value_shape, key_shape)
        return (*query[:-1], value[-1])

    def compute_output_spec(
        self,
        query,
        value=None,
        key=None,
        *args,
        return_attention_scores=False,
        **kwargs,
    ):
        query, value, _ = _query_value_key(query, value, key)
        shape = self.compute_output_shape(query.shape, value.shape)
        outputs = keras.KerasTensor(shape, self.compute_dtype)
        if not return_attention_scores:
            return outputs
        shape = (*query.shape[:-1], value.shape[1])
        return outputs, keras.KerasTensor(shape, self.compute_dtype)

    def get_config(self):
        return {**super().get_config(), "dropout": self.dropout, "seed": self.seed}


def _query_value_key(query, value, key):
    """The three inputs, or their shapes, of a call with tensors or with a list."""
    inputs = (query, value, key)
    # A shape is a list or a tuple too, but of numbers.
    is_list = isinstance(query, list | tuple)
    if is_list and not all(isinstance(size, int | None) for size in query):
        if value is not None or len(query) not in (2, 3):
            raise ValueError(
                "A list of inputs must have length 2 or 3, [query, value] or "
                "[query, value, key], and be the only input. "
                f"Received a list of {len(query)}."
            )
        inputs = (*query, None)[:3]
    query, value, key = inputs
    if value is None:
        raise ValueError(
            "The layer must be called on a list, [query, value] or "
            "[query, value, key], or on `query`, `value` and perhaps `key`. "
            "Received only `query`."
        )
    return query, value, value if key is None else key


def _listed_masks(mask):
    """The masks of query, value and key in the call argument `mask`."""
    if mask is None:
        return None, None, None
    if not isinstance(mask, list | tuple):
        raise ValueError(
            "The layer mask must be a list, [query_mask, value_mask] or "
            f"[query_mask, value_mask, key_mask]. Received: mask={mask}."
        )
    if len(mask) not in (2, 3):
        raise ValueError(
            "`mask` must be a list of length 2 or 3, [query_mask, value_mask] or "
            f"[query_mask, value_mask, key_mask]. Received a list of {len(mask)}."
        )
    return (*mask, None)[:3]
