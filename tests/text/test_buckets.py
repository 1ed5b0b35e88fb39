import hypothesis
import hypothesis.strategies as st
import pytest
import tensorflow as tf

from keras_transformer.text import bucket_lengths
from keras_transformer.text.buckets import batch_by_bucket, check_buckets


@hypothesis.given(st.integers(2, 5000))
def test_default_buckets_are_few_and_rise_to_max_length(max_length):
    buckets = bucket_lengths(max_length)
    assert buckets == sorted(set(buckets))
    assert len(buckets) <= 7
    assert buckets[-1] == max_length
    assert all(length % 4 == 0 for length in buckets[:-1])
    check_buckets(buckets, max_length, tokens_per_batch=max_length)


@pytest.mark.parametrize("max_length", [1, 0, -7])
def test_max_length_holds_a_subword_and_the_end(max_length):
    with pytest.raises(ValueError, match="`max_length` must be at least 2"):
        bucket_lengths(max_length)


@pytest.mark.parametrize("buckets", [[], [7, 5, 11], [5, 5, 11], [5, 7], [1, 11]])
def test_buckets_rise_to_max_length(buckets):
    with pytest.raises(ValueError, match=r"`buckets` must rise .* max_length=11"):
        check_buckets(buckets, max_length=11, tokens_per_batch=100)


def test_a_batch_holds_the_longest_sentence():
    message = r"`tokens_per_batch` must be at least .*=10, max_length=11\. Raise"
    with pytest.raises(ValueError, match=message):
        check_buckets([5, 11], max_length=11, tokens_per_batch=10)


@hypothesis.settings(max_examples=7)
@hypothesis.given(st.lists(st.integers(1, 11), max_size=41))
def test_batches_hold_every_example_once_in_the_smallest_bucket(lengths):
    buckets, tokens_per_batch = [3, 7, 11], 23
    ids = [[i + 1] * n + [0] * (11 - n) for i, n in enumerate(lengths)]
    examples = tf.data.Dataset.from_tensor_slices(
        (
            tf.constant(lengths, tf.int64),
            tf.reshape(tf.constant(ids, tf.int32), [-1, 11]),
        )
    )
    seen = []
    for batch in batch_by_bucket(examples, buckets, tokens_per_batch, 0):
        rows, width = batch.shape
        assert rows == tokens_per_batch // width
        for row in batch.numpy():
            if row.any():
                length = int((row > 0).sum())
                assert width == min(size for size in buckets if size >= length)
                seen.append((int(row[0]), length))
    assert sorted(seen) == [(i + 1, n) for i, n in enumerate(lengths)]
