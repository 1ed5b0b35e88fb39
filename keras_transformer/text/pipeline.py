"""From two text files to the batches that a translation model trains on."""

import itertools
import warnings
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from keras_transformer.text.buckets import (
    batch_by_bucket,
    bucket_lengths,
    check_buckets,
    rows_per_batch,
)
from keras_transformer.text.epochs import (
    ENDLESS,
    epoch_number,
    next_epoch,
    shuffled,
    training_data,
)
from keras_transformer.text.files import Paths, read_pairs, text_lines
from keras_transformer.text.tokenizer import SubwordTokenizer

# Pairs tokenized in one go, and pairs held in memory to draw from when shuffling.
_CHUNK_SIZE = 1024
_SHUFFLE_BUFFER = 1 << 16


def parallel_dataset(
    source_files: Paths,
    target_files: Paths,
    source_tokenizer: SubwordTokenizer,
    target_tokenizer: SubwordTokenizer,
    tokens_per_batch: int = 4096,
    max_length: int = 64,
    buckets: Sequence[int] | None = None,
    shuffle: bool = True,
    seed: int = 0,
    initial_epoch: int = 0,
    sampling: float = 0.0,
) -> tf.data.Dataset:
    """Reads parallel text as batches of a fixed, small set of shapes.

    Sentences are tokenized, grouped by length into buckets and padded to the
    bucket's length, the same for source and target. Every batch of a bucket has one
    shape: the last is filled up with rows of padding. A pass over the dataset is one
    epoch. It is streamed from the files; what memory it takes does not depend on how
    large they are.

    Both files are read through once beforehand: to find faults before training
    starts, and to count the batches of an epoch.

    Args:
        source_files: One path or several, plain or gzipped, one sentence a line.
        target_files: As many; the nth translates the nth, line by line.
        source_tokenizer: Tokenizer of the source language.
        target_tokenizer: Tokenizer of the target language; may be the same.
        tokens_per_batch: Positions of a batch, padding included, on each side.
        max_length: Subwords of a sentence, with its start or end symbol, at most.
            Longer pairs are left out, with a warning.
        buckets: Lengths to pad to, up to `max_length`; by default those of
            `bucket_lengths(max_length)`.
        shuffle: Whether each epoch has an order of its own. Up to 65,536 pairs are
            held in memory to draw from.
        seed: Seed of the orders and of sampling.
        initial_epoch: Number of the first epoch; every pass goes on to the next one.
            What an epoch holds depends on its number and `seed` alone, unless subwords
            are sampled; see `SubwordTokenizer.sample`.
        sampling: Strength of `SubwordTokenizer.sample` on both sides, such as 0.1; 0
            turns it off. An epoch has then as many batches as a pass takes on
            average.

    Returns:
        A `tf.data.Dataset` of `({"source_ids", "target_ids"}, labels)`, all int32 of
        shape `(batch, length)`: source subwords and end symbol, start symbol and
        target subwords, target subwords and end symbol, padded with 0. Its attribute
        `epoch`, an int64 `tf.Variable`, holds the number of the next pass, and may be
        set to say which epoch that is, for instance by a callback's `on_epoch_begin`.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is faulty (the message names file and line), no
            sentence is left, or the sizes do not go together.
    """
    buckets = list(buckets or bucket_lengths(max_length))
    check_buckets(buckets, max_length, tokens_per_batch)
    tokenizers = source_tokenizer, target_tokenizer
    num_batches = _count_batches(
        read_pairs(source_files, target_files),
        tokenizers,
        buckets,
        tokens_per_batch,
        sampling,
    )
    lines = tf.data.Dataset.zip(text_lines(source_files), text_lines(target_files))

    def chunks_of_pass(seed):
        ordered = shuffled(lines, _SHUFFLE_BUFFER, seed) if shuffle else lines
        chunks = ordered.batch(_CHUNK_SIZE).enumerate()
        return chunks.map(lambda i, texts: (texts, seed * 1_000_003 + i))

    def tokenize(texts, seed):
        ids = _tokenize(tokenizers, texts, max_length, sampling, seed)
        return _examples(*ids, max_length)

    # Other subwords may make fewer batches than were counted: the next pass fills up.
    num_passes = ENDLESS if sampling else 1
    epoch = epoch_number(initial_epoch)
    chunks = next_epoch(epoch, seed, chunks_of_pass, num_passes)
    examples = chunks.map(tokenize, num_parallel_calls=tf.data.AUTOTUNE).unbatch()
    batches = batch_by_bucket(examples, buckets, tokens_per_batch)
    return training_data(batches, num_batches, epoch)


def encode(texts, tokenizer: SubwordTokenizer, max_length: int):
    """Returns texts as a model reads them: subwords, an end symbol, padding.

    Args:
        texts: A list of str, or a string tensor of shape `(batch,)`.
        tokenizer: Tokenizer of the source language.
        max_length: Positions at most; what is longer is cut before its end symbol.

    Returns:
        Ids, int32 of shape `(batch, length)`, as long as the longest text needs, and
        a boolean tensor `(batch,)`: which texts were cut.
    """
    ids = tokenizer(texts)
    is_cut = ids.row_lengths() >= max_length
    ids = ids[:, : max_length - 1]
    return tf.concat([ids, _column(ids, tokenizer.end_id)], axis=1).to_tensor(), is_cut


def _count_batches(pairs, tokenizers, buckets, tokens_per_batch, sampling):
    """Reads a corpus once; returns the batches it makes, warns of what is too long."""
    total, num_long, first_long = 0, 0, None
    counts = np.zeros(len(buckets), dtype=np.int64)
    while chunk := list(itertools.islice(pairs, _CHUNK_SIZE)):
        texts = [
            [sentence.text for sentence in side] for side in zip(*chunk, strict=True)
        ]
        lengths = _pair_lengths(*(map(SubwordTokenizer.__call__, tokenizers, texts)))
        is_long = lengths.numpy() > buckets[-1]
        if num_long == 0 and is_long.any():
            index = is_long.argmax()
            first_long = f"{chunk[index].source.place}, {lengths[index]} long"
        if sampling:
            lengths = _pair_lengths(
                *_tokenize(tokenizers, texts, buckets[-1], sampling, total)
            )
        fitting = lengths.numpy()[~is_long]
        counts += np.bincount(np.searchsorted(buckets, fitting), minlength=len(counts))
        num_long += is_long.sum()
        total += len(chunk)
    if num_long == total:
        raise ValueError(
            f"All {total} sentence pairs are longer than max_length={buckets[-1]}. "
            "Raise `max_length`."
        )
    if num_long:
        warnings.warn(
            f"{num_long} of {total} sentence pairs are longer than "
            f"max_length={buckets[-1]} and left out, first {first_long}.",
            stacklevel=3,
        )
    return int(sum(-(-counts // rows_per_batch(buckets, tokens_per_batch))))


def _tokenize(tokenizers, texts, max_length, sampling, seed):
    """Returns the ragged subwords of both sides, sampled where that is asked for."""
    plain = [tokenizer(side) for tokenizer, side in zip(tokenizers, texts, strict=True)]
    if not sampling:
        return plain
    sampled = [
        tokenizer.sample(side, sampling, seed + salt)
        for salt, (tokenizer, side) in enumerate(zip(tokenizers, texts, strict=True))
    ]
    # Sampled subwords are more; where they are too many, the plain ones stand in.
    fits = _pair_lengths(*sampled) <= max_length
    num_pairs = tf.size(fits)
    chosen = tf.range(num_pairs) + tf.where(fits, 0, num_pairs)
    return [
        tf.gather(tf.concat(sides, axis=0), chosen)
        for sides in zip(sampled, plain, strict=True)
    ]


def _examples(source, target, max_length):
    """Makes `(length, example)`, padded to `max_length`, of ragged subwords."""
    lengths = _pair_lengths(source, target)
    fits = lengths <= max_length
    source, target = (tf.ragged.boolean_mask(side, fits) for side in (source, target))
    start = _column(target, SubwordTokenizer.start_id)
    end = _column(target, SubwordTokenizer.end_id)
    source_ids, target_ids, labels = (
        tf.concat(parts, axis=1).to_tensor(shape=(None, max_length))
        for parts in ((source, end), (start, target), (target, end))
    )
    inputs = {"source_ids": source_ids, "target_ids": target_ids}
    return lengths[fits], (inputs, labels)


def _pair_lengths(source, target):
    """Returns the positions that each pair needs, `(batch,)`."""
    return tf.maximum(source.row_lengths(), target.row_lengths()) + 1


def _column(ids, symbol):
    """Returns `(batch, 1)`: the symbol, once for each row of `ids`."""
    return tf.fill([ids.nrows(), 1], symbol)
