"""Sampling: tokens drawn from the model's full or truncated distribution."""

from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer.checks import check_positive_integers, is_finite_number
from keras_transformer.decoding.greedy import GreedySearch
from keras_transformer.decoding.processors import Processor, forbid, vocabulary_of
from keras_transformer.decoding.search import power_of_two
from keras_transformer.kernels.random import draw, hash_rows, uniforms
from keras_transformer.kernels.selection import in_nucleus, take_one
from keras_transformer.layers.cache import read_position


@keras.saving.register_keras_serializable(package="keras_transformer")
class Sampling(GreedySearch):
    """Draws every token from the model's distribution.

    Logits are divided by `temperature`; then only the `top_k` largest are kept; then
    only the likeliest that hold `top_p` of the remaining probability. The hypotheses of
    a sentence are drawn independently: two may be equal. The score is the
    log-probability of the sequence, including the end token, under the model's own
    distribution; there is no length penalty. If no token is allowed, a hypothesis
    stops, with a score of minus infinity.

    With a `seed`, a sentence gets the same draws in every call and in any
    batch: live, compiled and exported. (An export needs a seed.) Its draws then depend
        on the ids in the first tensor of the model's inputs, except padding, so equal
        sentences have equal draws; if that tensor does not hold ids of shape
        `(batch, length)`, they depend on the sentence's index in the batch. Without a
        seed, all draws differ, and continue from Keras's global seed.

    Args:
        temperature: Divisor of the logits; 0 gives greedy search.
        top_k: Number of tokens to draw from; `None` for all.
        top_p: Probability to draw from, in `(0, 1]`: the smallest set of tokens that
            holds it, and any as likely as the last of them; `None` for all.
        seed: Integer of at least 0 that makes draws repeatable, or `None`.
        num_hypotheses: Number of hypotheses to draw for each sentence.
        processors: Sequence of `Processor`, applied in this order, before the
            temperature.
        end_ids: Id or ids that end a sequence, whichever comes first; by default
            the model's `end_id`.

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
    ):
        super().__init__(processors, end_ids)
        check_positive_integers(num_hypotheses=num_hypotheses)
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
        self.is_random = self.temperature > 0
        self.top_k = top_k
        self.top_p = None if top_p is None else float(top_p)
        self.seed = None if seed is None else int(seed)
        self.num_hypotheses = self.num_slots = int(num_hypotheses)
        self.num_candidates = 1 if top_k is None else top_k
        self._random_numbers: Any = None

    def choose(self, tokens, index, random_numbers, pad_id: int):
        if not self.is_random:
            return super().choose(tokens, index, random_numbers, pad_id)
        ids, logits = tokens.best_ids, tokens.best_logits
        if self.top_k is None:
            is_padding = vocabulary_of(tokens.logits) == pad_id
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

    def weigh(self, logits, largest_logit):
        """Turns logits into unnormalized probabilities of a draw."""
        # Where all is forbidden, minus infinity less itself would be NaN.
        largest_logit = ops.maximum(largest_logit, np.finfo("float32").min)
        temperature = min(max(self.temperature, 1e-37), 1e37)  # as float32
        log_weights = (logits - largest_logit) / temperature
        weights = ops.exp(log_weights)
        if self.top_p is None:
            return weights
        return ops.where(in_nucleus(log_weights, weights, self.top_p), weights, 0.0)

    def random_numbers(self, model, inputs, max_length: int):
        """As in `GreedySearch`. One number decides on a token, of any vocabulary."""
        if not self.is_random:
            return ()
        if self._random_numbers is not None:
            return self._random_numbers
        ids = keras.tree.flatten(inputs)[0]
        num_rows = ops.shape(ids)[0] * self.num_hypotheses
        is_integer = "int" in keras.backend.standardize_dtype(ids.dtype)
        if self.seed is None:
            keys = keras.random.randint(
                (num_rows,), 0, 2**31 - 1, dtype="int32", seed=model.seed_generator
            )
        elif is_integer and len(ids.shape) == 2:
            hypotheses = ops.arange(self.num_hypotheses, dtype="int32")
            hashes = hash_rows(ids, model.pad_id)
            keys = ops.reshape(hashes[:, None] + hypotheses, (-1,))
        else:
            keys = ops.arange(num_rows, dtype="int32")
        numbers = ops.transpose(uniforms(max_length, keys, self.seed or 0))
        return ops.reshape(numbers, (-1, self.num_hypotheses, max_length))

    def tables(self, model, inputs, max_length: int):
        tables = super().tables(model, inputs, max_length)
        if self.is_random:
            # Drawn here for the whole batch: sentences are searched in groups, and
            # compiled code on JAX cannot advance Keras's global seed.
            numbers = self.random_numbers(model, inputs, power_of_two(max_length))
            tables["random_numbers"] = ops.convert_to_numpy(numbers)
        return tables

    def with_tables(self, tables: dict):
        search = super().with_tables(tables)
        if "random_numbers" in tables:
            search.seed = None  # the same program serves other seeds
            search._random_numbers = tables["random_numbers"]
        return search
