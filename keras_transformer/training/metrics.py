"""Metrics of next-token prediction that ignore padding."""

import keras
from keras import ops

from keras_transformer.kernels.crossentropy import smoothed_crossentropy
from keras_transformer.kernels.selection import take_last
from keras_transformer.training.losses import token_weights


class _TokenMean(keras.metrics.Mean):
    """Mean over real tokens of `values(y_true, y_pred)`, a number at every position."""

    def __init__(
        self, pad_id: int = 0, name: str | None = None, dtype: str | None = None
    ):
        super().__init__(name=name or self.default_name, dtype=dtype)
        self.pad_id = pad_id

    def update_state(self, y_true, y_pred, sample_weight=None):
        weights = token_weights(y_true, self.pad_id, sample_weight)
        # Keras would average two dimensions over the length first, padding included,
        # and so count the tokens of longer batches less.
        values, weights = (
            ops.reshape(x, (-1,)) for x in (self.values(y_true, y_pred), weights)
        )
        super().update_state(values, sample_weight=weights)

    def get_config(self):
        return {**super().get_config(), "pad_id": self.pad_id}


@keras.saving.register_keras_serializable(package="keras_transformer")
class Padding(_TokenMean):
    """Fraction of the positions of the labels that are padding.

    The arguments are as in `TokenAccuracy`.

    Example:
        >>> metric = Padding()
        >>> metric.update_state(np.array([[5, 7, 0, 0]]), None)
        >>> float(metric.result()), metric.num_tokens()
        (0.5, 2.0)
    """

    default_name = "padding"

    def update_state(self, y_true, y_pred, sample_weight=None):
        is_padding = ops.reshape(ops.equal(y_true, self.pad_id), (-1,))
        keras.metrics.Mean.update_state(self, ops.cast(is_padding, "float32"))

    def num_tokens(self) -> float:
        """Returns the number of real tokens since the last reset."""
        return float(ops.convert_to_numpy(self.count - self.total))


@keras.saving.register_keras_serializable(package="keras_transformer")
class TokenAccuracy(_TokenMean):
    """Fraction of real tokens whose logit is the largest.

    Several logits can be the largest, because half precision often rounds them to the
    same number. Each then counts as a fraction: of two, one half. This makes accuracies
    in different precisions comparable.

    Args:
        pad_id: Label of padded positions, which are ignored.
        name: Name of the metric; None means `default_name`.
        dtype: Dtype of its state.

    Call arguments:
        y_true: Integer tensor of shape `(batch, length)`, the labels.
        y_pred: Float tensor of shape `(batch, length, vocabulary)`, the logits.

    Example:
        >>> metric = TokenAccuracy()
        >>> logits = ops.one_hot([[1, 2, 3]], 5)
        >>> metric.update_state(np.array([[1, 4, 0]]), logits)
        >>> float(metric.result())
        0.5
    """

    default_name = "token_accuracy"

    def values(self, y_true, y_pred):
        # Not `argmax`: the softmax of the loss computes the maximum already.
        label_logits = take_last(y_pred, ops.cast(y_true, "int32"))
        largest = ops.max(y_pred, axis=-1, keepdims=True)
        num_largest = ops.sum(ops.cast(ops.equal(y_pred, largest), "float32"), axis=-1)
        is_largest = ops.equal(label_logits, largest[..., 0])
        return ops.cast(is_largest, "float32") / ops.maximum(num_largest, 1)


@keras.saving.register_keras_serializable(package="keras_transformer")
class Perplexity(_TokenMean):
    """Exponential of the mean cross-entropy over real tokens, unsmoothed.

    The arguments are as in `TokenAccuracy`.

    Example:
        >>> metric = Perplexity()
        >>> metric.update_state(np.array([[5, 7, 0]]), ops.zeros((1, 3, 8)))
        >>> round(float(metric.result()), 4)
        8.0
    """

    default_name = "perplexity"

    def values(self, y_true, y_pred):
        return smoothed_crossentropy(y_true, y_pred)

    def result(self):
        return ops.exp(super().result())
