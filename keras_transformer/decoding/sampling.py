"""Symbols drawn from the model's distribution, or from the likely part of it."""

import keras
import numpy as np
from keras import ops

from keras_transformer.decoding.independent import IndependentSearch
from keras_transformer.decoding.processors import forbid, vocabulary_of
from keras_transformer.decoding.search import batch_size_of
from keras_transformer.kernels.gather import pick
from keras_transformer.kernels.random import digest, uniforms
from keras_transformer.kernels.top_k import draw


@keras.saving.register_keras_serializable(package="keras_transformer")
class Sampling(IndependentSearch):
    """Draws every symbol from the model's distribution.

    Logits are divided by `temperature`; then all but the `top_k` largest are
    left out; then all but the likeliest that hold `top_p` of the probability
    that remains. The hypotheses of a sentence are drawn independently of each
    other: two may be equal. The score is the model's log-probability of the
    sequence, the end symbol included, whatever it was drawn from; there is no
    length penalty.

    With a `seed` a sentence draws the same in every call and in any batch:
    live, compiled, and exported, which needs one. Its draws then depend on
    the ids in the first tensor of the model's inputs, padding aside, so equal
    sentences draw alike; if these are no ids of shape `(batch, length)`, they
    depend on its place in the batch. Without a seed all draws differ, and
    calls go on from Keras's global seed.

    Args:
        temperature: What logits are divided by; 0 gives greedy search.
        top_k: Number of symbols to draw from; `None` for all.
        top_p: Share of the probability to draw from, in `(0, 1]`: the fewest
            symbols that hold it, and any as likely as the last of them; `None`
            for all.
        seed: Integer of at least 0 that makes draws repeatable, or `None`.
        num_hypotheses: Hypotheses to draw for each sentence.
        processors: Sequence of `Processor`, applied in this order, before the
            temperature.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> kt.decoding.Sampling(temperature=0.7, top_k=40, seed=11).top_k
        40

    Reference:
        [Holtzman et al., 2020](https://arxiv.org/abs/1904.09751), for `top_p`
    """

    def __init__(
        self,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        num_hypotheses: int = 1,
        processors=(),
    ):
        super().__init__(num_hypotheses, processors)
        if not 0 <= temperature < np.inf:
            raise ValueError(
                "`temperature` must be a finite number of at least 0. "
                f"Received: temperature={temperature}."
            )
        if top_k is not None and (not isinstance(top_k, int) or top_k < 1):
            raise ValueError(
                f"`top_k` must be a positive integer or None. Received: top_k={top_k}."
            )
        if top_p is not None and not 0 < top_p <= 1:
            raise ValueError(
                "`top_p` must be greater than 0 and at most 1, or None. "
                f"Received: top_p={top_p}."
            )
        if seed is not None and (not isinstance(seed, int) or seed < 0):
            raise ValueError(
                "`seed` must be an integer of at least 0, or None. "
                f"Received: seed={seed}."
            )
        self.temperature = temperature
        self.top_k = top_k
        self.top_p = top_p
        self.seed = seed
        self._marks = None

    @property
    def num_candidates(self):
        return 1 if self.top_k is None else self.top_k

    def luck(self, model, inputs, max_length):
        if self.temperature == 0:
            return ()
        # One number decides on a symbol, whatever the size of the vocabulary.
        rows = self.rows(inputs, model.pad_id)
        numbers = ops.transpose(uniforms(max_length, rows, self.seed or 0))
        return ops.reshape(numbers, (-1, self.num_hypotheses, max_length))

    def choose(self, model, symbols, index, luck):
        if self.temperature == 0:
            logits, ids = symbols.likeliest()
            return ids, logits
        ids, logits = symbols.best_ids, symbols.best_logits
        if self.top_k is None:
            is_padding = vocabulary_of(symbols.logits) == model.pad_id
            ids, logits = None, forbid(symbols.logits, is_padding)
        hypotheses, size = logits.shape[1:]
        weights = self.weigh(logits, symbols.likeliest()[0][..., None])
        weights = ops.reshape(weights, (-1, size))
        drawn = draw(weights, ops.reshape(ops.take(luck, index, axis=-1), (-1,)))
        logits = pick(ops.reshape(logits, (-1, size)), drawn)
        if ids is not None:
            drawn = pick(ops.reshape(ids, (-1, size)), drawn)
        shape = (-1, hypotheses)
        return ops.reshape(drawn, shape), ops.reshape(logits, shape)

    def rows(self, inputs, pad_id):
        """Returns what tells all hypotheses apart, of shape `(rows,)`."""
        num_rows = batch_size_of(inputs) * self.num_hypotheses
        if self.seed is None:
            marks = random_marks(num_rows) if self._marks is None else self._marks
            return ops.reshape(marks, (-1,))
        ids = keras.tree.flatten(inputs)[0]
        are_ids = "int" in keras.backend.standardize_dtype(ids.dtype)
        if not are_ids or len(ids.shape) != 2:
            return ops.arange(num_rows, dtype="int32")
        hypotheses = ops.arange(self.num_hypotheses, dtype="int32")
        return ops.reshape(digest(ids, pad_id)[:, None] + hypotheses, (-1,))

    def tables(self, num_sentences):
        tables = super().tables(num_sentences)
        if self.seed is None:
            # Drawn before anything is compiled: what is, on JAX, cannot go on from
            # Keras's global seed.
            marks = random_marks(num_sentences * self.num_hypotheses)
            marks = ops.convert_to_numpy(marks)
            tables["marks"] = marks.reshape(num_sentences, self.num_hypotheses)
        return tables

    def with_tables(self, tables):
        search = super().with_tables(tables)
        search._marks = tables.get("marks")
        return search

    def weigh(self, logits, largest_logit):
        """Turns logits into the weights to draw with, of any sum."""
        # Minus infinity less itself, where all is forbidden, is no number.
        largest_logit = ops.maximum(largest_logit, np.finfo("float32").min)
        temperature = min(max(self.temperature, 1e-37), 1e37)  # as float32
        log_weights = (logits - largest_logit) / temperature
        weights = ops.exp(log_weights)
        if self.top_p is None:
            return weights
        return ops.where(in_nucleus(log_weights, weights, self.top_p), weights, 0.0)

    def get_config(self):
        return {
            "temperature": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "seed": self.seed,
            "num_hypotheses": self.num_hypotheses,
            **super().get_config(),
        }


def random_marks(count):
    """Returns as many int32 numbers, which go on from Keras's global seed."""
    return keras.random.randint((count,), 0, 2**31 - 1, dtype="int32")


def in_nucleus(log_weights, weights, share: float):
    """Finds the likeliest symbols that together hold a share of all weight.

    Bisects for the log-weight of the last of them: that reads the vocabulary
    a fixed number of times, where sorting it takes far longer.

    Args:
        log_weights: Float tensor of shape `(..., size)`, 0 at most.
        weights: Their exponentials, of the same shape.
        share: The share to hold, in `(0, 1]`.

    Returns:
        A boolean tensor of the same shape: True where the symbols that are
        likelier do not hold the share yet.
    """
    wanted = share * ops.sum(weights, axis=-1, keepdims=True)

    def halve(_, interval):
        low, high = interval
        middle = (low + high) / 2
        above = ops.where(log_weights > middle, weights, 0.0)
        holds = ops.sum(above, axis=-1, keepdims=True) >= wanted
        return ops.where(holds, middle, low), ops.where(holds, high, middle)

    # Below this a float32 exponential is zero. 32 halvings reach its precision.
    low = ops.full_like(wanted, -104.0)
    low, _ = ops.fori_loop(0, 32, halve, (low, ops.zeros_like(wanted)))
    return log_weights > low
