import itertools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from keras_transformer.translator.batching import (
    BatchingPolicy,
    fill_up,
    next_power_of_two,
    unpadded_lengths,
)

IDS = np.array([[5, 7, 3, 0], [5, 0, 7, 3], [3, 0, 0, 0], [0] * 4, [5, 0, 0, 0]])


@given(st.integers(2, 3000))
def test_sources_are_padded_to_few_lengths(max_source_length):
    lengths = BatchingPolicy(max_source_length).source_lengths
    assert lengths[-1] == max_source_length
    assert all(
        shorter < longer <= 2 * shorter
        for shorter, longer in itertools.pairwise(lengths)
    )
    assert len(lengths) <= 9


def test_targets_are_at_most_twice_as_long_unless_a_length_is_given():
    assert BatchingPolicy(20).target_length(16) == 32
    assert BatchingPolicy(20, max_length=7).target_length(16) == 7


def test_lengths_count_inner_padding_and_no_blank_row():
    assert unpadded_lengths(tf.constant(IDS)).numpy().tolist() == [3, 4, 0, 0, 1]
    assert unpadded_lengths(tf.zeros((2, 0), tf.int32)).numpy().tolist() == [0, 0]


@pytest.mark.parametrize("in_graph", [False, True])
def test_a_source_is_in_the_group_of_the_next_length(in_graph):
    policy = BatchingPolicy(37)
    lengths = [0, 1, 16, 17, 32, 33, 37]
    ids = np.array([[5] * length + [0] * (41 - length) for length in lengths], "int32")
    ids[:, 40] = 0
    group_of = tf.function(policy.group_of) if in_graph else policy.group_of
    assert group_of(tf.constant(ids)).numpy().tolist() == [3, 0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("length", [2, 4, 11])
def test_rows_are_padded_or_cut_to_a_length(length):
    padded = BatchingPolicy(20).pad(tf.constant(IDS), length).numpy()
    assert padded.shape == (5, length)
    kept = min(length, 4)
    assert np.array_equal(padded[:, :kept], IDS[:, :kept])
    assert not padded[:, kept:].any()


@pytest.mark.parametrize(("rows", "filled"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8)])
def test_a_batch_is_filled_up_with_its_own_rows(rows, filled):
    inputs = np.arange(2 * rows).reshape(rows, 2)
    outputs = fill_up(tf.constant(inputs), next_power_of_two(rows)).numpy()
    assert np.array_equal(outputs, np.resize(inputs, (filled, 2)))


@given(st.lists(st.integers(0, 20), min_size=1, max_size=13), st.integers(1, 5))
def test_batches_hold_each_source_once_and_no_blank_one(lengths, batch_size):
    ids = np.array([[5] * length + [0] * (20 - length) for length in lengths], "int32")
    policy = BatchingPolicy(20, max_length=7)
    found = []
    for rows, batch, target_length in policy.batches(tf.constant(ids), batch_size):
        assert len(batch) <= batch_size
        assert np.array_equal(batch, np.resize(batch[: len(rows)], batch.shape))
        assert np.array_equal(policy.pad(batch, 20)[: len(rows)], ids[rows])
        assert target_length == 7
        found.extend(rows)
    assert sorted(found) == np.flatnonzero(lengths).tolist()
    assert np.array_equal(np.take(lengths, found), np.sort(np.take(lengths, found)))
