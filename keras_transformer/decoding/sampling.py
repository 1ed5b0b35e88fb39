"""Symbols drawn from the model's distribution, or from the likely part of it."""

import keras
import numpy as np
from keras import ops

from keras_transformer.decoding.cache import take_rows
from keras_transformer.decoding.greedy import likeliest
from keras_transformer.decoding.independent import IndependentSearch


@keras.saving.register_keras_serializable(package="keras_transformer")
class Sampling(IndependentSearch):
    """Draws every symbol from the model's distribution.

    The distribution is sharpened or flattened by `temperature`, then cut to
    its `top_k` likeliest symbols, then to the fewest likeliest symbols that
    hold `top_p` of what is left. Hypotheses of one sentence are drawn
    independently, so two may be equal. The score is the model's
    log-probability of the sequence, end symbol included, whatever the
    temperature and the cuts; no length penalty.

    With a `seed`, every call draws the same; a search that is exported needs
    one. Without, calls go on from Keras's global seed.

    Args:
        temperature: What logits are divided by; 0 is greedy search.
        top_k: Number of symbols to draw from, at most; `None` for all.
        top_p: Share of the probability to draw from; `None` for all of it.
        seed: An integer that makes the draw repeatable, or `None`.
        num_hypotheses: Hypotheses to draw for each sentence.
        processors: `Processor`s, applied to the logits in this order.

    Raises:
        ValueError: If an argument is out of range.

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
        super().__init__(num_hypotheses=num_hypotheses, processors=processors)
        if not (np.isfinite(temperature) and temperature >= 0):
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
        if seed is not None and not isinstance(seed, int):
            raise ValueError(
                f"`seed` must be an integer or None. Received: seed={seed}."
            )
        self.temperature = temperature
        self.top_k = top_k
        self.top_p = top_p
        self.seed = seed

    def prepare(self, batch_size, max_length):
        # One number in [0, 1) decides a symbol, so a seed covers the whole
        # search and no step draws a number for each symbol of the vocabulary.
        shape = (max_length, batch_size, self.num_hypotheses)
        return keras.random.uniform(shape, dtype="float32", seed=self.seed)

    def choose(self, logits, index, prepared):
        if self.temperature == 0:
            return likeliest(logits)
        uniform = ops.take(prepared, index, axis=0)
        if self.top_k is None and self.top_p is None:
            chosen = draw(self.probabilities(logits), uniform)
            return chosen, pick(logits, chosen)
        vocabulary_size = logits.shape[-1]
        count = min(self.top_k or vocabulary_size, vocabulary_size)
        logits, ids = ops.top_k(logits, count)
        chosen = draw(keep_share(self.probabilities(logits), self.top_p), uniform)
        return ops.cast(pick(ids, chosen), "int32"), pick(logits, chosen)

    def probabilities(self, logits):
        largest = ops.max(logits, axis=-1, keepdims=True)
        # Nothing minus itself is no number where everything is forbidden.
        largest = ops.maximum(largest, np.finfo("float32").min)
        return ops.softmax((logits - largest) / self.temperature)

    def get_config(self):
        return {
            "temperature": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "seed": self.seed,
            "num_hypotheses": self.num_hypotheses,
            **super().get_config(),
        }


def keep_share(probabilities, share: float | None):
    """Drops the least likely symbols while the rest still holds the share.

    Args:
        probabilities: Float tensor of shape `(..., symbols)`, in falling order.
        share: What the symbols that stay must hold together; `None` for all.

    Returns:
        A tensor of the same shape, with zeros for what was dropped. The first
        symbol always stays.
    """
    if share is None:
        return probabilities
    before = ops.cumsum(probabilities, axis=-1) - probabilities
    return ops.where(before < share, probabilities, 0.0)


def draw(weights, uniform):
    """Draws an index by the inverse of the distribution function.

    Args:
        weights: Float tensor of shape `(..., choices)`, of any sum.
        uniform: Float tensor of shape `(...)`, drawn evenly from `[0, 1)`.

    Returns:
        An int32 tensor of shape `(...)`. A choice of weight zero is not drawn.
    """
    reached = ops.cumsum(weights, axis=-1)
    beyond = reached > uniform[..., None] * reached[..., -1:]
    return ops.cast(ops.argmax(beyond, axis=-1), "int32")


def pick(values, chosen):
    """Picks one of the values of each hypothesis.

    Args:
        values: Tensor of shape `(batch, hypotheses, choices)`.
        chosen: Int32 tensor of shape `(batch, hypotheses)`.

    Returns:
        A tensor of shape `(batch, hypotheses)`.
    """
    hypotheses, choices = values.shape[1:]
    places = ops.arange(hypotheses, dtype="int32") * choices + chosen
    return take_rows(ops.reshape(values, (-1, hypotheses * choices)), places)
