"""Attention without materialised scores: fused kernels, and blocks of queries.

The plain form is `layers.scaled_dot_product_attention`. Its scores, one for every pair
of a query and a key, take more memory for long inputs than all the rest of a model.
"""

import contextlib
import contextvars
import math

import keras
from keras import ops

from keras_transformer.kernels import target
from keras_transformer.kernels.dense import query_key_products
from keras_transformer.kernels.shapes import shape_of
from keras_transformer.kernels.softmax import attention_weights

MAX_UNBLOCKED_LENGTH = 1024  # queries and keys that are read in one block
BLOCK_LENGTH = 128  # queries
# On JAX, a training step with 64 queries and keys takes a tenth longer by Keras's fused
# kernel, on a GPU.
MAX_UNFUSED_LENGTH = 64

_are_short = contextvars.ContextVar("are_short", default=False)


@contextlib.contextmanager
def no_blocks(max_length: int):
    """Traces graphs without the computation by blocks, if inputs are short enough.

    A graph for inputs of any length holds both, and takes twice as long to trace.

    Args:
        max_length: The most positions of an input.
    """
    token = _are_short.set(max_length <= MAX_UNBLOCKED_LENGTH)
    try:
        yield
    finally:
        _are_short.reset(token)


def attend(queries, keys, values, masks, bias_of=None):
    """Computes the outputs of `scaled_dot_product_attention`, without its scores.

    Up to `MAX_UNBLOCKED_LENGTH ** 2` pairs of a query and a key are computed at
    once, by Keras's fused kernel where it gives the same numbers. More pairs are
    computed by blocks of queries, and again in the gradient: memory grows with the
    length rather than with its square.

    Args:
        queries: Float tensor of shape `(batch, heads, query_length, key_dim)`.
        keys: Float tensor of shape `(batch, heads, key_length, key_dim)`.
        values: Float tensor of shape `(batch, heads, key_length, value_dim)`.
        masks: `layers.masks.AttentionMasks`. A query that may attend to nothing
            gets zeros. Keys and values outside of `key_mask` may hold anything; those
            that other masks hide must be finite.
        bias_of: Function of the positions of queries, `(rows,)`, and of keys,
            `(key_length,)`. Returns what is added to the scaled products, a float
            tensor that broadcasts to `(batch, heads, rows, key_length)`, or None. It
            must not depend on weights that are trained.

    Reference:
        [Rabe and Staats, 2021](https://arxiv.org/abs/2112.05682), section 3; gradient:
        [Dao et al., 2022](https://arxiv.org/abs/2205.14135), appendix B.2
    """

    def bias(rows=None):
        if bias_of is None:
            return None
        rows = ops.arange(shape_of(queries)[2]) if rows is None else rows
        return bias_of(rows, ops.arange(shape_of(keys)[2]))

    is_long = _is_long(queries, keys)
    if is_long is False:
        whole_bias = bias()
        if _suits_fused_kernel(queries, values, whole_bias):
            return _attend_fused(queries, keys, values, masks, whole_bias)
    return _attend(queries, keys, values, masks, bias, is_long)


def _is_long(queries, keys):
    """Whether to attend by blocks; a tensor where the trace does not know lengths."""
    # Converters fail on the condition and on the loop over blocks.
    if _are_short.get() or target.traces_portable_graph():
        return False
    # Divided before they are multiplied: TensorFlow's shapes are 32-bit integers.
    limit = MAX_UNBLOCKED_LENGTH
    num_queries, num_keys = shape_of(queries)[2], shape_of(keys)[2]
    is_long = (num_queries / limit) * (num_keys / limit) > 1
    if target.is_jax() and not isinstance(is_long, bool):
        return False  # Keras asks for the output's shape, with symbolic lengths.
    return is_long


def _suits_fused_kernel(queries, values, bias):
    """Whether `ops.dot_product_attention` gives the same numbers, and faster."""
    dtype = keras.backend.standardize_dtype(queries.dtype)
    if target.is_torch():  # its kernel rounds the bias to the dtype of the queries
        return bias is None or dtype == "float32"
    if not target.is_jax() or bias is not None or dtype == "float16":
        return False
    # JAX's kernels ignore the bias, need values as wide as keys, and mask by adding a
    # number that float16 products can exceed.
    lengths = queries.shape[2], values.shape[2]
    is_short = all(isinstance(x, int) and x <= MAX_UNFUSED_LENGTH for x in lengths)
    return queries.shape[-1] == values.shape[-1] and not is_short


def _attend_fused(queries, keys, values, masks, bias):
    keys, values = masks.zero_masked(keys, values)
    lengths = shape_of(queries)[2], shape_of(keys)[2]
    mask, has_keys = masks.combined(*lengths), None
    if mask is not None:
        has_keys = ops.any(mask, axis=-1, keepdims=True)
        mask = ops.logical_or(mask, ops.logical_not(has_keys))
        if target.is_torch():
            # The number that PyTorch masks with is one that float16 can exceed.
            masked = ops.where(mask, 0.0, -math.inf)
            bias, mask = masked if bias is None else bias + masked, None
        elif target.is_jax():  # cuDNN's kernel refuses one row for all queries
            mask = ops.broadcast_to(mask, (*shape_of(mask)[:2], *lengths))
    # (batch, heads, length, dim) -> (batch, length, heads, dim)
    inputs = (ops.transpose(x, (0, 2, 1, 3)) for x in (queries, keys, values))
    outputs = ops.dot_product_attention(*inputs, bias=bias, mask=mask)
    outputs = ops.transpose(outputs, (0, 2, 1, 3))
    return outputs if has_keys is None else ops.where(has_keys, outputs, 0)


def _attend(queries, keys, values, masks, bias_of, is_long):
    """Attention with its gradient written out, by blocks if the inputs are long.

    Short inputs keep their attention weights for the gradient. Their gradient is
    written out as well: TensorFlow's would apply every mask again, although a weight
    of zero has no gradient. `is_long` is a tensor where the trace does not know the
    lengths; TensorFlow warns when it derives the gradient of such a condition.
    """

    @ops.custom_gradient
    def attend_to(queries, keys, values):
        keys, values = masks.zero_masked(keys, values)
        scale = 1 / math.sqrt(queries.shape[-1])
        num_queries, num_keys = shape_of(queries)[2], shape_of(keys)[2]
        if is_long is not False:
            num_blocks = (num_queries + BLOCK_LENGTH - 1) // BLOCK_LENGTH
            missing = num_blocks * BLOCK_LENGTH - num_queries
            padding = [[0, 0], [0, 0], [0, missing], [0, 0]]

        def weights_of(scaled_queries, rows=None):
            products = query_key_products(scaled_queries, keys)
            mask = masks.combined(num_queries, num_keys, rows)
            return attention_weights(products, mask, bias_of(rows))

        def block_weights(scaled_queries, i):
            rows = i * BLOCK_LENGTH + ops.arange(BLOCK_LENGTH)
            return weights_of(scaled_queries, rows)

        def outputs_by_blocks():
            padded = ops.pad(queries, padding)

            def attend_block(i, outputs):
                weights = block_weights(_block(padded, i) * scale, i)
                return _append(outputs, ops.matmul(weights, values))

            shape = (*shape_of(padded)[:3], values.shape[-1])
            start = ops.zeros(shape, values.dtype)
            outputs = ops.fori_loop(0, num_blocks, attend_block, start)
            return outputs[:, :, :num_queries], queries[..., :0]

        def outputs_at_once():
            weights = weights_of(queries * scale)
            return ops.matmul(weights, values), weights

        def reshaped(states, shape):
            # XLA cannot transpose what a condition returns if a length may be 1.
            return states if is_long is False else ops.reshape(states, shape)

        outputs, weights = _cond(is_long, outputs_by_blocks, outputs_at_once)

        def gradient(*args, upstream=None):
            upstream = args[0] if upstream is None else upstream

            def gradients_by_blocks():
                padded = ops.pad(queries, padding)
                padded_upstream = ops.pad(upstream, padding)

                def add_block(i, so_far):
                    scaled = _block(padded, i) * scale
                    of_outputs = _block(padded_upstream, i)
                    of_queries, *others = _gradients(
                        scaled, keys, values, block_weights(scaled, i), of_outputs
                    )
                    sums = [
                        total + ops.cast(x, "float32")
                        for total, x in zip(so_far[1:], others, strict=True)
                    ]
                    return (_append(so_far[0], of_queries * scale), *sums)

                sums = [ops.zeros_like(x, "float32") for x in (keys, values)]
                start = (ops.zeros_like(padded), *sums)
                of_queries, *sums = ops.fori_loop(0, num_blocks, add_block, start)
                of_keys, of_values = (ops.cast(x, values.dtype) for x in sums)
                return of_queries[:, :, :num_queries], of_keys, of_values

            def gradients_at_once():
                shaped = reshaped(weights, (*shape_of(queries)[:3], num_keys))
                of_queries, *others = _gradients(
                    queries * scale, keys, values, shaped, upstream
                )
                return (of_queries * scale, *others)

            found = _cond(is_long, gradients_by_blocks, gradients_at_once)
            inputs = zip(found, (queries, keys, values), strict=True)
            return tuple(reshaped(x, shape_of(like)) for x, like in inputs)

        return outputs, gradient

    return attend_to(queries, keys, values)


def _cond(condition, if_true, if_false):
    if isinstance(condition, bool):
        return if_true() if condition else if_false()
    return ops.cond(condition, if_true, if_false)


def _gradients(queries, keys, values, weights, upstream):
    """Gradients of `weights values`, `weights` being `softmax(queries keys^T)`."""
    of_weights = ops.matmul(upstream, ops.swapaxes(values, -1, -2))
    weights32, of_weights = (ops.cast(x, "float32") for x in (weights, of_weights))
    mean = ops.sum(weights32 * of_weights, axis=-1, keepdims=True)
    of_products = ops.cast(weights32 * (of_weights - mean), queries.dtype)
    return (
        ops.matmul(of_products, keys),
        ops.matmul(ops.swapaxes(of_products, -1, -2), queries),
        ops.matmul(ops.swapaxes(weights, -1, -2), upstream),
    )


def _block(states, i):
    batch, heads, _, dim = shape_of(states)
    start = (0, 0, i * BLOCK_LENGTH, 0)
    return ops.slice(states, start, (batch, heads, BLOCK_LENGTH, dim))


def _append(states, block):
    """Appends a block and drops the first: after all blocks, all are in order."""
    return ops.concatenate([states[:, :, BLOCK_LENGTH:], block], axis=2)
