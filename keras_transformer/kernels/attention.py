"""Attention in memory linear in the length, where no scores are asked for.

The scores of long inputs take more room than all the rest of a model: as many
numbers as there are pairs of a query and a key. Who does not ask for them need
not hold them. Queries are read in blocks, one after the other, and the gradient
computes the scores of each block again.
"""

import math
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_transformer.layers.attention import (
    join_masks,
    scaled_dot_product_attention,
    shares_of_keys,
)

WHOLE = 1024  # as many queries and keys are read whole
BLOCK = 128  # queries


class Masks(NamedTuple):
    """The masks of one call, joined for no more queries than are at hand."""

    query_mask: Any = None  # (batch, query)
    key_mask: Any = None  # (batch, key)
    attention_mask: Any = None  # (batch, query, key) or (batch, heads, query, key)
    is_causal: bool = False

    def of(self, queries, keys, rows=None):
        """Which keys may be attended to.

        Args:
            queries: Tensor of shape `(batch, heads, query_length, dim)`.
            keys: Tensor of shape `(batch, heads, key_length, dim)`.
            rows: The queries that are asked about, an integer tensor of shape
                `(rows,)`; all of them unless given. Those beyond the last are
                as the last.

        Returns:
            A boolean tensor that broadcasts to
            `(batch, heads, rows, key_length)`, or None where there is no mask.
        """

        def chosen(mask):
            if mask is None or rows is None:
                return mask
            return ops.take(mask, ops.minimum(rows, ops.shape(mask)[2] - 1), axis=2)

        causal, attention_mask = None, self.attention_mask
        if self.is_causal:
            positions = ops.arange(ops.shape(queries)[2]) if rows is None else rows
            causal = positions[:, None] >= ops.arange(ops.shape(keys)[2])
            causal = causal[None, None]
        if attention_mask is not None and len(attention_mask.shape) == 3:
            attention_mask = attention_mask[:, None]
        query_mask, key_mask = self.query_mask, self.key_mask
        return join_masks(
            chosen(None if query_mask is None else query_mask[:, None, :, None]),
            None if key_mask is None else key_mask[:, None, None, :],
            causal,
            chosen(attention_mask),
        )

    def clear(self, *states):
        """Zeroes what no query may read, since `0 * nan` would reach them all.

        Args:
            *states: Tensors of shape `(batch, heads, key_length, dim)`.

        Returns:
            A list of as many.
        """
        if self.key_mask is None:
            return list(states)
        return [ops.where(self.key_mask[:, None, :, None], x, 0) for x in states]


def attend_without_scores(queries, keys, values, masks=None, bias_of=None):
    """Computes the outputs of `scaled_dot_product_attention`, and them alone.

    Short inputs are read as they are when scores are asked for, or on JAX and
    PyTorch by the kernel that does it in one go. More than a million pairs of a
    query and a key are read by blocks of queries: then memory grows with
    the length and not with its square, in the gradient too.

    Args:
        queries: Float tensor of shape `(batch, heads, query_length, key_dim)`.
        keys: Float tensor of shape `(batch, heads, key_length, key_dim)`.
        values: Float tensor of shape `(batch, heads, key_length, value_dim)`.
        masks: `Masks`. A query that may attend to nothing reads zeros; keys and
            values that its `key_mask` hides may hold anything.
        bias_of: Function of the positions of queries, an integer tensor of
            shape `(rows,)`, and of keys, `(key_length,)`. Returns what is added
            to the scaled products, a float tensor that broadcasts to
            `(batch, heads, rows, key_length)`, or None. Nothing that it
            computes with is learned.

    Returns:
        The outputs, of shape `(batch, heads, query_length, value_dim)`.

    Reference:
        [Rabe and Staats, 2021](https://arxiv.org/abs/2112.05682), section 3;
        the gradient: [Dao et al., 2022](https://arxiv.org/abs/2205.14135),
        appendix B.2
    """
    masks = Masks() if masks is None else masks

    def bias(rows=None):
        if bias_of is None:
            return None
        rows = ops.arange(ops.shape(queries)[2]) if rows is None else rows
        return bias_of(rows, ops.arange(ops.shape(keys)[2]))

    # Divided first: the product would overflow the integers of TensorFlow's shapes.
    is_long = (ops.shape(queries)[2] / WHOLE) * (ops.shape(keys)[2] / WHOLE) > 1
    if keras.backend.backend() == "jax" and not isinstance(is_long, bool):
        is_long = False  # Nothing is computed: Keras asks for the shape.
    if is_long is False:
        of_all = bias()
        if _suits_fused_kernel(queries, values, of_all):
            return _read_by_kernel(queries, keys, values, masks, of_all)
    return _read(queries, keys, values, masks, bias, is_long)


def _read_by_kernel(queries, keys, values, masks, bias):
    keys, values = masks.clear(keys, values)
    mask, attends = masks.of(queries, keys), None
    if mask is not None:
        attends = ops.any(mask, axis=-1, keepdims=True)
        mask = ops.logical_or(mask, ops.logical_not(attends))
        if keras.backend.backend() == "torch":
            # Its own number for what is masked is one that float16 can outdo.
            hidden = ops.where(mask, 0.0, -math.inf)
            bias, mask = hidden if bias is None else bias + hidden, None
    # (batch, heads, length, dim) -> (batch, length, heads, dim)
    queries, keys, values = (
        ops.transpose(x, (0, 2, 1, 3)) for x in (queries, keys, values)
    )
    outputs = ops.dot_product_attention(queries, keys, values, bias=bias, mask=mask)
    outputs = ops.transpose(outputs, (0, 2, 1, 3))
    return outputs if attends is None else ops.where(attends, outputs, 0)


def _suits_fused_kernel(queries, values, bias):
    """Whether `ops.dot_product_attention` gives the same numbers, and sooner."""
    dtype = keras.backend.standardize_dtype(queries.dtype)
    if keras.backend.backend() == "torch":  # it rounds the bias as the queries are
        return bias is None or dtype == "float32"
    # Under JAX kernels exist that leave out the bias, take values as wide as keys
    # only, and hide by adding a number that float16 can outdo.
    same_width = queries.shape[-1] == values.shape[-1]
    suits = bias is None and same_width and dtype != "float16"
    return keras.backend.backend() == "jax" and suits


def _read(queries, keys, values, masks, bias_of, is_long):
    """As `scaled_dot_product_attention`; by blocks, if the inputs are long.

    Short inputs keep their scores for the gradient. It is written out for them
    too: TensorFlow would select again by every mask, though a share of nothing
    has no slope, and warns of every condition that it derives a gradient of
    (`is_long` is a tensor where the lengths are not known yet).
    """

    @ops.custom_gradient
    def read(queries, keys, values):
        keys, values = masks.clear(keys, values)
        scale = 1 / math.sqrt(queries.shape[-1])
        num_queries = ops.shape(queries)[2]
        num_blocks = (num_queries + BLOCK - 1) // BLOCK
        missing = num_blocks * BLOCK - num_queries
        padding = [[0, 0], [0, 0], [0, missing], [0, 0]]

        def shares(query, i):
            rows = i * BLOCK + ops.arange(BLOCK)
            products = ops.matmul(query, ops.swapaxes(keys, -1, -2))
            return shares_of_keys(
                products, masks.of(queries, keys, rows), bias_of(rows)
            )

        def by_blocks():
            padded = ops.pad(queries, padding)

            def read_block(i, outputs):
                of_block = ops.matmul(shares(_block(padded, i) * scale, i), values)
                return _append(outputs, of_block)

            shape = (*ops.shape(padded)[:3], values.shape[-1])
            start = ops.zeros(shape, values.dtype)
            outputs = ops.fori_loop(0, num_blocks, read_block, start)
            return outputs[:, :, :num_queries], queries[..., :0]

        def whole():
            return scaled_dot_product_attention(
                queries, keys, values, masks.of(queries, keys), bias_of()
            )

        outputs, scores = _choose(is_long, by_blocks, whole)

        def gradient(*args, upstream=None):
            upstream = args[0] if upstream is None else upstream

            def by_blocks():
                padded, slope = (ops.pad(x, padding) for x in (queries, upstream))

                def read_block(i, so_far):
                    of_queries, of_keys, of_values = so_far
                    query = _block(padded, i) * scale
                    slopes = _slopes(
                        query, keys, values, shares(query, i), _block(slope, i)
                    )
                    return (
                        _append(of_queries, slopes[0] * scale),
                        of_keys + ops.cast(slopes[1], "float32"),
                        of_values + ops.cast(slopes[2], "float32"),
                    )

                start = (
                    ops.zeros_like(padded),
                    ops.zeros_like(keys, "float32"),
                    ops.zeros_like(values, "float32"),
                )
                slopes = ops.fori_loop(0, num_blocks, read_block, start)
                return (
                    slopes[0][:, :, :num_queries],
                    ops.cast(slopes[1], keys.dtype),
                    ops.cast(slopes[2], values.dtype),
                )

            def whole():
                slopes = _slopes(queries * scale, keys, values, scores, upstream)
                return (slopes[0] * scale, *slopes[1:])

            return _choose(is_long, by_blocks, whole)

        return outputs, gradient

    return read(queries, keys, values)


def _choose(condition, yes, no):
    if isinstance(condition, bool):
        return yes() if condition else no()
    return ops.cond(condition, yes, no)


def _slopes(queries, keys, values, shares, upstream):
    """The gradient of `softmax(queries keys^T) values`, `shares` the softmax."""
    of_shares = ops.matmul(upstream, ops.swapaxes(values, -1, -2))
    weights, of_shares = (ops.cast(x, "float32") for x in (shares, of_shares))
    mean = ops.sum(weights * of_shares, axis=-1, keepdims=True)
    of_products = ops.cast(weights * (of_shares - mean), queries.dtype)
    return (
        ops.matmul(of_products, keys),
        ops.matmul(ops.swapaxes(of_products, -1, -2), queries),
        ops.matmul(ops.swapaxes(shares, -1, -2), upstream),
    )


def _block(states, i):
    batch, heads, _, dim = ops.shape(states)
    return ops.slice(states, (0, 0, i * BLOCK, 0), (batch, heads, BLOCK, dim))


def _append(states, block):
    """Fills `states` from the end: after all blocks the first has come to the front."""
    return ops.concatenate([states[:, :, BLOCK:], block], axis=2)
