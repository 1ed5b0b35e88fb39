"""What every search shares: its contract with the model, and its result."""

from typing import NamedTuple, Protocol

import keras
from keras import ops

from keras_transformer.decoding.cache import visible_entries
from keras_transformer.decoding.configurable import (
    Configurable,
    deserialize_all,
    serialize_all,
)


class Hypotheses(NamedTuple):
    """What a search returns for each sentence, the best hypothesis first.

    Attributes:
        ids: Int32 tensor of shape `(batch, hypotheses, max_length)`, without
            the start symbol, with the end symbol where it was reached, and
            with the model's `pad_id` after it.
        scores: Float32 tensor of shape `(batch, hypotheses)`. Minus infinity
            marks a place for which no hypothesis was allowed.
    """

    ids: object
    scores: object


class CachedModel(Protocol):
    """What a model offers to be searched.

    A sentence is searched with `num_hypotheses` hypotheses, which are the
    queries of one attention over what all of them have written so far.
    """

    start_id: int
    end_id: int
    pad_id: int

    def start(self, inputs, num_hypotheses: int, max_length: int):
        """Reads the inputs once.

        Args:
            inputs: Whatever the model takes: tensors with the batch first.
            num_hypotheses: Hypotheses that each sentence will have.
            max_length: Positions that the cache must hold.

        Returns:
            `(memory, cache)`, nested structures of tensors. The memory holds
            what every step reads, one entry a sentence; the cache holds what
            steps write, and keeps its shapes.
        """

    def step(self, token_ids, memory, cache, index, visible):
        """Reads one token of each hypothesis.

        Args:
            token_ids: Int32 tensor of shape `(batch, hypotheses)`: the symbol
                before the one asked for, `start_id` at first.
            memory: As `start` returned it.
            cache: As the last call returned it.
            index: Scalar int32 position of `token_ids`.
            visible: Boolean tensor of shape
                `(batch, hypotheses, max_length, hypotheses)`:
                `visible[b, i, t, j]` says whether hypothesis `i` may see what
                slot `j` wrote at position `t`, the present one included.

        Returns:
            `(logits, cache)`; float32 logits of shape
            `(batch, hypotheses, vocabulary)`.
        """


class Search(Configurable):
    """Base of the searches: finds sequences that a model thinks likely.

    A search is called like a function, in eager mode or traced (`tf.function`
    with or without `jit_compile`, `jax.jit`). Its one loop ends as soon as
    every sentence has ended.

    What a hypothesis scores is the model's own log-probability of it. That
    `pad_id` is never produced, and what processors forbid, narrows the choice
    but leaves the probabilities of what remains as they were.

    Args:
        processors: `Processor`s, applied to the logits in this order.
    """

    def __init__(self, processors=()):
        self.processors = tuple(processors)

    def __call__(self, model: CachedModel, inputs, max_length: int) -> Hypotheses:
        """Searches, for each sentence, the best sequences.

        Args:
            model: A model that offers the cached step.
            inputs: What the model's `start` takes: a tensor or a nested
                structure of tensors, with the batch first.
            max_length: Most symbols of a sequence, the end symbol counted.

        Returns:
            `Hypotheses` of length `max_length`.

        Raises:
            ValueError: If `max_length` is not a positive integer.
        """
        if not isinstance(max_length, int) or max_length < 1:
            raise ValueError(
                "`max_length` must be a positive integer. "
                f"Received: max_length={max_length}."
            )
        return self.search(model, inputs, max_length)

    def search(self, model, inputs, max_length):
        raise NotImplementedError

    def get_config(self):
        return {"processors": serialize_all(self.processors)}

    @classmethod
    def from_config(cls, config):
        processors = deserialize_all(config.get("processors", ()))
        return cls(**{**config, "processors": processors})


def batch_size_of(inputs):
    """Returns the number of sentences, an integer or a scalar tensor."""
    return ops.shape(keras.tree.flatten(inputs)[0])[0]


def step_with(model, memory, processors):
    """Joins a model's step with the processors of its logits.

    Args:
        model: A model that offers the cached step.
        memory: The memory that `model.start` returned.
        processors: Functions that `Processor.bind` returned.

    Returns:
        A function of `(token_ids, ids, lineage, cache, index)` that returns
        `(logits, normalizer, cache)`: the processed logits of shape
        `(batch, hypotheses, vocabulary)`, and what to subtract from them, of
        shape `(batch, hypotheses, 1)`, to have log-probabilities. The
        normalizer is that of the model's own logits.
    """

    def step(token_ids, ids, lineage, cache, index):
        visible = visible_entries(lineage, index)
        logits, cache = model.step(token_ids, memory, cache, index, visible)
        logits = ops.cast(logits, "float32")
        normalizer = ops.logsumexp(logits, axis=-1, keepdims=True)
        for process in processors:
            logits = process(logits, ids, index)
        return logits, normalizer, cache

    return step
