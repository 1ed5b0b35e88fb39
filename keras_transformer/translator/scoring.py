"""How likely a model finds given translations."""

from typing import NamedTuple

import numpy as np
from keras import ops

from keras_transformer.kernels.compiled import CompiledFunction

POSITIONS_PER_BATCH = 2048
MIN_PADDED_LENGTH = 16


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


class Scorer:
    """Computes `log_probabilities` of any number of targets, in few shapes.

    Pairs are sorted and padded to powers of two, so few programs are traced.

    Args:
        model: A `Transformer`.
        max_lengths: The longest source, and the longest target.
        num_given: As in `log_probabilities`.
    """

    def __init__(self, model, max_lengths: tuple[int, int], num_given: int = 0):
        def score(source_ids, labels):
            return log_probabilities(model, source_ids, labels, num_given)

        self._model, self._variables = model, list(model.variables)
        self._pad_id = model.pad_id
        self._max_lengths = max_lengths
        self._program = CompiledFunction(score, model, jit_compile="auto")

    def is_of(self, model) -> bool:
        """Returns whether this scores by a model with the variables it has now."""
        variables = list(map(id, model.variables))
        return model is self._model and variables == list(map(id, self._variables))

    def __call__(self, source_ids, labels) -> list[TargetScore]:
        """Returns a `TargetScore` for each row of the two."""
        pairs = [np.asarray(ids) for ids in (source_ids, labels)]
        used = [
            ids.shape[1] - (ids[:, ::-1] != self._pad_id).argmax(1) for ids in pairs
        ]
        lengths = np.maximum(*used)
        padded = 2 ** np.ceil(np.log2(np.maximum(lengths, MIN_PADDED_LENGTH)))
        scores: list[TargetScore] = [TargetScore(0.0, 0)] * len(lengths)
        for length in np.unique(padded).astype(int):
            rows = np.flatnonzero(padded == length)
            batch_size = max(1, POSITIONS_PER_BATCH // length)
            for start in range(0, len(rows), batch_size):
                batch = rows[start : start + batch_size]
                found = self._score([ids[batch] for ids in pairs], length, batch_size)
                used_rows = (each[: len(batch)].tolist() for each in found)
                for row, *score in zip(batch, *used_rows, strict=True):
                    scores[row] = TargetScore(*score)
        return scores

    def _score(self, pairs, length, batch_size):
        """Scores pairs padded to `length` positions and `batch_size` rows."""
        inputs = []
        for ids, max_length in zip(pairs, self._max_lengths, strict=True):
            shape = batch_size, min(length, max_length)
            full = np.full(shape, self._pad_id, "int32")
            full[: len(ids), : ids.shape[1]] = ids[:, : shape[1]]
            inputs.append(full)
        return self._program.run(*inputs)
