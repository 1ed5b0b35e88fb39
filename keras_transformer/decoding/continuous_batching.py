"""Continuous batching: as sentences end, the next ones take their places."""

import functools

import keras
from keras import ops

from keras_transformer.decoding.search import Hypotheses, choose_rows, while_loop

# Sentences begin several at a time, once 1 / REFILL_DIVISOR of the places are free.
REFILL_DIVISOR = 4

map_tensors = functools.partial(keras.tree.map_structure, none_is_leaf=False)


def search_continuously(
    model, search, inputs, tables, count, limit, batch_size: int, max_length: int
) -> Hypotheses:
    """Searches many sentences, `batch_size` at a time.

    A batch takes as many steps as its longest sentence. Here a sentence that has
    ended leaves its place, and another one begins there, while the others continue:
    each place has its own position. The result of a sentence is that of a search of it
    alone.

    This is one loop of tensor operations, to be compiled as a whole.

    Args:
        model: A model that offers the cached step.
        search: A search, without the tables of its processors.
        inputs: The model's inputs.
        tables: As `Search.tables` returns them.
        count: How many sentences to search, the first ones: a positive integer or a
            scalar tensor.
        limit: Most tokens of a sequence, likewise, at most `max_length`.
        batch_size: Sentences to search at a time, at most as many as in `inputs`.
        max_length: Length of the results.

    Returns:
        `Hypotheses` of all sentences, undefined beyond the first `count`.
    """
    num_rows = ops.shape(keras.tree.flatten(inputs)[0])[0]
    num_refilled = max(batch_size // REFILL_DIVISOR, 1)
    step = model.prepared_step()

    def begin(rows):
        bound = search.with_tables(take(tables, rows))
        lengths = max_length, max_length, limit
        state = bound.begin(model, take(inputs, rows), *lengths)
        # Not carried through the loop: `advance` takes the inputs again.
        return state._replace(inputs=())

    def advance(state, rows, max_active):
        rows = ops.clip(rows, 0, num_rows - 1)
        bound = search.with_tables(take(tables, rows))
        state = state._replace(inputs=take(inputs, rows))
        state = bound.advance(model, step, state, max_length, max_active)
        return state._replace(inputs=())

    def is_active(state):
        return search.is_active(state.index, state.hypotheses)

    def is_unfinished(next_row, rows, state, found):
        return (next_row < count) | ops.any(is_active(state))

    def advance_and_refill(next_row, rows, state, found):
        max_active = ops.where(next_row < count, batch_size - num_refilled, 0)
        state = advance(state, rows, max_active)
        found = replace(found, rows, search.best(state.hypotheses))
        # While sentences are left, `advance` has left so many places free.
        is_free = ops.cast(~is_active(state), "int32")
        places = ops.cast(ops.top_k(is_free, num_refilled)[1], "int32")
        new_rows = next_row + ops.arange(num_refilled, dtype="int32")
        begins = new_rows < count
        new_state = begin(ops.clip(new_rows, 0, num_rows - 1))
        # A cache is empty at first, and `visible` hides what other sentences wrote.
        # Replacing it would take as long as several steps.
        old, cache = (rows, state._replace(cache=())), state.cache
        # A place in which no sentence begins keeps its content.
        new = new_rows, new_state._replace(cache=())
        new = choose_rows(begins, new, take(old, places))
        rows, state = replace(old, places, new)
        state = state._replace(cache=cache)
        return next_row + ops.sum(ops.cast(begins, "int32")), rows, state, found

    # At first all places are free. Only the shapes of this state of one sentence are
    # used, so the compiled program does not compute it.
    state = begin(ops.zeros((1,), dtype="int32"))
    found = zeros_like(search.best(state.hypotheses), num_rows + 1)
    state = zeros_like(state, batch_size)._replace(
        index=ops.full((batch_size,), max_length, dtype="int32")
    )
    rows = ops.full((batch_size,), num_rows, dtype="int32")  # that of no sentence
    next_row = ops.convert_to_tensor(0, dtype="int32")
    *_, found = while_loop(
        is_unfinished, advance_and_refill, (next_row, rows, state, found)
    )
    return Hypotheses(*(x[:num_rows] for x in found))


def zeros_like(structure, num_rows):
    """Returns zeros in the shapes of a nested structure, but with so many rows."""
    return map_tensors(
        lambda x: ops.zeros((num_rows, *ops.shape(x)[1:]), x.dtype), structure
    )


def take(structure, rows):
    """Takes rows of every tensor of a nested structure."""
    return map_tensors(lambda x: ops.take(x, rows, axis=0), structure)


def replace(structure, rows, new):
    """Replaces rows of every tensor of a nested structure."""
    return map_tensors(
        lambda x, y: ops.scatter_update(x, rows[:, None], y), structure, new
    )
