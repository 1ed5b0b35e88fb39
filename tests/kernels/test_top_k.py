import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from keras import ops

from keras_transformer.kernels.selection import (
    MIN_LENGTH_FOR_BLOCKS,
    block_length,
    split_in_blocks,
    top_k_in_blocks,
    top_one,
)

# Short; long with and without a divisor near the root; a prime.
SIZES = [11, MIN_LENGTH_FOR_BLOCKS, 1600, 2018, 2027]


@pytest.mark.parametrize("count", [1, 2, 7, 11])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("distinct", [2, 5, 10**6])
def test_the_largest_values_are_found_and_equal_ones_stay_in_order(
    size, count, distinct
):
    x = np.random.default_rng(size + count).integers(distinct, size=(5, size))
    x[3] *= np.random.default_rng(count).random(size) < 0.01
    x = np.where(x == 0, -np.inf, x).astype("float32")
    x[4] = -np.inf
    expected = np.argsort(-x, axis=-1, kind="stable")[:, :count]
    values, positions = top_k_in_blocks(ops.convert_to_tensor(x), count)
    np.testing.assert_array_equal(positions, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(x, expected, axis=-1))


@hypothesis.given(st.integers(1, 40_000))
def test_blocks_hold_every_value_and_are_about_as_many_as_they_are_long(size):
    length = block_length(size)
    assert 1 <= length <= 2 * size**0.5
    assert length >= size**0.5 / 2 - 1


@pytest.mark.parametrize("size", SIZES)
def test_splitting_moves_nothing_and_pads_the_last_block(size):
    x = np.arange(3 * size, dtype="float32").reshape(3, size)
    flat = ops.convert_to_numpy(split_in_blocks(x, fill=-1)).reshape(3, -1)
    np.testing.assert_array_equal(flat[:, :size], x)
    assert (flat[:, size:] == -1).all()


def test_the_largest_of_masked_values_is_found_with_its_id():
    values = np.array([[5.0, 3.0, 2.0], [-np.inf, 3.0, 2.0]], "float32")
    ids = np.array([[11, 7, 13], [0, 7, 13]], "int32")
    value, token_id = top_one(*map(ops.convert_to_tensor, (values, ids)))
    np.testing.assert_array_equal(value, [5, 3])
    np.testing.assert_array_equal(token_id, [11, 7])
