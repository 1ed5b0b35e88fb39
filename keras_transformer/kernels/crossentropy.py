"""Cross-entropies and log-probabilities in few passes over the logits."""

from keras import ops

from keras_transformer.kernels import target
from keras_transformer.kernels.graphs import with_gradient
from keras_transformer.kernels.selection import take_last, take_one


def smoothed_crossentropy(labels, logits, label_smoothing=0.0):
    """Cross-entropy at every position with smoothed labels, in float32 nats.

    Labels are integers `(batch, length)`, logits floats `(batch, length, vocabulary)`.

    The target distribution gives each token `label_smoothing / vocabulary`, and adds
    `1 - label_smoothing` to the label. With `log_normaliser = logsumexp(logits)` the
    cross-entropy is `log_normaliser - (1 - label_smoothing) * logits[label] -
    label_smoothing * mean(logits)`, which needs no array of the target distribution.

    The gradient is `softmax(logits) - target_distribution`, written out here: the one
    that backends derive builds several arrays as large as the logits.

    Example:
        >>> labels, logits = np.array([[2]]), np.array([[[0.0, 1.0, 2.0]]], "float32")
        >>> target_distribution = 0.9 * ops.one_hot(labels, 3) + 0.1 / 3
        >>> round(-float(ops.sum(target_distribution * ops.log_softmax(logits))), 4)
        0.5076
        >>> round(float(smoothed_crossentropy(labels, logits, 0.1)[0, 0]), 4)
        0.5076
    """
    labels = ops.cast(labels, "int32")
    sizes = zip(labels.shape, logits.shape, strict=False)  # None if unknown in a graph
    differ = any(None not in pair and pair[0] != pair[1] for pair in sizes)
    if differ or len(labels.shape) != len(logits.shape) - 1:
        raise ValueError(
            "`labels` must have the shape of `logits` without the vocabulary. "
            f"Received: labels of shape {tuple(labels.shape)}, "
            f"logits of shape {tuple(logits.shape)}."
        )
    vocabulary = logits.shape[-1]
    dtype = logits.dtype

    def crossentropy(logits):
        logits = ops.cast(logits, "float32")
        probabilities = ops.softmax(logits)
        label_logits = take_last(logits, labels)
        losses = _log_normalizer(logits, label_logits, probabilities, labels)
        losses = losses - (1 - label_smoothing) * label_logits
        if label_smoothing:
            losses = losses - label_smoothing * ops.mean(logits, axis=-1)

        def gradient(upstream):
            targets = _target_distribution(
                labels, vocabulary, label_smoothing, after=(losses, upstream)
            )
            return ops.cast((probabilities - targets) * upstream[..., None], dtype)

        return losses, gradient

    return with_gradient(crossentropy, ops.convert_to_tensor(logits))


def log_normalizer(logits, largest_logit, largest_id):
    """Computes `ops.logsumexp` of `(rows, vocabulary)`, given the largest values.

    A softmax is one fused pass, and `ops.logsumexp` several. The largest probability
    cannot underflow: with its logit, it determines the normalizer.
    """
    largest_probability = take_one(ops.softmax(logits), largest_id)
    return largest_logit - ops.log(largest_probability)


def _log_normalizer(logits, label_logits, probabilities, labels):
    """The logarithm of the softmax's denominator at every position.

    It is the logit minus the log-probability of any one token. The label needs no pass
    over the vocabulary. Where the probability of the label underflows, the likeliest
    token takes its place.
    """
    label_probabilities = take_last(probabilities, labels)
    is_normal = label_probabilities > 1e-30
    by_label = label_logits - ops.log(ops.where(is_normal, label_probabilities, 1.0))

    def by_likeliest_token():
        largest_probabilities = ops.max(probabilities, axis=-1)
        by_likeliest = ops.max(logits, axis=-1) - ops.log(largest_probabilities)
        return ops.where(is_normal, by_label, by_likeliest)

    return ops.cond(ops.all(is_normal), lambda: by_label, by_likeliest_token)


def _target_distribution(labels, vocabulary, label_smoothing, after):
    """Smoothed labels, `(batch, length, vocabulary)`, computed later than `after`."""
    uniform = label_smoothing / vocabulary
    if target.BACKEND == "tensorflow":
        import tensorflow as tf

        # One operation, not before the gradient needs it and not while the loss still
        # reads the logits: an array of their size displaces them from the CPU's caches.
        with tf.control_dependencies(after):
            at_label = 1 - label_smoothing + uniform
            return tf.one_hot(labels, vocabulary, at_label, uniform, dtype="float32")
    one_hot = ops.one_hot(labels, vocabulary, dtype="float32")
    return one_hot * (1 - label_smoothing) + uniform
