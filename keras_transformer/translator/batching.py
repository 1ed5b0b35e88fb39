"""Which texts are searched or scored together, and how they are padded."""

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from keras_transformer.text import SubwordTokenizer

MIN_PADDED_LENGTH = 32  # of sources that are translated
MIN_SCORED_LENGTH = 16
POSITIONS_PER_SCORED_BATCH = 2048


class BatchingPolicy:
    """Decides which sources are searched together, and with which shapes.

    A source is padded to the next power of two, and to at least 32 subwords. Sources of
    one padded length are searched together, and it limits the length of their
    translations. So the translation of a text depends on that text alone, and few
    shapes are compiled.

    `Translator.translate` uses `groups`, and `Translator.score` uses `scored_batches`;
    an export uses the rest, TensorFlow ops, inside its graph. `max_positions` limits
    translations without `max_length`, otherwise twice as long as their source.
    """

    def __init__(
        self,
        max_source_length: int,
        max_length: int | None = None,
        tokenizer=SubwordTokenizer,
        max_positions: int | None = None,
    ):
        self._tokenizer = tokenizer
        self.source_lengths = [min(MIN_PADDED_LENGTH, max_source_length)]
        while (length := self.source_lengths[-1]) < max_source_length:
            self.source_lengths.append(min(2 * length, max_source_length))
        self.max_length = max_length
        self._max_positions = max_positions

    def target_length(self, source_length: int) -> int:
        """Returns the longest translation of sources of a padded length."""
        if self.max_length is not None:
            return self.max_length
        return min(2 * source_length, self._max_positions or 2 * source_length)

    def group_of(self, source_ids):
        """Returns the index in `source_lengths` of each source, or beyond if blank."""
        lengths = unpadded_lengths(source_ids, self._tokenizer)
        # Not by `tf.searchsorted`, which LiteRT lacks.
        is_longer = lengths[:, None] > tf.constant(self.source_lengths)
        groups = tf.reduce_sum(tf.cast(is_longer, tf.int32), axis=1)
        return tf.where(lengths > 0, groups, len(self.source_lengths))

    def groups(self, source_ids) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
        """Splits sources by their padded lengths, and leaves out blank ones.

        For each group it yields the rows of `source_ids`, longest first, so that the
        last ones searched end soon; their ids, of shape `(rows, padded_length)`; and
        the length of the longest translation.
        """
        lengths = unpadded_lengths(source_ids, self._tokenizer).numpy()
        order = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)]
        groups = np.searchsorted(self.source_lengths, lengths[order])
        for group in np.unique(groups):
            rows, length = order[groups == group], self.source_lengths[group]
            ids = self.pad(tf.gather(source_ids, rows), length)
            yield rows, ids.numpy(), self.target_length(length)

    def scored_batches(self, source_ids, labels):
        """Splits pairs of a source and a target into batches of few shapes.

        Both sides are padded to the power of two of the longer one, and to at least 16.
        A batch has a fixed number of rows, the last ones padding if necessary. It
        yields the rows of the pairs, and their ids on both sides.
        """
        longest = self.source_lengths[-1]
        limits = longest, self.target_length(longest)
        sides = [np.asarray(ids) for ids in (source_ids, labels)]
        pad_id = self._tokenizer.pad_id
        ends = [ids.shape[1] - (ids[:, ::-1] != pad_id).argmax(1) for ids in sides]
        longer = np.maximum(np.maximum(*ends), MIN_SCORED_LENGTH)
        padded = 2 ** np.ceil(np.log2(longer)).astype(int)
        for length in np.unique(padded):
            rows = np.flatnonzero(padded == length)
            batch_size = max(1, POSITIONS_PER_SCORED_BATCH // length)
            for start in range(0, len(rows), batch_size):
                batch = rows[start : start + batch_size]
                full = []
                for ids, limit in zip(sides, limits, strict=True):
                    shape = batch_size, min(length, limit)
                    full.append(np.full(shape, pad_id, "int32"))
                    full[-1][: len(batch), : ids.shape[1]] = ids[batch, : shape[1]]
                yield batch, full

    def pad(self, source_ids, length: int):
        """Pads rows to a length, or removes the padding beyond it."""
        padding = [[0, 0], [0, length]]
        pad_id = self._tokenizer.pad_id
        padded = tf.pad(source_ids, padding, constant_values=pad_id)[:, :length]
        return tf.ensure_shape(padded, [None, length])


def unpadded_lengths(source_ids, tokenizer=SubwordTokenizer):
    """Returns the length of each row up to its last id that is not padding.

    A blank row, which has no ids but padding and end tokens, has length 0.
    """
    is_pad = source_ids == tokenizer.pad_id
    is_blank = tf.reduce_all(is_pad | (source_ids == tokenizer.end_id), axis=1)
    ends = tf.range(1, tf.shape(source_ids)[1] + 1)
    ends = tf.where(is_pad | is_blank[:, None], 0, ends)
    # The additional zero is the largest of a row without ids.
    return tf.reduce_max(tf.pad(ends, [[0, 0], [0, 1]]), axis=1)
