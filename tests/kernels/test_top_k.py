import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from keras import ops

from keras_transformer.kernels.gather import pick, take_rows
from keras_transformer.kernels.top_k import (
    SHORTEST_CUT,
    block_length,
    cut,
    draw,
    largest,
    locate,
)

# Short; long with and without a divisor near the root; a prime.
SIZES = [11, SHORTEST_CUT, 1600, 2018, 2027]


def tensors(*arrays):
    return map(ops.convert_to_tensor, arrays)


def draw_of(weights, uniform):
    return draw(*tensors(weights, uniform))


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
    values, positions = largest(ops.convert_to_tensor(x), count)
    np.testing.assert_array_equal(positions, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(x, expected, axis=-1))


@hypothesis.given(st.integers(1, 40_000))
def test_blocks_hold_every_value_and_are_about_as_many_as_they_are_long(size):
    length = block_length(size)
    assert 1 <= length <= 2 * size**0.5
    assert length >= size**0.5 / 2 - 1


@pytest.mark.parametrize("size", SIZES)
def test_cutting_moves_nothing_and_fills_the_last_block_up(size):
    x = np.arange(3 * size, dtype="float32").reshape(3, size)
    flat = ops.convert_to_numpy(cut(x, fill=-1)).reshape(3, -1)
    np.testing.assert_array_equal(flat[:, :size], x)
    assert (flat[:, size:] == -1).all()


@pytest.mark.parametrize("size", SIZES)
def test_a_draw_is_the_inverse_of_the_distribution_function(size):
    random = np.random.default_rng(size)
    # Whole numbers, so that sums are exact; many of them zero.
    weights = np.maximum(random.integers(-5, 7, size=(997, size)), 0)
    weights[:, 3] += 1
    sums = np.cumsum(weights, axis=-1)
    targets = random.integers(sums[:, -1])  # below the sum of the row
    expected = np.argmax(sums > targets[:, None], axis=-1)
    uniform = ((targets + 0.5) / sums[:, -1]).astype("float32")
    drawn = ops.convert_to_numpy(draw_of(weights.astype("float32"), uniform))
    np.testing.assert_array_equal(drawn, expected)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-23])
def test_a_weight_of_zero_is_never_drawn(size, uniform):
    random = np.random.default_rng(size)
    weights = random.random((101, size)).astype("float32") ** 9
    weights[random.random(weights.shape) < 0.9] = 0
    weights[:, 3] += 1e-9
    drawn = draw_of(weights, np.full(101, uniform, "float32"))
    assert (ops.convert_to_numpy(pick(weights, drawn)) > 0).all()


@pytest.mark.parametrize(("target", "expected"), [(-1e-9, 2), (3.0, 3), (9.0, 2)])
def test_rounding_does_not_lead_to_a_weight_of_zero(target, expected):
    weights = np.array([[0.0, 0.0, 3.0, 1.0, 0.0]], "float32")
    position, _ = locate(*tensors(weights, np.array([target], "float32")))
    assert np.array(position).tolist() == [expected]


def test_rows_are_taken_of_each_row_alone():
    x = np.arange(2 * 3 * 5, dtype="int32").reshape(2, 3, 5)
    rows = np.array([[2, 0, 0, 1], [1, 1, 2, 0]], "int32")
    taken = ops.convert_to_numpy(take_rows(*tensors(x, rows)))
    np.testing.assert_array_equal(taken, np.stack([x[0, rows[0]], x[1, rows[1]]]))
    picked = ops.convert_to_numpy(pick(*tensors(x, rows[:, 0])))
    np.testing.assert_array_equal(picked, [x[0, 2], x[1, 1]])
