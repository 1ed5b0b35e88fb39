"""From two text files to the batches that a translation model trains on."""

import tensorflow as tf

from keras_transformer.text.files import (
    Paths,
    as_paths,
    check_parallel_files,
    is_gzipped,
)
from keras_transformer.text.tokenizer import END_ID, START_ID, SubwordTokenizer

_TOKENIZED_AT_ONCE = 1024


def bucket_lengths(max_length: int) -> list[int]:
    """Returns the lengths that sentences are padded to."""
    lengths = [max_length]
    while lengths[0] > 12:
        lengths.insert(0, max(8, int(lengths[0] * 0.75) // 4 * 4))
    return lengths


def parallel_dataset(
    source_files: Paths,
    target_files: Paths,
    source_tokenizer: SubwordTokenizer,
    target_tokenizer: SubwordTokenizer | None = None,
    tokens_per_batch: int = 4096,
    max_length: int = 64,
    buckets: list[int] | None = None,
    shuffle: bool = True,
    seed: int = 0,
    initial_epoch: int = 0,
) -> tf.data.Dataset:
    """Reads parallel text as batches of a fixed, small set of shapes.

    Every element is `({"source_ids", "target_ids"}, labels)`, each int32 of shape
    `(batch, length)`.
    """
    target_tokenizer = target_tokenizer or source_tokenizer
    buckets = sorted(buckets or bucket_lengths(max_length))
    if tokens_per_batch < buckets[-1]:
        raise ValueError(
            f"`tokens_per_batch` must be at least the longest sentence, {buckets[-1]}. "
            f"Received: tokens_per_batch={tokens_per_batch}."
        )
    check_parallel_files(source_files, target_files)
    lines = tf.data.Dataset.zip(_text_lines(source_files), _text_lines(target_files))
    if shuffle:
        lines = _shuffled(lines, seed, initial_epoch)

    def tokenize(source, target):
        source, target = source_tokenizer(source), target_tokenizer(target)
        return _examples(source, target, buckets[-1])

    examples = lines.batch(_TOKENIZED_AT_ONCE)
    examples = examples.map(tokenize, tf.data.AUTOTUNE, deterministic=True).unbatch()
    batches = _bucketed(examples, buckets, tokens_per_batch)
    return batches.prefetch(tf.data.AUTOTUNE)


def _text_lines(files):
    datasets = [
        tf.data.TextLineDataset(str(path), "GZIP" if is_gzipped(path) else None)
        for path in as_paths(files)
    ]
    lines = datasets[0]
    for more in datasets[1:]:
        lines = lines.concatenate(more)
    return lines


def _shuffled(lines, seed, initial_epoch, buffer_size=1 << 16):
    epoch = tf.Variable(initial_epoch, dtype=tf.int64, trainable=False)

    def shuffle(_):
        now = epoch.assign_add(1) - 1
        return lines.shuffle(buffer_size, seed=seed * 1_000_003 + now)

    return tf.data.Dataset.range(1).flat_map(shuffle)


def _examples(source, target, max_length):
    """Makes training examples of ragged subwords, leaving out those too long."""
    lengths = tf.maximum(source.row_lengths(), target.row_lengths()) + 1
    fits = lengths <= max_length
    source, target, lengths = (
        tf.ragged.boolean_mask(part, fits) if part is not lengths else part[fits]
        for part in (source, target, lengths)
    )
    start = tf.fill([target.nrows(), 1], START_ID)
    end = tf.fill([target.nrows(), 1], END_ID)
    source_ids, target_ids, labels = (
        tf.concat(parts, axis=1).to_tensor(shape=(None, max_length))
        for parts in ((source, end), (start, target), (target, end))
    )
    return {"source_ids": source_ids, "target_ids": target_ids}, labels, lengths


def _bucketed(examples, buckets, tokens_per_batch):
    """Groups examples by length into batches that all hold `tokens_per_batch`."""
    lengths = tf.constant(buckets, tf.int64)
    rows = tf.constant([tokens_per_batch // length for length in buckets], tf.int64)

    def bucket_of(inputs, labels, length):
        return tf.searchsorted(lengths, [length], out_type=tf.int64)[0]

    def batch_of(bucket, window):
        def cut_and_fill(ids):
            missing = rows[bucket] - tf.shape(ids, tf.int64)[0]
            return tf.pad(ids[:, : lengths[bucket]], [[0, missing], [0, 0]])

        return window.batch(rows[bucket]).map(
            lambda inputs, labels, _: (
                {side: cut_and_fill(ids) for side, ids in inputs.items()},
                cut_and_fill(labels),
            )
        )

    return examples.group_by_window(
        bucket_of, batch_of, window_size_func=lambda bucket: rows[bucket]
    )


def encode(texts, tokenizer: SubwordTokenizer, max_length: int):
    """Returns ids `(batch, length)` with end symbols, and which texts were cut."""
    ids = tokenizer(texts)
    truncated = ids.row_lengths() >= max_length
    ids = ids[:, : max_length - 1]
    end = tf.fill([ids.nrows(), 1], END_ID)
    return tf.concat([ids, end], axis=1).to_tensor(), truncated
