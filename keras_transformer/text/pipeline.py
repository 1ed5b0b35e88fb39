"""Training data for translation models: parallel text in batches of few shapes."""

import os
import warnings
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.text.buckets import (
    batch_by_bucket,
    bucket_lengths,
    check_buckets,
)
from keras_transformer.text.encoding import add_start_and_end, beginning
from keras_transformer.text.epochs import numbered_epochs, shuffled
from keras_transformer.text.tokenizer import Tokenizer, batch_of_texts, check_tokenizer
from keras_transformer.text_files import (
    Files,
    chunks_of,
    paired_files,
    read_pairs,
    text_lines,
)

_PAIRS_PER_CHUNK = 1024  # tokenized together
_SHUFFLE_BUFFER_PAIRS = 1 << 16
_OPEN_FILES = 64  # on each side


class Counted(NamedTuple):
    """The result of `count_batches`: pairs in each pair of files, and batches."""

    pairs: tuple[int, ...]
    batches: int


def parallel_dataset(
    source_files: Files,
    target_files: Files,
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    tokens_per_batch: int = 4096,
    max_length: int = 64,
    buckets: Sequence[int] | None = None,
    shuffle: bool = True,
    seed: int = 0,
    initial_epoch: int = 0,
    sampling: float = 0.0,
    counted: Counted | None = None,
) -> tf.data.Dataset:
    """Reads parallel text as batches with a small, fixed set of shapes.

    Sentences are tokenized, grouped by length into buckets and padded to the bucket's
    length, the same for source and target. All batches of a bucket have the same shape:
    the last one is filled up with rows of padding.

    The files are streamed, so memory does not grow with the corpus. They are read once
    beforehand, to find errors before training and to count an epoch's batches.

    Each iteration over the dataset is the next epoch, the first one `initial_epoch`.
    Its batches depend only on the seed and the number of the epoch, so a position
    consists of two numbers. `training.KeepPosition` saves and restores them in `fit`;
    your own loop can set them. Skipped batches are still read, which takes time:

        dataset.epoch.assign(3)
        dataset.batch.assign(1000)
        for batch in dataset:  # from the 1001st of the fourth epoch on

    Args:
        source_files: One file or several, with one sentence per line, plain or
            compressed with gzip or zstd: paths, patterns such as `train-*.en.gz`, whose
            matches are sorted, or `TextFile`, for columns of tables and for tags. List
            a file several times to repeat it in each epoch.
        target_files: The same number of files, matching the sources line by line.
        source_tokenizer: Tokenizer of the source language.
        target_tokenizer: Tokenizer of the target language; may be the same.
        tokens_per_batch: Maximum number of positions on each side of a batch, including
            padding.
        max_length: Maximum number of subwords in a sentence, including its start or end
            token. Longer pairs are skipped, with a warning.
        buckets: Lengths to pad to, up to `max_length`; by default
            `bucket_lengths(max_length)`.
        shuffle: Whether each epoch has its own order. The files are then read at the
            same time, each in proportion to its number of lines, and pairs are drawn
            from a buffer of 65,536. Otherwise the files are read one after another.
        seed: Seed of the orders.
        initial_epoch: Number of the first epoch. The batches of an epoch depend only
            on its number and `seed`, unless subwords are sampled.
        sampling: Strength of `SubwordTokenizer.sample` on both sides, such as 0.1. It
            has no seed: interrupted training continues with different subwords of the
            same sentences. Passes over the corpus then differ slightly in their numbers
            of batches, so an epoch adds to one pass the first few batches of another.
            Several workers, and resumed training, must get the same `counted`.
        counted: The result of `count_batches` for the same arguments; None reads the
            text to compute it.

    Returns:
        A `tf.data.Dataset` of `({"source_ids", "target_ids"}, labels)`, all int32 of
        shape `(batch, length)`: source subwords and end token, start token and target
        subwords, target subwords and end token, and padding. Its attributes `epoch` and
        `batch`, int64 `tf.Variable`s, determine where the next iteration starts.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file has an error (the message names file and line), if every
            sentence is too long, or if the sizes contradict each other.
    """
    buckets = list(buckets or bucket_lengths(max_length))
    check_buckets(buckets, max_length, tokens_per_batch)
    tokenizers = source_tokenizer, target_tokenizer
    check_tokenizer("source_tokenizer", source_tokenizer)
    check_tokenizer("target_tokenizer", target_tokenizer)
    files = paired_files(source_files, target_files)
    if counted is None:
        sources, targets = zip(*files, strict=True)
        sides = sources, targets, source_tokenizer, target_tokenizer
        counted = count_batches(*sides, tokens_per_batch, max_length, buckets, sampling)
    pairs_per_file = dict(zip(Counter(files), counted.pairs, strict=True))

    def read_chunks(seed):
        if shuffle:
            lines = _read_mixed_lines(files, pairs_per_file, seed)
            lines = shuffled(lines, _SHUFFLE_BUFFER_PAIRS, seed)
        else:
            lines = _read_lines(files)
        return lines.batch(_PAIRS_PER_CHUNK)

    def make_examples(*texts):
        ids = _tokenize(tokenizers, texts, max_length, sampling)
        return _examples(ids, tokenizers, max_length)

    def make_batches(chunks):
        examples = chunks.map(make_examples, num_parallel_calls=tf.data.AUTOTUNE)
        source_pad, target_pad = (tokenizer.pad_id for tokenizer in tokenizers)
        paddings = {"source_ids": source_pad, "target_ids": target_pad}, target_pad
        return batch_by_bucket(examples.unbatch(), buckets, tokens_per_batch, paddings)

    return numbered_epochs(
        read_chunks, make_batches, counted.batches, seed, initial_epoch, sampling > 0
    )


def _read_lines(files):
    """Returns the pairs of lines of all files, one file after the other."""
    if not any(source.min_hash for source, _ in files):
        return tf.data.Dataset.zip(*map(text_lines, zip(*files, strict=True)))
    blocks = tf.data.Dataset.from_generator(
        lambda: chunks_of(([x.source, x.target] for x in read_pairs(files)), 1024),
        output_signature=tf.TensorSpec((None, 2), "string"),
    )
    return blocks.unbatch().map(lambda pair: (pair[0], pair[1]))


def _read_mixed_lines(files, pairs_per_file, seed):
    """Returns the pairs of lines of all files, in an order that mixes the files.

    All last for about the whole pass. If they were read one after the other, an epoch
    of more text than the shuffle buffer holds would end with the last one.
    """
    groups = [files[i::_OPEN_FILES] for i in range(min(len(files), _OPEN_FILES))]
    # A weight of 0, where all pairs of a file are held out, would never end.
    sizes = [float(sum(map(pairs_per_file.get, group)) or 1) for group in groups]
    return tf.data.Dataset.sample_from_datasets(
        list(map(_read_lines, groups)), sizes, seed, stop_on_empty_dataset=False
    )


def count_batches(
    source_files: Files,
    target_files: Files,
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    tokens_per_batch: int = 4096,
    max_length: int = 64,
    buckets: Sequence[int] | None = None,
    sampling: float = 0.0,
) -> Counted:
    """Reads a parallel text once, and counts the batches of an epoch.

    Files listed several times are read once. Arguments, errors and the warning about
    long sentences are as in `parallel_dataset`.
    """
    files = paired_files(source_files, target_files)
    tokenizers = source_tokenizer, target_tokenizer
    buckets = list(buckets or bucket_lengths(max_length))
    num_long, first_long = 0, None
    counts = np.zeros(len(buckets), dtype=np.int64)
    pairs_per_file: dict[tuple, int] = {}

    # A graph takes half the time, most of which Python would take from other threads.
    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string)] * 2)
    def pair_lengths(*texts):
        lengths = _pair_lengths(*_tokenize(tokenizers, texts, max_length))
        if not sampling:
            return lengths, lengths
        ids = _tokenize(tokenizers, texts, max_length, sampling)
        return lengths, _pair_lengths(*ids)

    def lengths_of(chunk):
        *texts, locations = zip(*chunk, strict=True)
        return locations, *(x.numpy() for x in pair_lengths(*map(tf.constant, texts)))

    with ThreadPoolExecutor() as pool:
        for sides, weight in Counter(files).items():
            pairs_per_file[sides] = 0
            chunks = chunks_of(read_pairs([sides]), _PAIRS_PER_CHUNK)
            for locations, lengths, sampled in in_order(pool, lengths_of, chunks):
                is_long = lengths > max_length
                if num_long == 0 and is_long.any():
                    first_long = locations[is_long.argmax()]
                bucket_of_pair = np.searchsorted(buckets, sampled[~is_long])
                counts += weight * np.bincount(bucket_of_pair, minlength=len(counts))
                num_long += is_long.sum()
                pairs_per_file[sides] += len(lengths)
    total = sum(pairs_per_file.values())
    longer = f"{total} sentence pairs are longer than max_length={max_length}"
    if num_long == total:
        raise ValueError(f"All {longer}. Raise `max_length`.")
    if num_long:
        message = f"{num_long} of {longer} and are left out; the first: {first_long}."
        warnings.warn(message, stacklevel=3)
    batches = int(sum(-(-counts // (tokens_per_batch // np.array(buckets)))))
    if sampling:
        # Sampled subwords may make more batches than were counted. The last batches of
        # a pass hold rare lengths. Another pass supplies what is missing.
        batches += 2 + batches // 50
    return Counted(tuple(pairs_per_file.values()), batches)


def in_order(pool: ThreadPoolExecutor, function, chunks: Iterable) -> Iterator:
    """Yields a function's result for each chunk, a few of them at the same time."""
    pending: deque = deque()
    for chunk in chunks:
        pending.append(pool.submit(function, chunk))
        if len(pending) > 2 * (os.cpu_count() or 1):
            yield pending.popleft().result()
    for future in pending:
        yield future.result()


def _tokenize(tokenizers, texts, max_length, sampling=0.0):
    """Returns the ragged subwords of source and target, sampled on request."""
    # SentencePiece takes quadratic time for a run of unknown characters.
    texts = [beginning(batch_of_texts(side), max_length + 1)[0] for side in texts]
    sides = tuple(zip(tokenizers, texts, strict=True))
    best = [tokenizer(side) for tokenizer, side in sides]
    if not sampling:
        return best
    # Pairs that are too long are left out anyway, and may be of any length.
    fits = _pair_lengths(*best) <= max_length
    sampled = [
        tokenizer.sample(tf.where(fits, side, ""), sampling)
        for tokenizer, side in sides
    ]
    # Sampling yields more subwords. Pairs that then exceed `max_length` keep the best.
    fits &= _pair_lengths(*sampled) <= max_length
    num_pairs = tf.size(fits)
    chosen = tf.range(num_pairs) + tf.where(fits, 0, num_pairs)
    return [
        tf.gather(tf.concat(choices, axis=0), chosen)
        for choices in zip(sampled, best, strict=True)
    ]


def _examples(ids, tokenizers, max_length):
    """Returns `(lengths, examples)` of ragged subwords, padded to `max_length`."""
    lengths = _pair_lengths(*ids)
    fits = lengths <= max_length

    def padded(ids, tokenizer, **tokens):
        ids = add_start_and_end(tf.ragged.boolean_mask(ids, fits), tokenizer, **tokens)
        return ids.to_tensor(tokenizer.pad_id, shape=(None, max_length))

    source, target = zip(ids, tokenizers, strict=True)
    source_ids, target_ids = padded(*source, end=True), padded(*target, start=True)
    inputs = {"source_ids": source_ids, "target_ids": target_ids}
    return lengths[fits], (inputs, padded(*target, end=True))


def _pair_lengths(source, target):
    """Returns the positions that each pair needs, end token included, `(batch,)`."""
    return tf.maximum(source.row_lengths(), target.row_lengths()) + 1
