"""What ends a hypothesis: one of several end tokens."""

import functools
import operator

import numpy as np


class SearchedModel:
    """A model together with what ends a sequence in a search.

    All other attributes are those of the model.

    Args:
        model: A model that offers the cached step.
        end_ids: Ids that end a sequence; the model's `end_id` if None.
    """

    def __init__(self, model, end_ids: tuple[int, ...] | None):
        self._model = model
        self.end_ids = (model.end_id,) if end_ids is None else end_ids

    def __getattr__(self, name):
        return getattr(self._model, name)


def ends_with(token_ids, end_ids):
    """Tells which tokens are one of `end_ids`."""
    return functools.reduce(operator.or_, [token_ids == one for one in end_ids])


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
