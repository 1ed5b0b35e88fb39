"""`logsumexp` computed from a softmax."""

from keras import ops

from keras_transformer.kernels.gather import take_one


def log_normalizer(logits, largest_logit, largest_id):
    """Computes `ops.logsumexp` of each row, given its largest value.

    A softmax is one fused pass, and `ops.logsumexp` several. The largest probability
    cannot underflow: with its logit, it determines the normaliser.

    Args:
        logits: Float32 tensor of shape `(rows, vocabulary)`.
        largest_logit: The largest logit of each row, of shape `(rows,)`.
        largest_id: Its position, int32, of the same shape.

    Returns:
        A float32 tensor of shape `(rows,)`.
    """
    largest_probability = take_one(ops.softmax(logits), largest_id)
    return largest_logit - ops.log(largest_probability)


def normalizer_of_softmax(logits, probabilities):
    """Computes `ops.logsumexp` of the last axis, given its softmax.

    Args:
        logits: Float32 tensor of shape `(..., vocabulary)`.
        probabilities: `ops.softmax(logits)`.

    Returns:
        A float32 tensor of shape `(...)`.
    """
    return ops.max(logits, axis=-1) - ops.log(ops.max(probabilities, axis=-1))
