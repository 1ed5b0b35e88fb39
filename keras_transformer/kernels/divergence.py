"""Kullback-Leibler divergence of two softmaxes, in few passes over the logits."""

from keras import ops

from keras_transformer.kernels.log_normalizer import normalizer_of_softmax


def softmax_divergence(logits, other_logits):
    """The divergence of `softmax(other_logits)` from `softmax(logits)`, in float32.

    It is `sum(p * (log(p) - log(q)))` over the vocabulary, with `p = softmax(logits)`
    and `q = softmax(other_logits)`, at every position. The gradient flows into both:
    `p * (log(p) - log(q) - divergence)` into `logits`, and `q - p` into `other_logits`.
    It is written out here, since the one that backends derive builds several arrays as
    large as the logits.

    Args:
        logits: Float tensor of shape `(batch, length, vocabulary)`.
        other_logits: Float tensor of the same shape.

    Returns:
        A float32 tensor of shape `(batch, length)`, in nats.

    Example:
        >>> p, q = np.array([0.5, 0.5]), np.array([0.25, 0.75])
        >>> round(float(np.sum(p * np.log(p / q))), 4)
        0.1438
        >>> logits, other_logits = np.log([[p]]), np.log([[q]])
        >>> round(float(softmax_divergence(logits, other_logits)[0, 0]), 4)
        0.1438
    """

    @ops.custom_gradient
    def divergence(logits, other_logits):
        x, y = (ops.cast(each, "float32") for each in (logits, other_logits))
        p, q = ops.softmax(x), ops.softmax(y)
        # log(p) - log(q), but for a constant: the difference of the normalizers.
        difference = x - y
        mean = ops.sum(p * difference, axis=-1)
        normalizer = normalizer_of_softmax(x, p) - normalizer_of_softmax(y, q)

        def gradient(*args, upstream=None):
            upstream = args[0] if upstream is None else upstream
            upstream = upstream[..., None]
            to_logits = upstream * p * (difference - mean[..., None])
            to_other_logits = upstream * (q - p)
            return (
                ops.cast(to_logits, logits.dtype),
                ops.cast(to_other_logits, other_logits.dtype),
            )

        return mean - normalizer, gradient

    return divergence(
        ops.convert_to_tensor(logits), ops.convert_to_tensor(other_logits)
    )
