"""How likely given translations are, according to a model."""

from typing import NamedTuple

from keras import ops


class TargetScore(NamedTuple):
    """How likely a translation is, according to a model.

    Attributes:
        log_probability: Natural logarithm of its probability, given its source.
        tokens: Number of its subwords, including the end token; see `Translator.score`.
    """

    log_probability: float
    tokens: int


def log_probabilities(model, source_ids, labels, num_given: int = 0):
    """Returns the log-probability of each target, and its number of tokens, `(batch,)`.

    `labels`, `(batch, target_length)`, are targets with end tokens and padding. Their
    first `num_given` tokens do not count.
    """
    starts = ops.full_like(labels[:, :1], model.start_id)
    target_ids = ops.concatenate([starts, labels[:, :-1]], axis=1)
    logits = model({"source_ids": source_ids, "target_ids": target_ids})
    losses = ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    is_token = ops.not_equal(labels, model.pad_id)[:, num_given:]
    log_probability = -ops.sum(ops.where(is_token, losses[:, num_given:], 0.0), axis=1)
    return log_probability, ops.sum(ops.cast(is_token, "int32"), axis=1)
