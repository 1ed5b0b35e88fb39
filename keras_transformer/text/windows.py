"""From plain text to the windows that a language model trains on."""

import itertools

import tensorflow as tf

from keras_transformer.text.epochs import (
    epoch_number,
    next_epoch,
    shuffled,
    training_data,
)
from keras_transformer.text.files import Paths, as_paths, read_lines, text_lines
from keras_transformer.text.tokenizer import SubwordTokenizer

# Documents tokenized in one go, and subwords held in memory to draw windows from.
_CHUNK_SIZE = 256
_SHUFFLE_BUFFER = 1 << 22


def language_dataset(
    files: Paths,
    tokenizer: SubwordTokenizer,
    length: int,
    batch_size: int = 32,
    shuffle: bool = True,
    seed: int = 0,
    initial_epoch: int = 0,
) -> tf.data.Dataset:
    """Reads plain text as batches of windows of one length.

    A line is a document; lines of white space are left out. The documents, each
    between a start and an end symbol, stand one after the other in one long row of
    subwords, which is cut into windows. The labels stand one place on: each subword
    of the row but the first is asked for once in an epoch. Padding fills up the last
    window and the last batch.

    Windows are streamed from the files; what memory it takes does not depend on how
    large these are. They are read through once beforehand: to find faults before
    training starts, and to count the batches of an epoch.

    Args:
        files: One path or several, plain or gzipped, one document a line.
        tokenizer: Tokenizer of the language.
        length: Subwords of a window.
        batch_size: Windows of a batch.
        shuffle: Whether each epoch has an order of its own. Windows of up to four
            million subwords are held in memory to draw from; within a window, and
            from one line to the next, the text goes on as it stands.
        seed: Seed of the orders.
        initial_epoch: Number of the first epoch; every pass goes on to the next one.
            The order of an epoch depends on its number and `seed` alone.

    Returns:
        A `tf.data.Dataset` of `(ids, labels)`, both int32 of shape
        `(batch_size, length)`, padded with 0, for `model.fit` of a `LanguageModel`.
        Its attribute `epoch` is that of `parallel_dataset`.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is faulty (the message names file and line) or holds no
            text, or a size is not positive.
    """
    for name, size in (("length", length), ("batch_size", batch_size)):
        if size < 1:
            raise ValueError(
                f"`{name}` must be a positive integer. Received: {name}={size}."
            )
    paths = as_paths(files)
    if not paths:
        raise ValueError("`files` must name a text file at least. Received: none.")
    num_subwords = sum(_count_subwords(path, tokenizer) for path in paths)
    num_windows = -(-(num_subwords - 1) // length)
    lines = text_lines(paths)

    def batches_of_pass(seed):
        rows = lines.batch(_CHUNK_SIZE).map(
            lambda texts: _row(texts, tokenizer), num_parallel_calls=tf.data.AUTOTUNE
        )
        windows = _windows(rows, length)
        if shuffle:
            windows = shuffled(windows, max(_SHUFFLE_BUFFER // length, 1), seed)
        return windows.batch(batch_size).map(lambda *batch: _fill(batch, batch_size))

    epoch = epoch_number(initial_epoch)
    batches = next_epoch(epoch, seed, batches_of_pass)
    return training_data(batches, -(-num_windows // batch_size), epoch)


def _count_subwords(path, tokenizer):
    """Reads a file once; returns the length of its row."""
    lines, count = read_lines(path), 0
    while chunk := list(itertools.islice(lines, _CHUNK_SIZE)):
        count += len(_row(chunk, tokenizer))
    if not count:
        raise ValueError(f"{path} holds no text. It must hold one document a line.")
    return count


def _row(texts, tokenizer):
    """Returns the documents one after the other, between symbols, `(length,)`."""
    ids = tokenizer(texts)
    ids = tf.ragged.boolean_mask(ids, ids.row_lengths() > 0)
    start, end = (
        tf.fill([ids.nrows(), 1], symbol)
        for symbol in (tokenizer.start_id, tokenizer.end_id)
    )
    return tf.concat([start, ids, end], axis=1).flat_values


def _windows(rows, length):
    """Cuts a row that comes in parts into windows and their labels, `(length,)`."""

    def cut(rest, row):
        row = tf.concat([rest, row], axis=0)
        count = tf.maximum(tf.size(row) - 1, 0) // length
        size = count * length
        ids, labels = (
            tf.reshape(part, [count, length])
            for part in (row[:size], row[1 : size + 1])
        )
        return row[size:], (ids, labels)

    # Padding brings out the last window, if it is not full.
    last = tf.data.Dataset.from_tensors(tf.zeros([length - 1], tf.int32))
    none = tf.zeros([0], tf.int32)
    return rows.concatenate(last).scan(none, cut).unbatch()


def _fill(batch, batch_size):
    """Adds windows of padding where there are too few."""
    missing = batch_size - tf.shape(batch[0])[0]
    return tuple(
        tf.ensure_shape(tf.pad(ids, [[0, missing], [0, 0]]), [batch_size, None])
        for ids in batch
    )
