"""What every search shares: its contract with the model, and its result."""

from typing import NamedTuple, Protocol

import keras
from keras import ops

from keras_transformer.decoding.configurable import Configurable


class Hypotheses(NamedTuple):
    """What a search returns for each sentence, the best hypothesis first.

    Attributes:
        ids: Int32 tensor of shape `(batch, hypotheses, max_length)`, without
            the start symbol, with the end symbol where it was reached, and
            with the model's `pad_id` after it.
        scores: Float32 tensor of shape `(batch, hypotheses)`. Minus infinity
            says that there is no such hypothesis.
    """

    ids: object
    scores: object


class CachedModel(Protocol):
    """What a model offers to be searched.

    All hypotheses of a sentence take a step together, as the queries of one
    attention over what they all have written into the cache so far.
    """

    start_id: int
    end_id: int
    pad_id: int

    def start(self, inputs, num_hypotheses: int, max_length: int):
        """Reads the inputs once.

        Args:
            inputs: Whatever the model takes: a tensor or a nested structure of
                tensors, with the batch first.
            num_hypotheses: Hypotheses that each sentence will have.
            max_length: Positions that the cache must hold.

        Returns:
            `(memory, cache)`, nested structures of tensors. The memory holds
            what every step reads, one entry a sentence; the cache holds what
            steps write, and keeps its shapes.
        """

    def step(self, token_ids, memory, cache, index, visible):
        """Reads one symbol of each hypothesis.

        Args:
            token_ids: Int32 tensor of shape `(batch, hypotheses)`: the symbol
                before the one asked for, `start_id` at first.
            memory: As `start` returned it.
            cache: As `start` or the last `step` returned it.
            index: Scalar int32 position of `token_ids`.
            visible: Boolean tensor of shape
                `(batch, hypotheses, max_length, hypotheses)`:
                `visible[b, i, t, j]` says whether hypothesis `i` may see what
                slot `j` wrote at position `t`, the present one included.

        Returns:
            `(logits, cache)`: float32 logits of shape
            `(batch, hypotheses, vocabulary)`, and the cache with this step in.
        """


class Search(Configurable):
    """Base of the searches: finds sequences that a model thinks likely.

    A search is called like a function, eagerly or traced (`tf.function`, with
    or without `jit_compile`; `jax.jit`). Its one loop ends as soon as every
    sentence has ended. It never produces the model's `pad_id`.

    Scores are made of the model's own log-probabilities. What is forbidden
    narrows the choice, but what remains keeps its probability.

    Args:
        processors: Sequence of `Processor`, applied in this order.
    """

    def __init__(self, processors=()):
        self.processors = tuple(processors)

    def __call__(self, model: CachedModel, inputs, max_length: int) -> Hypotheses:
        """Finds the best sequences for each sentence.

        Args:
            model: A model that offers the cached step.
            inputs: What the model's `start` takes.
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
        serialize = keras.saving.serialize_keras_object
        return {"processors": [serialize(one) for one in self.processors]}

    @classmethod
    def from_config(cls, config):
        deserialize = keras.saving.deserialize_keras_object
        processors = [deserialize(one) for one in config.get("processors", ())]
        return cls(**{**config, "processors": processors})


def batch_size_of(inputs):
    """Returns the number of sentences, an integer or a scalar tensor."""
    return ops.shape(keras.tree.flatten(inputs)[0])[0]
