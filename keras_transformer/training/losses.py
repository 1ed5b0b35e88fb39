"""Cross-entropy over tokens, averaged over the real ones."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_transformer")
class TokenCrossentropy(keras.losses.Loss):
    """Cross-entropy of the next token, its mean over real tokens.

    With label smoothing the aim is not the label alone but
    `(1 - label_smoothing) * label + label_smoothing / vocabulary` for every
    token; the loss needs no such vectors, since the cross-entropy with them is
    `logsumexp(logits) - (1 - label_smoothing) * logits[label]
    - label_smoothing * mean(logits)`.

    Args:
        label_smoothing: Share of the aim spread evenly over the vocabulary.
        pad_id: Label of the padding, which counts for nothing.
        name: Name of the loss.

    Call arguments:
        y_true: Integer tensor of shape `(batch, length)`, the labels.
        y_pred: Float tensor of shape `(batch, length, vocabulary)`, the logits.

    Returns:
        The mean over real tokens, in nats, a float32 tensor of no dimensions;
        zero if there are none. In a replica of a `tf.distribute` strategy, its
        share of the mean over the tokens of all replicas; see `global_mean`.

    Raises:
        ValueError: If `label_smoothing` is not in [0, 1).

    Example:
        >>> loss = TokenCrossentropy(label_smoothing=0.1)
        >>> logits = ops.zeros((1, 3, 8))
        >>> round(float(loss(np.array([[5, 7, 0]]), logits)), 4)  # log(8)
        2.0794

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 5.4;
        [Szegedy et al., 2015](https://arxiv.org/abs/1512.00567), section 7
    """

    def __init__(
        self,
        label_smoothing: float = 0.0,
        pad_id: int = 0,
        name: str = "token_crossentropy",
    ):
        super().__init__(name=name, reduction="sum")
        if not 0 <= label_smoothing < 1:
            raise ValueError(
                "`label_smoothing` must be at least 0 and below 1. "
                f"Received: label_smoothing={label_smoothing}."
            )
        self.label_smoothing = label_smoothing
        self.pad_id = pad_id

    def __call__(self, y_true, y_pred, sample_weight=None):
        weights = self.weights(y_true, sample_weight)
        losses = self.call(y_true, y_pred)
        return global_mean(ops.sum(losses * weights), ops.sum(weights))

    def weights(self, y_true, sample_weight=None):
        """What every position, `(batch, length)`, counts for in the mean."""
        return token_weights(y_true, self.pad_id, sample_weight)

    def call(self, y_true, y_pred):
        """The loss of every position, `(batch, length)`, padding included."""
        return smoothed_crossentropy(y_true, y_pred, self.label_smoothing)

    def get_config(self):
        return {
            "label_smoothing": self.label_smoothing,
            "pad_id": self.pad_id,
            "name": self.name,
        }


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
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # All at once, and neither before they are needed nor while the loss still
        # has to read the logits: out of the caches an array of their size is slow.
        with tf.control_dependencies(after):
            aim = 1 - label_smoothing + even_share
            return tf.one_hot(labels, vocabulary, aim, even_share, dtype="float32")
    aims = ops.one_hot(labels, vocabulary, dtype="float32")
    return aims * (1 - label_smoothing) + even_share


def token_weights(labels, pad_id=0, sample_weight=None):
    """One for a real token and zero for padding, times the sample weight."""
    weights = ops.cast(ops.not_equal(labels, pad_id), "float32")
    if sample_weight is None:
        return weights
    sample_weight = ops.cast(sample_weight, "float32")
    if len(sample_weight.shape) == 1:
        sample_weight = sample_weight[:, None]
    return weights * sample_weight


def global_mean(total, count):
    """`total / count`, or a replica's share of that of all replicas together.

    Each replica of a `tf.distribute` strategy computes the loss of its part of
    the batch, Keras adds up the gradients, and shows the mean of the losses
    times the number of replicas. So that k replicas give the update of one
    however the padding falls, the gradient here is that of
    `total / count of all replicas`; so that they show the loss of one, the
    value is the same in all replicas, the mean over all tokens divided by k.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        replica = tf.distribute.get_replica_context()  # None outside of replicas
        if replica is not None and replica.num_replicas_in_sync > 1:
            own = tf.stop_gradient(tf.stack([total, count]))
            all_total, all_count = tf.unstack(replica.all_reduce("SUM", own))
            share = total / ops.maximum(all_count, 1e-9)
            shown = all_total / ops.maximum(all_count, 1e-9)
            return share + tf.stop_gradient(
                shown / replica.num_replicas_in_sync - share
            )
    return total / ops.maximum(count, 1e-9)
