"""Training data for language models: plain text cut into windows of equal length."""

import tensorflow as tf

from keras_transformer.checks import check_positive_integers
from keras_transformer.text.buckets import pad_rows
from keras_transformer.text.encoding import add_start_and_end
from keras_transformer.text.epochs import numbered_epochs, shuffled
from keras_transformer.text.tokenizer import Tokenizer, check_tokenizer
from keras_transformer.text_files import (
    Files,
    as_files,
    chunks_of,
    read_lines,
    text_lines,
)

_DOCUMENTS_PER_CHUNK = 256  # tokenized together
_SHUFFLE_BUFFER_TOKENS = 1 << 22


def language_dataset(
    files: Files,
    tokenizer: Tokenizer,
    length: int,
    batch_size: int = 32,
    shuffle: bool = True,
    seed: int = 0,
    initial_epoch: int = 0,
) -> tf.data.Dataset:
    """Reads plain text as batches of windows of equal length.

    A line is a document; blank lines are skipped. The documents, each between a start
    and an end token, form one long sequence of subwords, which is cut into windows. The
    labels are shifted by one: each subword of the sequence except the first is a label
    once per epoch. Padding fills up the last window and the last batch.

    Like `parallel_dataset`, it streams the files, reads them once beforehand, and
    numbers its epochs, so interrupted training continues with the same batches.

    Args:
        files: One path or several, plain or gzipped, with one document per line.
        tokenizer: Tokenizer of the language.
        length: Number of subwords in a window.
        batch_size: Number of windows in a batch.
        shuffle: Whether each epoch has its own order of windows, which are drawn from
            a buffer of up to four million subwords.
        seed: Seed of the orders.
        initial_epoch: Number of the first epoch. It and `seed` determine the order.

    Returns:
        A `tf.data.Dataset` of `(ids, labels)`, both int32 of shape
        `(batch_size, length)`, padded, for `model.fit` of a `LanguageModel`.
        Its attributes `epoch` and `batch` are as in `parallel_dataset`.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file has an error (the message names file and line) or no text,
            or if `length` or `batch_size` is not positive.
    """
    check_positive_integers(length=length, batch_size=batch_size)
    check_tokenizer("tokenizer", tokenizer)
    paths = as_files(files)
    if not paths:
        raise ValueError("`files` must name at least one text file. Received: none.")
    pad_id = tokenizer.pad_id
    num_labels = sum(_count_subwords(path, tokenizer) for path in paths) - 1
    num_batches = -(-num_labels // (length * batch_size))
    lines = text_lines(paths)

    def read_windows(seed):
        sequences = lines.batch(_DOCUMENTS_PER_CHUNK).map(
            lambda texts: _concatenated(texts, tokenizer),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
        windows = _cut_into_windows(sequences, length, pad_id)
        buffer_size = max(_SHUFFLE_BUFFER_TOKENS // length, 1)
        return shuffled(windows, buffer_size, seed) if shuffle else windows

    def fill_batch(*batch):
        filled = (pad_rows(ids, batch_size, pad_id) for ids in batch)
        return tuple(tf.ensure_shape(ids, (batch_size, length)) for ids in filled)

    def make_batches(windows):
        return windows.batch(batch_size).map(fill_batch)

    return numbered_epochs(read_windows, make_batches, num_batches, seed, initial_epoch)


def _count_subwords(path, tokenizer):
    """Reads a file once; returns its number of subwords, start and end included."""
    chunks = chunks_of(read_lines(path), _DOCUMENTS_PER_CHUNK)
    count = sum(len(_concatenated(chunk, tokenizer)) for chunk in chunks)
    if not count:
        raise ValueError(f"{path} holds no text. It must hold one document per line.")
    return count


def _concatenated(texts, tokenizer):
    """Returns all documents as `(subwords,)`, each with start and end token."""
    ids = tokenizer(texts)
    ids = tf.ragged.boolean_mask(ids, ids.row_lengths() > 0)
    return add_start_and_end(ids, tokenizer, start=True, end=True).flat_values


def _cut_into_windows(sequences, length, pad_id):
    """Joins sequences of ids and cuts them into `(ids, labels)`, each `(length,)`."""

    def cut(rest, ids):
        ids = tf.concat([rest, ids], axis=0)
        count = tf.maximum(tf.size(ids) - 1, 0) // length
        end, shape = count * length, [count, length]
        windows = tf.reshape(ids[:end], shape), tf.reshape(ids[1 : end + 1], shape)
        return ids[end:], windows

    # Padding completes the last window.
    padding = tf.data.Dataset.from_tensors(tf.fill([length - 1], pad_id))
    nothing = tf.zeros([0], tf.int32)
    return sequences.concatenate(padding).scan(nothing, cut).unbatch()
