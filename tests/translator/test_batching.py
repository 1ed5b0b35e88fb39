import itertools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from keras_transformer.text_files import chunks_of
from keras_transformer.translator.batching import (
    BatchingPolicy,
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
    assert BatchingPolicy(40).target_length(32) == 64
    assert BatchingPolicy(40, max_length=7).target_length(32) == 7


def test_lengths_count_inner_padding_and_no_blank_row():
    assert unpadded_lengths(tf.constant(IDS)).numpy().tolist() == [3, 4, 0, 0, 1]
    assert unpadded_lengths(tf.zeros((2, 0), tf.int32)).numpy().tolist() == [0, 0]


@pytest.mark.parametrize("in_graph", [False, True])
def test_a_source_is_in_the_group_of_the_next_length(in_graph):
    policy = BatchingPolicy(70)
    lengths = [0, 1, 32, 33, 64, 65, 70]
    ids = np.array([[5] * length + [0] * (75 - length) for length in lengths], "int32")
    group_of = tf.function(policy.group_of) if in_graph else policy.group_of
    assert group_of(tf.constant(ids)).numpy().tolist() == [3, 0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("length", [2, 4, 11])
def test_rows_are_padded_or_cut_to_a_length(length):
    padded = BatchingPolicy(20).pad(tf.constant(IDS), length).numpy()
    assert padded.shape == (5, length)
    kept = min(length, 4)
    assert np.array_equal(padded[:, :kept], IDS[:, :kept])
    assert not padded[:, kept:].any()


@given(st.lists(st.integers(0, 40), min_size=1, max_size=13))
def test_groups_hold_each_source_once_and_no_blank_one(lengths):
    ids = np.array([[5] * length + [0] * (40 - length) for length in lengths], "int32")
    policy = BatchingPolicy(40, max_length=7)
    found = []
    for rows, group, target_length in policy.groups(tf.constant(ids)):
        assert np.array_equal(policy.pad(group, 40), ids[rows])
        in_group = np.take(lengths, rows)
        assert np.array_equal(in_group, np.sort(in_group)[::-1])
        assert {length > 32 for length in in_group} == {group.shape[1] == 40}
        assert target_length == 7
        found.extend(rows)
    assert sorted(found) == np.flatnonzero(lengths).tolist()


@pytest.mark.parametrize(
    ("size", "lengths"), [(8, [1, 8, 8, 4]), (9, [2, 9, 9, 1]), (1, [1] * 21)]
)
def test_chunks_follow_each_other_and_the_first_comes_soon(size, lengths):
    chunks = list(chunks_of(iter(range(21)), size))
    assert list(map(len, chunks)) == lengths
    assert list(itertools.chain(*chunks)) == list(range(21))
