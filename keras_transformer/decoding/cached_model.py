"""The contract between a search and the model that it searches."""

import math
from typing import Protocol

import keras
from keras import ops

# With at most this many entries, of all sentences together, a shorter cache saves
# nothing.
MAX_ENTRIES_OF_ONE_LENGTH = 2048


class CachedModel(Protocol):
    """What a model must offer to be searched.

    All hypotheses of a sentence take a step together, as the queries of one
    attention over everything that they have written into the cache so far.

    Three methods are optional. `prepared_step()` does the work that all steps
    share and returns a function like `step`; it is called once, before a loop.
    `cache_lengths(max_length, num_hypotheses)` returns the lengths that the cache
    grows through, so that no step reads a cache that is mostly empty;
    `lengthen(cache, length)` returns the cache with that many positions.
    """

    start_id: int
    end_id: int
    pad_id: int

    def start(self, inputs, num_hypotheses: int, max_length: int):
        """Reads the inputs once.

        Args:
            inputs: The model's inputs: a tensor or a nested structure of tensors,
                with the batch first.
            num_hypotheses: Hypotheses of each sentence.
            max_length: Positions that the cache must hold at first.

        Returns:
            `(memory, cache)`, nested structures of tensors with the batch
            first. Steps read the memory; they read and write the cache, whose
            shapes stay the same.
        """

    def step(self, token_ids, memory, cache, index, visible):
        """Reads one token of each hypothesis and scores those that may follow.

        Args:
            token_ids: Int32 tensor of shape `(batch, hypotheses)`: the last
                token of each hypothesis, `start_id` at first.
            memory: As `start` returned it.
            cache: As `start` or the last `step` returned it.
            index: Positions of `token_ids`, int32 of shape `(batch,)`: sentences may
                have begun at different times.
            visible: Boolean tensor of shape
                `(batch, hypotheses, positions, hypotheses)`, with as many
                positions as the cache holds: `visible[b, i, t, j]` says whether
                hypothesis `i` may see what slot `j` wrote at position `t`, the
                present one included.

        Returns:
            `(logits, cache)`: float32 logits of shape
            `(batch, hypotheses, vocabulary)`, and the cache with this step in.
        """


def cache_lengths(
    model, max_length: int, num_hypotheses: int, num_sentences: int | None
) -> list[int]:
    """Returns the one or two lengths of a model's cache in a search.

    The last one is `max_length`. `num_sentences` is None where a trace does not know
    it.
    """
    num_entries = (num_sentences or math.inf) * num_hypotheses * max_length
    if num_entries <= MAX_ENTRIES_OF_ONE_LENGTH or not hasattr(model, "cache_lengths"):
        return [max_length]
    # Two lengths at most: a graph holds the steps of each, taken or not.
    return model.cache_lengths(max_length, num_hypotheses)[-2:]


def batch_size_of(inputs):
    """Returns the number of sentences, an integer or a scalar tensor."""
    return ops.shape(keras.tree.flatten(inputs)[0])[0]
