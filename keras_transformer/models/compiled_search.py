"""A search that is compiled, and drops the sentences that have ended."""

import keras
import numpy as np
from keras import ops

from keras_transformer.decoding.search import batch_size_of

SHARE = 8  # An eighth of the sentences is worth a batch of its own.


class CompiledSearch:
    """A search of a model, compiled when it is first called.

    A batch takes as many steps as its longest sentence. Once the others have
    ended, the last eighth goes on by itself, with its part of the memory and of
    the cache, so that a sentence which ends early costs nothing afterwards.
    That second part is compiled when it pays: when sentences that had ended
    have taken as long as some batches do. A batch whose sentences end together
    is searched in one go, and so is one of less than 8.

    This is the work of the caller of a search: where a search is part of a
    graph, such as an export, all sentences go on until the last has ended.

    Args:
        model: A model that offers the cached step.
        search: A search, without the tables of its processors.
        max_length: Most symbols of a sequence, the end symbol counted.
        patience: Batches, in whose time the second part is compiled, about.
    """

    def __init__(self, model, search, max_length: int, patience: float = 4.0):
        self._begin = _Part(model, search, max_length)
        self._go_on = _Part(model, search)
        self._pad_id = model.pad_id
        self._patience = patience
        self._wasted = 0.0  # The time of sentences that had ended, in batches.

    def __call__(self, inputs, tables):
        """Finds the best sequences for each sentence.

        Args:
            inputs: What the model's `start` takes.
            tables: What the search's processors know of each sentence, as
                `Search.tables` returns it.

        Returns:
            The ids and scores of `Hypotheses`, NumPy arrays.
        """
        few = batch_size_of(inputs) // SHARE
        most_open = few if self._wasted >= self._patience else 0
        found = self._begin.predict_on_batch((inputs, tables, np.int32(most_open)))
        ids, scores = found["hypotheses"]
        if found["is_open"].any():
            rows = found["rows"]
            found = self._go_on.predict_on_batch((*found["rest"], np.int32(0)))
            ids[rows], scores[rows] = found["hypotheses"]
        elif few:
            lengths = np.count_nonzero(ids != self._pad_id, axis=-1).max(axis=1)
            lengths.sort()
            self._wasted += 1 - lengths[-1 - few] / max(lengths[-1], 1)
        return ids, scores


class _Part(keras.Model):
    """Steps of a search as a Keras model: `predict_on_batch` compiles anywhere."""

    def __init__(self, model, search, max_length=None):
        super().__init__(name="search", autocast=False)
        self.model = model
        self.search = search
        self.max_length = max_length  # None where the search has begun.
        self.compile(jit_compile=model.jit_compile if model.compiled else "auto")

    def call(self, given):
        state, tables, most_open = given
        search = self.search.with_tables(tables)
        if self.max_length is not None:  # No state yet, but inputs.
            state = search.begin(self.model, state, self.max_length)
        state = search.advance(self.model, state, most_open)
        is_open = search.is_open(state.index, state.hypotheses)
        # First those that are open, then others for want of them.
        few = batch_size_of(state.inputs) // SHARE
        rows = ops.argsort(ops.where(is_open, 0, 1))[:few]
        rest, tables = keras.tree.map_structure(
            lambda x: ops.take(x, rows, axis=0), (state._replace(index=()), tables)
        )
        return {
            "hypotheses": tuple(search.best(state.hypotheses)),
            "is_open": is_open,
            "rows": rows,
            "rest": (rest._replace(index=state.index), tables),
        }
