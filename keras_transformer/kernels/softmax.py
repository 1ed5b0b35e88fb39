"""Softmax that gives masked entries exactly nothing."""

from keras import ops


def masked_softmax(scores, mask=None):
    """Softmax over the last axis that gives masked positions exactly nothing.

    A row that may attend to nothing comes out as zeros rather than as an
    even mixture of what it must not see. The exponentials are taken in
    float32 whatever the dtype of `scores`.

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
    # Keras warns of a softmax over a single position, whose share is all.
    weights = ops.ones_like(scores) if scores.shape[-1] == 1 else ops.softmax(scores)
    if mask is not None:
        weights = ops.where(mask, weights, 0.0)
    return ops.cast(weights, dtype)
