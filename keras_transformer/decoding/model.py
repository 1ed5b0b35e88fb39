"""The interface that a search needs of a model: a step with a cache."""

from typing import Any


class CachedModel:
    """Base class of models that every search supports.

    All hypotheses of a sentence take a step together, as the queries of one attention
    over everything they have written to the cache so far.

    Subclasses have a `pad_id`, a `start_id` and an `end_id`, and implement `start` and
    `step`. Everything else has defaults.

    Attributes:
        max_positions: Maximum number of tokens of a source or target; None for no
            limit.
        seed_generator: Source of random draws without a seed; None for Keras's global
            seed.
    """

    pad_id: Any
    start_id: Any
    end_id: Any
    max_positions: int | None = None
    seed_generator: Any = None

    def start(self, inputs, num_hypotheses: int, max_length: int):
        """Reads the inputs once.

        Args:
            inputs: The model's inputs: a tensor or a nested structure of tensors,
                with the batch first.
            num_hypotheses: Number of hypotheses of each sentence.
            max_length: Positions that the cache must hold at first.

        Returns:
            `(context, cache)`, nested structures of tensors with the batch first.
            Steps read the context, such as the encoder's outputs or a prompt; they
            read and write the cache, whose shapes stay the same.
        """
        raise NotImplementedError

    def step(self, token_ids, context, cache, index, visible):
        """Reads one token of each hypothesis and scores its possible next tokens.

        Args:
            token_ids: Int32 tensor of shape `(batch, hypotheses)`: the last token of
                each hypothesis, initially `start_id`.
            context: As `start` returned it.
            cache: As `start` or the last `step` returned it.
            index: Positions of `token_ids`, int32 of shape `(batch,)`: sentences may
                have started at different times.
            visible: Boolean tensor of shape
                `(batch, hypotheses, positions, hypotheses)`, with as many positions as
                the cache holds: `visible[b, i, t, j]` says whether hypothesis `i` may
                see the entry of slot `j` at position `t`, including the current one.

        Returns:
            `(logits, cache)`: float32 logits of shape
            `(batch, hypotheses, vocabulary)`, and the cache including this step.
        """
        raise NotImplementedError

    def prepared_step(self):
        """Returns a function like `step`, with the work that all steps share done.

        It is called once, before a loop.
        """
        return self.step

    def likely_length(self, inputs) -> int | None:
        """Returns a length that most sequences do not exceed; None if unknown.

        Searches of many sentences start with a cache of this length.
        """
        return None

    def first_cache_length(self, max_length: int, num_hypotheses: int) -> int:
        """Returns the initial number of positions of the cache.

        A step reads the whole cache, so most steps are faster with a short one. If it
        is shorter than `max_length`, `lengthen` is called each time it is full.
        """
        return max_length

    def lengthen(self, cache, length: int):
        """Returns the cache with `length` positions."""
        raise NotImplementedError
