"""Label-smoothed cross-entropy whose gradient takes few passes over the logits."""

from keras import ops

from keras_transformer.kernels import target


def smoothed_crossentropy(labels, logits, label_smoothing=0.0):
    """Cross-entropy at every position, `(batch, length)`, in float32 nats.

    The gradient is written out, since the one derived by the backend builds
    several arrays of the size of the logits: it is the softmax less its aim.
    """
    labels = ops.cast(labels, "int32")
    if tuple(labels.shape) != tuple(logits.shape[:-1]):
        raise ValueError(
            "Every label needs its row of logits. Received: labels of shape "
            f"{tuple(labels.shape)}, logits of shape {tuple(logits.shape)}."
        )
    vocabulary = logits.shape[-1]
    dtype = logits.dtype

    @ops.custom_gradient
    def crossentropy(logits):
        logits = ops.cast(logits, "float32")
        shares = ops.softmax(logits)
        of_label = _at_labels(logits, labels)
        normalizer = _log_normalizer(logits, of_label, shares, labels)
        losses = normalizer - (1 - label_smoothing) * of_label
        if label_smoothing:
            losses = losses - label_smoothing * ops.mean(logits, axis=-1)

        def gradient(*args, upstream=None):
            upstream = args[0] if upstream is None else upstream
            aims = _aims(labels, vocabulary, label_smoothing, (losses, upstream))
            return ops.cast((shares - aims) * upstream[..., None], dtype)

        return losses, gradient

    return crossentropy(logits)


def _at_labels(values, labels):
    return ops.take_along_axis(values, labels[..., None], axis=-1)[..., 0]


def _log_normalizer(logits, of_label, shares, labels):
    """The logarithm of what the softmax divided by, at every position.

    Read off the share of the label, with no pass over the vocabulary, or off the
    largest share where that of the label is next to nothing.
    """
    share = _at_labels(shares, labels)
    is_told = share > 1e-30
    by_label = of_label - ops.log(ops.where(is_told, share, 1.0))

    def with_largest():
        by_largest = ops.max(logits, axis=-1) - ops.log(ops.max(shares, axis=-1))
        return ops.where(is_told, by_label, by_largest)

    return ops.cond(ops.all(is_told), lambda: by_label, with_largest)


def _aims(labels, vocabulary, label_smoothing, after):
    """The smoothed labels as rows of the vocabulary."""
    even_share = label_smoothing / vocabulary
    if target.is_tensorflow():
        import tensorflow as tf

        # All at once, and neither before they are needed nor while the loss still
        # has to read the logits: out of the caches an array of their size is slow.
        with tf.control_dependencies(after):
            aim = 1 - label_smoothing + even_share
            return tf.one_hot(labels, vocabulary, aim, even_share, dtype="float32")
    aims = ops.one_hot(labels, vocabulary, dtype="float32")
    return aims * (1 - label_smoothing) + even_share
