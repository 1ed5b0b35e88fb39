"""Constraints: processors that require certain tokens in a sequence."""

import operator

import keras
import numpy as np
from keras import ops

from keras_transformer.decoding.processors import Processor, forbid, vocabulary_of
from keras_transformer.decoding.search import power_of_two


@keras.saving.register_keras_serializable(package="keras_transformer")
class ForcedPrefix(Processor):
    """Forces the first tokens of every hypothesis.

    No other processor may forbid the forced tokens. Where an id is negative or the
    model's `pad_id`, any token is allowed.

    `model.generate` passes the ids to its compiled program as an input, padded to a
    power of two, so the same program serves any prefixes.

    Args:
        ids: One sequence of ids for all sentences, or one for each sentence, of any
            lengths, such as `tokenizer(texts)`. In traced functions, an integer tensor
            of shape `(batch, length)`.
        is_scored: Whether scores include the forced tokens. If not, they count with a
            probability of one, as in Hugging Face's transformers; in this case, list
            the processor first.

    Raises:
        ValueError: If `ids` are not integers in such a form; when bound, if the numbers
            of sequences and sentences differ.

    Example:
        >>> kt.decoding.ForcedPrefix([[7, 5], [11]])
        ForcedPrefix(ids=((7, 5), (11,)), is_scored=True)
    """

    def __init__(self, ids, is_scored: bool = True):
        self.is_scored = is_scored
        if hasattr(ids, "to_list"):  # a ragged tensor: padding it would force padding
            ids = ids.to_list()
        self.ids = ids if ops.is_tensor(ids) else _to_tuples(ids)
        if ops.is_tensor(ids) and (
            len(ids.shape) != 2
            or "int" not in keras.backend.standardize_dtype(ids.dtype)
        ):
            raise ValueError(
                "`ids` must be an integer tensor of shape (batch, length). "
                f"Received: ids={ids}."
            )

    @property
    def num_sequences(self):
        """Number of sequences: 1 for a sequence shared by all sentences."""
        is_one = not ops.is_tensor(self.ids) and not isinstance(self.ids[0], tuple)
        return 1 if is_one else len(self.ids)

    def bind(self, model, inputs, end_ids: tuple[int, ...]):
        table = ops.cast(self._rows(), "int32")
        _check_num_sequences(table.shape[0], keras.tree.flatten(inputs)[0].shape[0])
        table = ops.where(table == model.pad_id, -1, table)[:, None]
        columns = ops.arange(ops.shape(table)[2], dtype="int32")

        def process(logits, ids, index):
            at_index = ops.where(columns == index, table, -1)
            forced_ids = ops.max(at_index, axis=-1, keepdims=True)
            applies = forced_ids >= 0
            others = ops.not_equal(vocabulary_of(logits), forced_ids)
            if not self.is_scored:
                certain = ops.logsumexp(logits, axis=-1, keepdims=True)
                logits = ops.where(applies & ~others, certain, logits)
            return forbid(logits, applies & others)

        return process

    def named_ids(self):
        return ops.convert_to_numpy(self._rows()).clip(0).flatten()  # free if negative

    def table(self, num_sentences: int):
        ids = ops.convert_to_numpy(self._rows())
        _check_num_sequences(len(ids), num_sentences)
        length = ids.shape[1]
        table = np.full((num_sentences, power_of_two(length)), -1, "int32")
        table[:, :length] = ids
        return table

    def with_table(self, table):
        return ForcedPrefix([-1] if table is None else table, self.is_scored)

    def _rows(self):
        """Returns the ids as a table `(sequences, length)`, padded with -1."""
        if ops.is_tensor(self.ids):
            return self.ids
        rows = self.ids if isinstance(self.ids[0], tuple) else [self.ids]
        table = np.full((len(rows), max(1, *map(len, rows))), -1)
        for row, values in zip(table, rows, strict=True):
            row[: len(values)] = values
        return table


def _to_tuples(ids):
    """Returns one tuple of integers, or a tuple of such tuples."""
    try:
        is_one = np.ndim(ids[0]) == 0
        rows = [ids] if is_one else ids
        rows = tuple(tuple(map(operator.index, row)) for row in rows)
    except (TypeError, ValueError, IndexError):
        raise ValueError(
            "`ids` must be a sequence of integers, or one for each sentence. "
            f"Received: ids={ids}."
        ) from None
    return rows[0] if is_one else rows


def _check_num_sequences(num_sequences, num_sentences):
    """Raises `ValueError` unless there is one sequence, or one for each sentence."""
    is_known = None not in (num_sequences, num_sentences)
    if is_known and num_sequences not in (1, num_sentences):
        raise ValueError(
            "`ids` must be one sequence, or one for each sentence. "
            f"Received: {num_sequences} sequences for {num_sentences} sentences."
        )
