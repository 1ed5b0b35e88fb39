"""How likely a model finds given translations."""

from operator import itemgetter
from typing import NamedTuple

import keras
from keras import ops

from keras_transformer.kernels.compiled import CompiledFunction
from keras_transformer.translator.batching import BatchingPolicy


class TargetScore(NamedTuple):
    """How likely a model finds a translation.

    Attributes:
        log_probability: Natural logarithm of its probability, given its source.
        tokens: The number of its subwords, end token included.

    What the tokenizer puts before every translation, such as its language, does not
    count: searches are given it too.
    """

    log_probability: float
    tokens: int


def log_probabilities(model, source_ids, labels, num_given: int = 0):
    """Returns the log-probability of each target, and its number of tokens.

    Args:
        model: A `Transformer`.
        source_ids: Integer tensor of shape `(batch, source_length)`.
        labels: Integer tensor of shape `(batch, target_length)`: targets with end
            tokens and padding.
        num_given: Number of tokens that begin every target and do not count.

    Returns:
        A float32 and an int32 tensor of shape `(batch,)`.
    """
    starts = ops.full_like(labels[:, :1], model.start_id)
    target_ids = ops.concatenate([starts, labels[:, :-1]], axis=1)
    logits = model({"source_ids": source_ids, "target_ids": target_ids})
    losses = ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    is_token = ops.not_equal(labels, model.pad_id)[:, num_given:]
    log_probability = -ops.sum(ops.where(is_token, losses[:, num_given:], 0.0), axis=1)
    return log_probability, ops.sum(ops.cast(is_token, "int32"), axis=1)


class PairFunction:
    """Calls a function on any number of pairs, compiled once a shape.

    Args:
        function: Function of a model, `source_ids`, `labels` and other arguments, as
            `log_probabilities` is, that returns a structure of tensors.
        model: A `Transformer` or an `Ensemble`.
        policy: Which pairs are computed together.
        arguments: The other arguments.
    """

    def __init__(self, function, model, policy: BatchingPolicy, arguments=()):
        def call(source_ids, labels):
            return function(model, source_ids, labels, *arguments)

        self._model, self._variables = model, list(model.variables)
        self._batches = policy.scored_batches
        self._program = CompiledFunction(call, model, jit_compile="auto")

    def is_of(self, model) -> bool:
        """Returns whether this computes by a model with the variables it has now."""
        variables = list(map(id, model.variables))
        return model is self._model and variables == list(map(id, self._variables))

    def __call__(self, source_ids, labels):
        """Yields the rows of some pairs, and what the function returns for them."""
        for rows, ids in self._batches(source_ids, labels):
            found = self._program.run(*ids)
            unpadded = itemgetter(slice(len(rows)))
            yield rows, keras.tree.map_structure(unpadded, found)
