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
from keras_transformer.kernels.graphs import shape_of, with_gradient
from keras_transformer.kernels.projections import query_key_products

MAX_UNBLOCKED_LENGTH = 1024  # queries and keys that are read in one block
BLOCK_LENGTH = 128  # queries
# On JAX, a training step with 64 queries and keys takes a tenth longer by Keras's fused
# kernel, on a GPU.
MAX_UNFUSED_LENGTH = 64

_HAS_FUSED_KERNEL = target.BACKEND != "tensorflow"
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


def attend(queries, keys, values, key_mask=None, mask_of=None, bias_of=None):
    """Computes the outputs of `scaled_dot_product_attention`, without its scores.

    Up to `MAX_UNBLOCKED_LENGTH ** 2` pairs of a query and a key are computed at
    once, by Keras's fused kernel where it gives the same numbers. More pairs are
    computed by blocks of queries, and again in the gradient: memory grows with the
    length rather than with its square. A graph that TensorFlow traces for unknown
    lengths holds both ways, and decides when it runs.

    Args:
        queries: Float tensor of shape `(batch, heads, query_length, key_dim)`.
        keys: Float tensor of shape `(batch, heads, key_length, key_dim)`.
        values: Float tensor of shape `(batch, heads, key_length, value_dim)`.
        key_mask: Boolean tensor of shape `(batch, key_length)`, or None. Keys and
            values outside of it may hold anything; keys that only `mask_of` hides must
            be finite.
        mask_of: Function of the indices of queries, `(rows,)`, or of None for all
            queries. Returns which keys these may attend to, a boolean tensor that
            broadcasts to `(batch, heads, rows, key_length)`, or None for all. It must
            agree with `key_mask`. Indices may exceed the last query. A query that may
            attend to nothing gets zeros. None: every key.
        bias_of: Function of such indices. Returns what is added to the scaled
            products, a float tensor that broadcasts to the same shape. It must not
            depend on weights that are trained. None: nothing.

    Returns:
        A tensor of shape `(batch, heads, query_length, value_dim)`.

    Reference:
        [Rabe and Staats, 2021](https://arxiv.org/abs/2112.05682), section 3; gradient:
        [Dao et al., 2022](https://arxiv.org/abs/2205.14135), appendix B.2
    """
    mask_of = mask_of or (lambda rows: None)
    bias_of = bias_of or (lambda rows: None)
    lengths = shape_of(queries)[2], shape_of(keys)[2]
    if all(isinstance(length, int) for length in lengths):
        is_long = math.prod(lengths) > MAX_UNBLOCKED_LENGTH**2
    elif _are_short.get() or target.BACKEND == "jax":
        is_long = False  # On JAX, Keras only asks for shapes with unknown lengths.
    else:
        pairs = ops.prod(ops.cast(ops.stack(lengths), "float32"))
        is_long = pairs > MAX_UNBLOCKED_LENGTH**2
    if _HAS_FUSED_KERNEL and is_long is False:
        bias = bias_of(None)
        if _suits_fused_kernel(queries, values, bias):
            inputs = queries, *_zero_masked(keys, values, key_mask)
            return _attend_fused(*inputs, mask_of(None), bias)

    def attention(queries, keys, values):
        inputs = queries, *_zero_masked(keys, values, key_mask)
        # Blocks keep no weights: their gradient computes them again.
        outputs, weights = _switch(
            is_long,
            lambda: (_blocked(*inputs, mask_of, bias_of), queries[..., :0]),
            lambda: _whole(*inputs, mask_of(None), bias_of(None)),
        )

        def gradient(*args, upstream=None):
            upstream = args[0] if upstream is None else upstream
            shapes = [shape_of(x) for x in inputs]
            weights_shape = (*shapes[0][:3], lengths[1])
            gradients = _switch(
                is_long,
                lambda: _blocked_gradients(*inputs, mask_of, bias_of, upstream),
                lambda: _whole_gradients(
                    *inputs, _reshaped(is_long, weights, weights_shape), upstream
                ),
            )
            return tuple(map(_reshaped, [is_long] * 3, gradients, shapes))

        return outputs, gradient

    return with_gradient(attention, queries, keys, values)


def _switch(is_long, by_blocks, whole):
    """Calls one of two functions, in a condition if lengths are unknown."""
    if isinstance(is_long, bool):
        return by_blocks() if is_long else whole()
    return ops.cond(is_long, by_blocks, whole)


def _reshaped(is_long, states, shape):
    """States with the shape that they have: XLA loses it in the result of a condition.

    It then cannot transpose them if a length may be 1.
    """
    return states if isinstance(is_long, bool) else ops.reshape(states, shape)


def _whole(queries, keys, values, mask, bias):
    """Attention of all queries at once: outputs, and the weights for the gradient."""
    scaled = queries * (1 / math.sqrt(queries.shape[-1]))
    weights = _attention_weights(query_key_products(scaled, keys), mask, bias)
    return ops.matmul(weights, values), weights


def _whole_gradients(queries, keys, values, weights, upstream):
    """Gradients of queries, keys and values.

    They are written out since TensorFlow's would apply every mask again, although a
    weight of zero has no gradient.
    """
    scale = 1 / math.sqrt(queries.shape[-1])
    of_scaled, *others = _gradients(queries * scale, keys, values, weights, upstream)
    return (of_scaled * scale, *others)


def _blocked(queries, keys, values, mask_of, bias_of):
    """Attention of one block of queries after the other."""
    padded, num_blocks, scaled_block, weights_of_block = _blocks(
        queries, keys, mask_of, bias_of
    )

    def attend_block(i, outputs):
        weights = weights_of_block(scaled_block(i), i)
        return _append(outputs, ops.matmul(weights, values))

    start = ops.zeros((*shape_of(padded)[:3], values.shape[-1]), values.dtype)
    outputs = ops.fori_loop(0, num_blocks, attend_block, start)
    return outputs[:, :, : shape_of(queries)[2]]


def _blocked_gradients(queries, keys, values, mask_of, bias_of, upstream):
    """Gradients of queries, keys and values, block by block as the outputs."""
    padded, num_blocks, scaled_block, weights_of_block = _blocks(
        queries, keys, mask_of, bias_of
    )
    padded_upstream = _padded(upstream)

    def add_block(i, so_far):
        scaled = scaled_block(i)
        weights, of_outputs = weights_of_block(scaled, i), _block(padded_upstream, i)
        of_scaled, *others = _gradients(scaled, keys, values, weights, of_outputs)
        of_keys, of_values = (
            total + ops.cast(x, "float32")
            for total, x in zip(so_far[1:], others, strict=True)
        )
        of_queries = of_scaled * (1 / math.sqrt(queries.shape[-1]))
        return _append(so_far[0], of_queries), of_keys, of_values

    sums = [ops.zeros_like(x, "float32") for x in (keys, values)]
    start = (ops.zeros_like(padded), *sums)
    of_queries, *sums = ops.fori_loop(0, num_blocks, add_block, start)
    of_keys, of_values = (ops.cast(x, values.dtype) for x in sums)
    return of_queries[:, :, : shape_of(queries)[2]], of_keys, of_values


def _blocks(queries, keys, mask_of, bias_of):
    """Padded queries, the number of blocks, and functions that compute the `i`-th."""
    padded = _padded(queries)

    def scaled_block(i):
        return _block(padded, i) * (1 / math.sqrt(queries.shape[-1]))

    def weights_of_block(scaled, i):
        rows = i * BLOCK_LENGTH + ops.arange(BLOCK_LENGTH)
        products = query_key_products(scaled, keys)
        return _attention_weights(products, mask_of(rows), bias_of(rows))

    num_blocks = shape_of(padded)[2] // BLOCK_LENGTH
    return padded, num_blocks, scaled_block, weights_of_block


def _padded(states):
    """States `(batch, heads, length, dim)`, padded to a multiple of a block."""
    length = shape_of(states)[2]
    # Not `-length % BLOCK_LENGTH`: ONNX computes other remainders of negative numbers.
    missing = (length + BLOCK_LENGTH - 1) // BLOCK_LENGTH * BLOCK_LENGTH - length
    return ops.pad(states, [[0, 0], [0, 0], [0, missing], [0, 0]])


def _block(states, i):
    batch, heads, _, dim = shape_of(states)
    start = (0, 0, i * BLOCK_LENGTH, 0)
    return ops.slice(states, start, (batch, heads, BLOCK_LENGTH, dim))


def _append(states, block):
    """Appends a block and drops the first: after all blocks, all are in order."""
    return ops.concatenate([states[:, :, BLOCK_LENGTH:], block], axis=2)


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


def _attention_weights(products, mask, bias):
    """As `layers.attention.attention_weights`."""
    dtype = products.dtype
    products = ops.cast(products, "float32")
    if bias is not None:
        products = products + ops.cast(bias, "float32")
    if mask is not None:
        products = ops.where(mask, products, -1e30)
    # Keras warns about a softmax over an axis of length one, which is all ones.
    is_one = products.shape[-1] == 1
    weights = ops.ones_like(products) if is_one else ops.softmax(products)
    if mask is not None:
        weights = ops.where(mask, weights, 0.0)
    return ops.cast(weights, dtype)


def _zero_masked(keys, values, key_mask):
    """Zeroes keys and values: weighted with zero, a NaN would still be a NaN."""
    if key_mask is None:
        return keys, values
    mask = ops.expand_dims(key_mask, (1, 3))
    return [ops.where(mask, states, 0) for states in (keys, values)]


def _suits_fused_kernel(queries, values, bias):
    """Whether `ops.dot_product_attention` gives the same numbers, and faster."""
    dtype = keras.backend.standardize_dtype(queries.dtype)
    if target.BACKEND == "torch":  # its kernel rounds the bias to the queries' dtype
        return bias is None or dtype == "float32"
    if target.BACKEND != "jax" or bias is not None or dtype == "float16":
        return False
    # JAX's kernels ignore the bias, need values as wide as keys, and mask by adding a
    # number that float16 products can exceed.
    lengths = queries.shape[2], values.shape[2]
    is_short = all(isinstance(x, int) and x <= MAX_UNFUSED_LENGTH for x in lengths)
    return queries.shape[-1] == values.shape[-1] and not is_short


def _attend_fused(queries, keys, values, mask, bias):
    has_keys = None
    if mask is not None:
        has_keys = ops.any(mask, axis=-1, keepdims=True)
        mask = ops.logical_or(mask, ops.logical_not(has_keys))
        if target.BACKEND == "torch":
            # The number that PyTorch masks with is one that float16 can exceed.
            masked = ops.where(mask, 0.0, -math.inf)
            bias, mask = masked if bias is None else bias + masked, None
        elif target.BACKEND == "jax":  # cuDNN's kernel refuses one row for all queries
            lengths = shape_of(queries)[2], shape_of(keys)[2]
            mask = ops.broadcast_to(mask, (*shape_of(mask)[:2], *lengths))
    # (batch, heads, length, dim) -> (batch, length, heads, dim)
    inputs = (ops.transpose(x, (0, 2, 1, 3)) for x in (queries, keys, values))
    outputs = ops.dot_product_attention(*inputs, bias=bias, mask=mask)
    outputs = ops.transpose(outputs, (0, 2, 1, 3))
    return outputs if has_keys is None else ops.where(has_keys, outputs, 0)
