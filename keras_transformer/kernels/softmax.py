"""Softmax over masked scores, in float32, without NaN in rows that are all masked."""

from keras import ops


def masked_softmax(scores, mask=None):
    """Softmax over the last axis that gives masked positions exactly zero.

    A row in which everything is masked becomes zeros, where a softmax over large
    negative numbers would spread evenly over what is masked. Exponentials are
    computed in float32; the result has the dtype of `scores`.

    Args:
        scores: Float tensor of shape `(..., query, key)`.
        mask: Boolean tensor that broadcasts to the shape of `scores`, True
            where the query may attend to the key.

    Returns:
        A tensor of the shape and dtype of `scores`.
    """
    dtype = scores.dtype
    scores = ops.cast(scores, "float32")
    if mask is not None:
        scores = ops.where(mask, scores, -1e30)
    # Keras warns about a softmax over an axis of length one, which is all ones.
    weights = ops.ones_like(scores) if scores.shape[-1] == 1 else ops.softmax(scores)
    if mask is not None:
        weights = ops.where(mask, weights, 0.0)
    return ops.cast(weights, dtype)


def attention_weights(products, mask=None, bias=None):
    """Computes `masked_softmax(products + bias)`, the attention weights.

    The bias is added in float32: in half precision a large one would round the products
    away.
    """
    dtype = products.dtype
    if bias is not None:
        products = ops.cast(products, "float32") + ops.cast(bias, "float32")
    return ops.cast(masked_softmax(products, mask), dtype)
