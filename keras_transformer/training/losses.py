"""Cross-entropy over tokens, averaged over the real ones."""

import keras
from keras import ops

from keras_transformer.kernels.crossentropy import smoothed_crossentropy
from keras_transformer.kernels.graphs import as_rows
from keras_transformer.training.distribution import num_replicas, sum_over_replicas


@keras.saving.register_keras_serializable(package="keras_transformer")
class TokenCrossentropy(keras.losses.Loss):
    """Cross-entropy of the next token, averaged over real tokens.

    Args:
        label_smoothing: Probability that the target distribution spreads evenly over
            the vocabulary; the label gets the rest.
        pad_id: Label of padded positions, which are ignored.
        name: Name of the loss.

    Call arguments:
        y_true: Integer tensor of shape `(batch, length)`, the labels.
        y_pred: Float tensor of shape `(batch, length, vocabulary)`, the logits.

    Returns:
        The mean over real tokens, in nats, a float32 tensor of no dimensions;
        zero if there are none. In a replica of a `tf.distribute` strategy, its
        contribution to the mean over the tokens of all replicas.

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
        weights = token_weights(y_true, self.pad_id, sample_weight)
        losses = self.call(y_true, y_pred)
        return global_mean(ops.sum(losses * weights), ops.sum(weights))

    def call(self, y_true, y_pred):
        """Returns the loss of every position, `(batch, length)`, including padding."""
        return smoothed_crossentropy(y_true, y_pred, self.label_smoothing)

    def batch_weight(self, y_true, sample_weight=None):
        """Returns the sum of a batch's token weights, over which its loss is the mean.

        `fit` and `evaluate` of this package's models weigh batches by it, so that
        `loss` and `val_loss` are means over all real tokens. Other Keras models log
        means over rows.

        Args:
            y_true: The labels, a tensor of shape `(batch, length)`.
            sample_weight: Weights of tokens or rows, a tensor; None for equal ones.
        """
        return ops.sum(token_weights(y_true, self.pad_id, sample_weight))

    def get_config(self):
        names = ("label_smoothing", "pad_id", "name")
        return {name: getattr(self, name) for name in names}


def token_weights(labels, pad_id=0, sample_weight=None):
    """Weights of positions: 1 for real tokens, 0 for padding, times sample weights."""
    weights = ops.cast(ops.not_equal(labels, pad_id), "float32")
    if sample_weight is None:
        return weights
    return weights * as_rows(ops.cast(sample_weight, "float32"))


def global_mean(total, count):
    """`total / count`, or a replica's contribution to the mean over all replicas.

    Keras sums the gradients of the replicas, and shows the mean of their losses times
    their number. So that k replicas learn and show what one does, wherever the padding
    falls, the gradient here is the gradient of `total / count of all replicas`, and the
    value `total of all replicas / count of all replicas / k`.
    """
    replicas = num_replicas()
    if replicas == 1:
        return total / ops.maximum(count, 1e-9)
    all_total, all_count = sum_over_replicas(total, count)
    all_count = ops.maximum(all_count, 1e-9)
    learnt, shown = total / all_count, all_total / all_count / replicas
    return learnt + ops.stop_gradient(shown - learnt)
