import numpy as np
import pytest
from keras import ops

from keras_transformer.decoding.uniform import uniforms


@pytest.mark.parametrize("seed", [0, 3, 2**40, None])
def test_the_numbers_are_even_and_do_not_depend_on_each_other(seed):
    x = ops.convert_to_numpy(uniforms(23, 5003, seed))
    assert x.dtype == "float32"
    assert 0 <= x.min() < 1e-4
    assert 1 - 1e-4 < x.max() < 1
    counts, _ = np.histogram(x, bins=101)
    assert np.abs(counts - x.size / 101).max() < 5 * (x.size / 101) ** 0.5
    for axis in (0, 1):  # positions, then rows, against their neighbours
        ahead = np.delete(x, 0, axis).ravel()
        behind = np.delete(x, -1, axis).ravel()
        assert abs(np.corrcoef(ahead, behind)[0, 1]) < 5 / ahead.size**0.5
        pairs, _, _ = np.histogram2d(ahead, behind, bins=11)
        expected = ahead.size / 121
        assert np.abs(pairs - expected).max() < 5 * expected**0.5
    # No two positions and no two rows are alike.
    assert np.abs(np.corrcoef(x) - np.eye(23)).max() < 5 / 5003**0.5
    assert np.abs(np.corrcoef(x[:, :101].T) - np.eye(101)).max() < 0.9


def test_a_row_and_a_position_do_not_depend_on_how_many_there_are():
    many, few = uniforms(7, 11, seed=5), uniforms(3, 5, seed=5)
    np.testing.assert_array_equal(many[:3, :5], few)


def test_seeds_give_unrelated_numbers():
    x, y = (ops.convert_to_numpy(uniforms(5, 5003, seed)).ravel() for seed in (6, 7))
    assert abs(np.corrcoef(x, y)[0, 1]) < 5 / x.size**0.5
