"""Attention without materialized weights: fused kernels, and blocks of queries.

The plain form is `layers.scaled_dot_product_attention`. Its weights, one for every pair
of a query and a key, take more memory for long inputs than all the rest of a model.
"""

import contextvars
import math

import keras
from keras import ops

from keras_transformer.kernels import target
from keras_transformer.kernels.graphs import shape_of, with_gradient
from keras_transformer.kernels.projections import query_key_products
from keras_transformer.kernels.scopes import holding

MAX_UNBLOCKED_LENGTH = 1024  # queries and keys that are read in one block
BLOCK_LENGTH = 128  # queries
# On JAX, a training step with 64 queries and keys takes a tenth longer by Keras's fused
# kernel, on a GPU.
MAX_UNFUSED_LENGTH = 64

_are_short = contextvars.ContextVar("are_short", default=False)


def no_blocks(max_length: int):
    """A scope for graphs without the computation by blocks, if inputs are short.

    A graph for inputs of any length holds both, and takes twice as long to trace.

    Args:
        max_length: The most positions of an input.
    """
    return holding(_are_short, max_length <= MAX_UNBLOCKED_LENGTH)


def attend(queries, keys, values, softmax, mask_of=None, bias_of=None):
    """Computes the outputs of `scaled_dot_product_attention`, without its weights.

    Up to `MAX_UNBLOCKED_LENGTH ** 2` pairs of a query and a key are computed at
    once, by Keras's fused kernel where it gives the same numbers. More pairs are
    computed by blocks of queries, and again in the gradient: memory grows with the
    length rather than with its square. A graph that TensorFlow traces for unknown
    lengths holds both ways, and decides when it runs.

    Args:
        queries: Float tensor of shape `(batch, heads, query_length, key_dim)`.
        keys: Float tensor of shape `(batch, heads, key_length, key_dim)`.
        values: Float tensor of shape `(batch, heads, key_length, value_dim)`.
        softmax: Function of products, a mask and a bias, which returns the attention
            weights: `layers.masked_softmax`.
        mask_of: Function of the indices of queries, `(rows,)`, or of None for all
            queries. Returns which keys these may attend to, a boolean tensor that
            broadcasts to `(batch, heads, rows, key_length)`, or None for all. Indices
            may exceed the last query. A query that may attend to nothing gets zeros.
            None: every key. What it hides must be finite.
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
    if target.BACKEND != "tensorflow":
        # On accelerators the fused kernel holds no weights in half precision.
        is_half = keras.backend.standardize_dtype(queries.dtype) != "float32"
        if is_long is False or (is_half and target.has_accelerator()):
            bias = bias_of(None)
            if _suits_fused_kernel(queries, values, bias):
                return _attend_fused(queries, keys, values, mask_of(None), bias)

    def weights_of(rows, some, keys):
        """The attention weights of the queries in some rows."""
        products = query_key_products(some * (1 / math.sqrt(some.shape[-1])), keys)
        return softmax(products, mask_of(rows), bias_of(rows))

    if is_long is False:
        return ops.matmul(weights_of(None, queries, keys), values)
    choose = (lambda _, by_blocks, whole: by_blocks()) if is_long is True else ops.cond

    def attention(queries, keys, values):
        def whole():
            weights = weights_of(None, queries, keys)
            return ops.matmul(weights, values), weights

        # Blocks keep no weights: their gradient computes them again.
        outputs, weights = choose(
            is_long,
            lambda: (_blocked(queries, keys, values, weights_of), queries[..., :0]),
            whole,
        )

        def gradient(upstream):
            shapes = [shape_of(x) for x in (queries, keys, values)]
            weights_shape = (*shapes[0][:3], lengths[1])
            gradients = choose(
                is_long,
                lambda: _blocked_gradients(queries, keys, values, weights_of, upstream),
                lambda: _gradients(
                    queries,
                    keys,
                    values,
                    _reshaped(is_long, weights, weights_shape),
                    upstream,
                ),
            )
            return tuple(map(_reshaped, [is_long] * 3, gradients, shapes))

        return outputs, gradient

    return with_gradient(attention, queries, keys, values)


def _reshaped(is_long, states, shape):
    """States with the shape that they have: XLA loses it in the result of a condition.

    It then cannot transpose them if a length may be 1.
    """
    return states if isinstance(is_long, bool) else ops.reshape(states, shape)


def _blocked(queries, keys, values, weights_of):
    """Attention of one block of queries after the other."""

    def attend_block(i, so_far, block):
        return so_far, ops.matmul(weights_of(_rows(i), block, keys), values)

    _, outputs = _scan(attend_block, values.shape[-1], (), _blocks(queries))
    return _joined(outputs, queries)


def _blocked_gradients(queries, keys, values, weights_of, upstream):
    """Gradients of queries, keys and values, block by block as the outputs."""

    def add_block(i, sums, block, of_outputs):
        weights = weights_of(_rows(i), block, keys)
        of_queries, *others = _gradients(block, keys, values, weights, of_outputs)
        others = (ops.cast(x, "float32") for x in others)
        return tuple(map(ops.add, sums, others)), of_queries

    zeros = tuple(ops.zeros_like(x, "float32") for x in (keys, values))
    blocks = _blocks(queries), _blocks(upstream)
    sums, of_queries = _scan(add_block, queries.shape[-1], zeros, *blocks)
    return _joined(of_queries, queries), *(ops.cast(x, values.dtype) for x in sums)


def _scan(function, width, carry, *blocks):
    """Calls `function(i, carry, *blocks[i])` for every block; stacks what it returns.

    It returns a carry and a block of this width. On TensorFlow, the results of
    `ops.scan` must have the dtype and the shape of the carry.
    """
    if target.BACKEND != "tensorflow":

        def step(state, some):
            i, carry = state
            carry, output = function(i, carry, *some)
            return (i + 1, carry), output

        start = ops.convert_to_tensor(0, "int32"), carry
        (_, carry), outputs = ops.scan(step, start, blocks)
        return carry, outputs
    import tensorflow as tf

    # LiteRT has no `TensorArray` of unknown size. This is written in place.
    outputs = tf.zeros((*shape_of(blocks[0])[:-1], width), blocks[0].dtype)

    def step(i, carry, outputs):
        carry, output = function(i, carry, *(x[i] for x in blocks))
        outputs = tf.tensor_scatter_nd_update(outputs, [[i]], output[None])
        return i + 1, carry, outputs

    size, state = shape_of(blocks[0])[0], (0, carry, outputs)
    # Side by side, several blocks would hold their weights at once.
    state = tf.while_loop(lambda i, *_: i < size, step, state, parallel_iterations=1)
    return state[1], state[2]


def _rows(i):
    """The indices of the queries of the `i`-th block."""
    return i * BLOCK_LENGTH + ops.arange(BLOCK_LENGTH, dtype="int32")


def _blocks(states):
    """(batch, heads, length, dim) -> (blocks, batch, heads, BLOCK_LENGTH, dim)."""
    length = shape_of(states)[2]
    # Not `-length % BLOCK_LENGTH`: ONNX computes other remainders of negative numbers.
    missing = (length + BLOCK_LENGTH - 1) // BLOCK_LENGTH * BLOCK_LENGTH - length
    padded = ops.pad(states, [[0, 0], [0, 0], [0, missing], [0, 0]])
    batch, heads, length, dim = shape_of(padded)
    shape = batch, heads, length // BLOCK_LENGTH, BLOCK_LENGTH, dim
    return ops.transpose(ops.reshape(padded, shape), (2, 0, 1, 3, 4))


def _joined(blocks, queries):
    """The inverse of `_blocks`, for as many positions as queries have."""
    num_blocks, batch, heads, _, dim = shape_of(blocks)
    states = ops.transpose(blocks, (1, 2, 0, 3, 4))
    states = ops.reshape(states, (batch, heads, num_blocks * BLOCK_LENGTH, dim))
    return states[:, :, : shape_of(queries)[2]]


def _gradients(queries, keys, values, weights, upstream):
    """Gradients of queries, keys and values.

    They are written out because XLA cannot differentiate a condition on lengths that
    are unknown in the trace.
    """
    scale = 1 / math.sqrt(queries.shape[-1])
    of_weights = ops.matmul(upstream, ops.swapaxes(values, -1, -2))
    weights32, of_weights = (ops.cast(x, "float32") for x in (weights, of_weights))
    mean = ops.sum(weights32 * of_weights, axis=-1, keepdims=True)
    of_products = ops.cast(weights32 * (of_weights - mean), queries.dtype)
    return (
        ops.matmul(of_products, keys) * scale,
        ops.matmul(ops.swapaxes(of_products, -1, -2), queries * scale),
        ops.matmul(ops.swapaxes(weights, -1, -2), upstream),
    )


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
