"""Length buckets: batches with a small, fixed set of shapes and little padding."""

import tensorflow as tf


def bucket_lengths(max_length: int) -> list[int]:
    """Returns the lengths to which batches are padded.

    There are at most seven, all but the last multiples of four. They are closest
    together between a quarter and a half of `max_length`, the length of most sentences.
    On Multi30k with 8,000 subwords and `max_length=64`, 17% of the target positions
    are padding. With a bucket for every length it would still be 5%, because a source
    and its translation differ in length.

    Args:
        max_length: Length of the longest sentence, including its start or end token.

    Returns:
        Lengths in ascending order, up to `max_length`.

    Example:
        >>> kt.text.bucket_lengths(64)
        [12, 16, 20, 24, 32, 48, 64]
    """
    if max_length < 2:
        raise ValueError(
            "`max_length` must be at least 2, a subword and its end token. "
            f"Received: max_length={max_length}."
        )
    lengths = (
        -(-max_length * sixteenths // 64) * 4 for sixteenths in (3, 4, 5, 6, 8, 12)
    )
    return sorted({length for length in lengths if length < max_length} | {max_length})


def check_buckets(buckets: list[int], max_length: int, tokens_per_batch: int) -> None:
    """Raises `ValueError` unless batches of these buckets can hold every sentence."""
    is_rising = all(a < b for a, b in zip([1, *buckets], buckets, strict=False))
    if not is_rising or not buckets or buckets[-1] != max_length:
        raise ValueError(
            "`buckets` must rise from at least 2 up to `max_length`. "
            f"Received: buckets={buckets}, max_length={max_length}."
        )
    if tokens_per_batch < max_length:
        raise ValueError(
            "`tokens_per_batch` must be at least `max_length`, so that a batch holds "
            f"one sentence. Received: tokens_per_batch={tokens_per_batch}, "
            f"max_length={max_length}. Raise the one or lower the other."
        )


def pad_rows(ids, num_rows, pad_id: int):
    """Appends rows of padding to a batch of ids until it has `num_rows` rows."""
    missing = num_rows - tf.shape(ids, tf.int64)[0]
    return tf.pad(ids, [[0, missing], [0, 0]], constant_values=pad_id)


def batch_by_bucket(
    examples: tf.data.Dataset, buckets: list[int], tokens_per_batch: int, pad_ids
) -> tf.data.Dataset:
    """Groups examples of similar length into batches of shape `(rows, length)`.

    An example is a scalar length, which selects the bucket, and nested ids padded to
    the longest bucket. Each batch is emitted as soon as it is full, so batches of
    different buckets alternate. Rows of padding fill up the last one of each bucket;
    `pad_ids` has the id of the padding of each of the nested ids.
    """
    lengths = tf.constant(buckets, tf.int64)
    rows = tokens_per_batch // lengths

    def bucket_of(length, ids):
        return tf.searchsorted(lengths, [length], out_type=tf.int64)[0]

    def make_batch(bucket, examples):
        def cut_and_fill(ids, pad_id):
            return pad_rows(ids[:, : lengths[bucket]], rows[bucket], pad_id)

        return examples.batch(rows[bucket]).map(
            lambda _, ids: tf.nest.map_structure(cut_and_fill, ids, pad_ids)
        )

    return examples.group_by_window(
        bucket_of, make_batch, window_size_func=lambda bucket: rows[bucket]
    )
