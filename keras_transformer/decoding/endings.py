"""What ends a hypothesis: an end token, or a stop string in its text."""

import functools
import operator

import numpy as np

from keras_transformer.decoding.stop_strings import StopStrings


class SearchedModel:
    """A model together with what ends a sequence in a search.

    All other attributes are those of the model.

    Args:
        model: A model that offers the cached step.
        end_ids: Ids that end a sequence; the model's `end_id` if None.
        stop_strings: `StopStrings` or None.
    """

    def __init__(self, model, end_ids: tuple[int, ...] | None, stop_strings=None):
        self._model = model
        self.end_ids = (model.end_id,) if end_ids is None else end_ids
        self.stop_strings = stop_strings

    def __getattr__(self, name):
        return getattr(self._model, name)

    def first_stop_states(self, shape):
        """Returns the states of `StopStrings` before the first token, () if None."""
        if self.stop_strings is None:
            return ()
        return self.stop_strings.first_states(shape)

    def read(self, stop_states, token_ids):
        """Reads one more token of each hypothesis.

        Args:
            stop_states: As `first_stop_states` or the last `read` returned it.
            token_ids: The tokens, int32 of the same shape.

        Returns:
            The new states, and whether the token ends the sequence.
        """
        is_one = [token_ids == end_id for end_id in self.end_ids]
        is_end = functools.reduce(operator.or_, is_one)
        if self.stop_strings is None:
            return (), is_end
        stop_states = self.stop_strings.read(stop_states, token_ids)
        return stop_states, is_end | self.stop_strings.is_complete(stop_states)


def check_end_ids(end_ids) -> tuple[int, ...] | None:
    """Returns end tokens in ascending order, or None if None are given.

    Args:
        end_ids: An integer, a sequence of integers or None.

    Raises:
        ValueError: If there are no ids, or they are not ids.
    """
    if end_ids is None:
        return None
    ids = [end_ids] if np.ndim(end_ids) == 0 else list(end_ids)
    if not ids or any(not isinstance(one, (int, np.integer)) or one < 0 for one in ids):
        raise ValueError(
            "`end_ids` must be one id of the vocabulary, or several. "
            f"Received: end_ids={end_ids}."
        )
    return tuple(sorted({int(one) for one in ids}))


def check_stop_strings(stop_strings) -> StopStrings | None:
    """Returns stop strings; raises `ValueError` unless they are `StopStrings`."""
    if not isinstance(stop_strings, StopStrings | None):
        raise ValueError(
            "`stop_strings` must be `StopStrings`, as the target tokenizer's method "
            f"`stop_strings` returns them. Received: stop_strings={stop_strings!r}."
        )
    return stop_strings
