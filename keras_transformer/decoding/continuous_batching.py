"""Continuous batching: as sentences end, the next ones take their places."""

import functools

import keras
from keras import ops

from keras_transformer.decoding.search import Hypotheses, choose_rows, while_loop

# Sentences begin several at a time, once 1 / REFILL_DIVISOR of the places are free.
REFILL_DIVISOR = 8
# Once more than 1 / LONGER_DIVISOR of all sentences need a longer cache, it was the
# wrong one.
LONGER_DIVISOR = 8

map_tensors = functools.partial(keras.tree.map_structure, none_is_leaf=False)


def search_continuously(
    model,
    search,
    inputs,
    tables,
    count,
    limit,
    batch_size: int,
    max_length: int,
    cache_length: int,
):
    """Searches many sentences, `batch_size` at a time.

    A batch takes as many steps as its longest sentence. Here, when a sentence has
    ended, another one takes its place while the others continue: each place has its own
    position. A sentence gets the same result as when searched alone.

    This is one loop of tensor operations, to be compiled as a whole.

    Args:
        model: A model that offers the cached step.
        search: A search, without the tables of its processors.
        inputs: The model's inputs.
        tables: As `Search.tables` returns them.
        count: Number of sentences to search, from the first one: a positive integer or
            a scalar tensor.
        limit: Maximum number of tokens per sequence, at most `max_length`.
        batch_size: Sentences to search at a time, at most as many as in `inputs`.
        max_length: Length of the results.
        cache_length: Positions of the cache, which every step reads. A sentence that
            needs more leaves its place.

    Returns:
        `Hypotheses` of all sentences, undefined beyond the first `count`; and which
        of them are final, a boolean tensor. The others need a longer cache, or did not
        begin because many others did.
    """
    num_rows = ops.shape(keras.tree.flatten(inputs)[0])[0]
    num_refilled = max(batch_size // REFILL_DIVISOR, 1)
    step = model.prepared_step()

    def begin(rows):
        bound = search.with_tables(take(tables, rows))
        lengths = max_length, cache_length, limit
        state = bound.begin(model, take(inputs, rows), *lengths)
        # Not carried through the loop: `advance` takes the inputs again.
        return state._replace(inputs=())

    def advance(state, rows, max_active):
        rows = ops.clip(rows, 0, num_rows - 1)
        bound = search.with_tables(take(tables, rows))
        state = state._replace(inputs=take(inputs, rows))
        state = bound.advance(model, step, state, cache_length, max_active)
        is_longer = is_active(state) & (state.index >= cache_length)
        live, finished = state.hypotheses
        live = live._replace(limits=ops.where(is_longer, 0, live.limits))
        # A sentence that overflowed leaves nothing to the next one in its place.
        cache = map_tensors(finite, state.cache)
        state = state._replace(inputs=(), hypotheses=(live, finished), cache=cache)
        return state, ops.sum(ops.cast(is_longer, "int32"))

    def is_active(state):
        return search.is_active(state.index, state.hypotheses)

    def best(state):
        is_final = ~is_active(state) & (state.hypotheses[0].limits > 0)
        return search.best(state.hypotheses), is_final

    def is_unfinished(next_row, num_longer, rows, state, found):
        is_left = (next_row < count) | ops.any(is_active(state))
        return is_left & (LONGER_DIVISOR * num_longer <= count)

    def advance_and_refill(next_row, num_longer, rows, state, found):
        max_active = ops.where(next_row < count, batch_size - num_refilled, 0)
        state, longer = advance(state, rows, max_active)
        found = replace(found, rows, best(state))
        # The first of these places are free.
        is_free = ops.cast(~is_active(state), "int32")
        is_free, places = ops.top_k(is_free, num_refilled)
        places = ops.cast(places, "int32")
        new_rows = next_row + ops.arange(num_refilled, dtype="int32")
        begins = (new_rows < count) & (is_free > 0)
        new_state = begin(ops.clip(new_rows, 0, num_rows - 1))
        # A cache is empty at first, and `visible` hides what other sentences wrote.
        # Replacing it would copy the whole cache.
        old, cache = (rows, state._replace(cache=())), state.cache
        # A place in which no sentence begins keeps its content.
        new = new_rows, new_state._replace(cache=())
        new = choose_rows(begins, new, take(old, places))
        rows, state = replace(old, places, new)
        state = state._replace(cache=cache)
        # Not `+=`: PyTorch adds in place, and both numbers begin as one tensor.
        next_row = next_row + ops.sum(ops.cast(begins, "int32"))
        return next_row, num_longer + longer, rows, state, found

    # At first all places are free. Only the shapes of this state of one sentence are
    # used, so the compiled program does not compute it.
    state = begin(ops.zeros((1,), dtype="int32"))
    found = zeros_like(best(state), num_rows + 1)
    state = zeros_like(state, batch_size)._replace(
        index=ops.full((batch_size,), max_length, dtype="int32")
    )
    rows = ops.full((batch_size,), num_rows, dtype="int32")  # no sentence's row
    none = ops.convert_to_tensor(0, dtype="int32")
    *_, (found, is_final) = while_loop(
        is_unfinished, advance_and_refill, (none, none, rows, state, found)
    )
    return Hypotheses(*(x[:num_rows] for x in found)), is_final[:num_rows]


def zeros_like(structure, num_rows):
    """Returns zeros shaped like a nested structure, with `num_rows` rows."""
    return map_tensors(
        lambda x: ops.zeros((num_rows, *ops.shape(x)[1:]), x.dtype), structure
    )


def finite(x):
    """Returns a tensor with zeros for NaN and infinity."""
    is_float = keras.backend.is_float_dtype(keras.backend.standardize_dtype(x.dtype))
    return ops.where(ops.isfinite(x), x, 0) if is_float else x


def take(structure, rows):
    """Takes rows of every tensor of a nested structure."""
    return map_tensors(lambda x: ops.take(x, rows, axis=0), structure)


def replace(structure, rows, new):
    """Replaces rows of every tensor of a nested structure."""
    return map_tensors(
        lambda x, y: ops.scatter_update(x, rows[:, None], y), structure, new
    )
