"""Sampling: tokens drawn from the model's distribution, whole or truncated."""

from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer.checks import check_positive_integers
from keras_transformer.decoding.cached_model import batch_size_of
from keras_transformer.decoding.configurable import is_finite_number
from keras_transformer.decoding.independent import IndependentSearch
from keras_transformer.decoding.processors import Processor, forbid, vocabulary_of
from keras_transformer.decoding.stop_strings import StopStrings
from keras_transformer.kernels.random import draw, hash_rows, uniforms
from keras_transformer.kernels.selection import in_nucleus, take_one
from keras_transformer.layers.cache import read_position


@keras.saving.register_keras_serializable(package="keras_transformer")
class Sampling(IndependentSearch):
    """Draws every token from the model's distribution.

    Logits are divided by `temperature`; then all but the `top_k` largest are
    left out; then all but the likeliest that hold `top_p` of the probability
    that remains. The hypotheses of a sentence are drawn independently of each
    other: two may be equal. The score is the model's log-probability of the
    sequence, the end token included, whatever distribution it was drawn from;
    there is no length penalty.

    With a `seed`, a sentence gets the same draws in every call and in any
    batch: live, compiled and exported. (An export needs a seed.) Its draws then
    depend on the ids in the first tensor of the model's inputs, except padding,
    so that equal sentences have equal draws; if that tensor does not hold ids of
    shape `(batch, length)`, they depend on the sentence's place in the batch.
    Without a seed all draws differ, and continue from Keras's global seed.

    Args:
        temperature: Divisor of the logits; 0 gives greedy search.
        top_k: Number of tokens to draw from; `None` for all.
        top_p: Probability to draw from, in `(0, 1]`: the fewest tokens that
            hold it, and any as likely as the last of them; `None` for all.
        seed: Integer of at least 0 that makes draws repeatable, or `None`.
        num_hypotheses: Hypotheses to draw for each sentence.
        processors: Sequence of `Processor`, applied in this order, before the
            temperature.
        end_ids: Id or ids that end a sequence, whichever comes first; by default
            the model's `end_id`.
        stop_strings: `StopStrings`, which end a sequence too; None for none.

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
        processors: Iterable[Processor] = (),
        end_ids: int | Iterable[int] | None = None,
        stop_strings: StopStrings | None = None,
    ):
        super().__init__(num_hypotheses, processors, end_ids, stop_strings)
        if not is_finite_number(temperature) or temperature < 0:
            raise ValueError(
                "`temperature` must be a finite number of at least 0. "
                f"Received: temperature={temperature!r}."
            )
        if top_k is not None:
            check_positive_integers(top_k=top_k)
            top_k = int(top_k)
        if top_p is not None and not (is_finite_number(top_p) and 0 < top_p <= 1):
            raise ValueError(
                "`top_p` must be greater than 0 and at most 1, or None. "
                f"Received: top_p={top_p}."
            )
        if seed is not None and (not isinstance(seed, (int, np.integer)) or seed < 0):
            raise ValueError(
                "`seed` must be an integer of at least 0, or None. "
                f"Received: seed={seed}."
            )
        self.temperature = float(temperature)
        self.top_k = top_k
        self.top_p = None if top_p is None else float(top_p)
        self.seed = None if seed is None else int(seed)
        self._random_keys: Any = None

    @property
    def num_candidates(self):
        return 1 if self.top_k is None else self.top_k

    def random_numbers(self, model, inputs, max_length: int):
        if self.temperature == 0:
            return ()
        # One random number decides on a token, however large the vocabulary is.
        keys = self.random_keys(inputs, model.pad_id)
        numbers = ops.transpose(uniforms(max_length, keys, self.seed or 0))
        return ops.reshape(numbers, (-1, self.num_hypotheses, max_length))

    def choose(self, model, tokens, index, random_numbers):
        if self.temperature == 0:
            logits, ids = tokens.likeliest()
            return ids, logits
        ids, logits = tokens.best_ids, tokens.best_logits
        if self.top_k is None:
            is_padding = vocabulary_of(tokens.logits) == model.pad_id
            ids, logits = None, forbid(tokens.logits, is_padding)
        hypotheses, size = logits.shape[1:]
        weights = self.weigh(logits, tokens.likeliest()[0][..., None])
        uniform = ops.reshape(read_position(random_numbers, index), (-1,))
        drawn = draw(ops.reshape(weights, (-1, size)), uniform)
        logits = take_one(ops.reshape(logits, (-1, size)), drawn)
        if ids is not None:
            drawn = take_one(ops.reshape(ids, (-1, size)), drawn)
        shape = (-1, hypotheses)
        return ops.reshape(drawn, shape), ops.reshape(logits, shape)

    def random_keys(self, inputs, pad_id: int):
        """Returns the int32 random keys of all hypotheses, of shape `(rows,)`."""
        if self._random_keys is not None:
            return ops.reshape(self._random_keys, (-1,))
        num_rows = batch_size_of(inputs) * self.num_hypotheses
        if self.seed is None:
            # Continuing from Keras's global seed.
            return keras.random.randint((num_rows,), 0, 2**31 - 1, dtype="int32")
        if not hold_ids(inputs):
            return ops.arange(num_rows, dtype="int32")
        ids = keras.tree.flatten(inputs)[0]
        hypotheses = ops.arange(self.num_hypotheses, dtype="int32")
        return ops.reshape(hash_rows(ids, pad_id)[:, None] + hypotheses, (-1,))

    def tables(self, inputs):
        tables = super().tables(inputs)
        if self.seed is None or not hold_ids(inputs):
            # Drawn here for the whole batch: sentences are searched in groups, and
            # compiled code on JAX cannot advance Keras's global seed.
            keys = ops.convert_to_numpy(self.random_keys(inputs, pad_id=None))
            tables["random_keys"] = keys.reshape(-1, self.num_hypotheses)
        return tables

    def with_tables(self, tables: dict):
        search = super().with_tables(tables)
        search._random_keys = tables.get("random_keys")
        return search

    def weigh(self, logits, largest_logit):
        """Turns logits into the probabilities of a draw, not normalised."""
        # Where all is forbidden, minus infinity less itself would be NaN.
        largest_logit = ops.maximum(largest_logit, np.finfo("float32").min)
        temperature = min(max(self.temperature, 1e-37), 1e37)  # as float32
        log_weights = (logits - largest_logit) / temperature
        weights = ops.exp(log_weights)
        if self.top_p is None:
            return weights
        return ops.where(in_nucleus(log_weights, weights, self.top_p), weights, 0.0)


def hold_ids(inputs):
    """Tells whether the first tensor of inputs holds ids of shape `(batch, length)`."""
    first = keras.tree.flatten(inputs)[0]
    is_integer = "int" in keras.backend.standardize_dtype(first.dtype)
    return is_integer and len(first.shape) == 2
