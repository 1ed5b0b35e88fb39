import numpy as np
import pytest

from keras_transformer.layers.cache import growing_lengths, lengthen_cache


@pytest.mark.parametrize(
    ("max_length", "num_hypotheses", "lengths"),
    [(100, 1, [100]), (300, 1, [128, 256, 300]), (100, 3, [64, 100]), (1, 999, [1])],
)
def test_lengths_double_up_to_the_longest(max_length, num_hypotheses, lengths):
    assert growing_lengths(max_length, num_hypotheses) == lengths


def test_a_longer_cache_keeps_its_entries_and_gets_zeros():
    cache = [{"keys": np.ones((2, 3, 5, 7)), "values": np.full((2, 3, 5, 11), 2.0)}]
    [longer] = lengthen_cache(cache, 13)
    for name, width, value in (("keys", 7, 1), ("values", 11, 2)):
        states = np.asarray(longer[name])
        assert states.shape == (2, 3, 13, width)
        assert (states[:, :, :5] == value).all()
        assert not states[:, :, 5:].any()
