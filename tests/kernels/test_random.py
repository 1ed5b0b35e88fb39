import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from keras import ops

from keras_transformer.kernels.random import draw, hash_rows, invert_cdf, uniforms
from keras_transformer.kernels.selection import MIN_LENGTH_FOR_BLOCKS

# Short; long with and without a divisor near the root; a prime.
SIZES = [11, MIN_LENGTH_FOR_BLOCKS, 1600, 2018, 2027]


def tensors(*arrays):
    return map(ops.convert_to_tensor, arrays)


def draw_of(weights, uniform):
    return ops.convert_to_numpy(draw(*tensors(weights, uniform)))


def rows(count):
    return ops.arange(count, dtype="int32")


@pytest.mark.parametrize("seed", [0, 3, 2**40])
def test_the_numbers_are_even_and_do_not_depend_on_each_other(seed):
    x = ops.convert_to_numpy(uniforms(23, rows(5003), seed))
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
    many, few = uniforms(7, rows(11), seed=5), uniforms(3, rows(5), seed=5)
    np.testing.assert_array_equal(many[:3, :5], few)


def test_seeds_give_unrelated_numbers():
    x, y = (
        ops.convert_to_numpy(uniforms(5, rows(5003), seed)).ravel() for seed in (6, 7)
    )
    assert abs(np.corrcoef(x, y)[0, 1]) < 5 / x.size**0.5


@hypothesis.settings(max_examples=30)
@hypothesis.given(
    st.lists(st.integers(0, 99), max_size=7),
    st.lists(st.integers(0, 99), max_size=7),
    st.integers(0, 99),
)
def test_a_hash_tells_sentences_apart_and_ignores_padding(some, others, pad_id):
    table = np.full((2, 11), pad_id)
    for row, ids in zip(table, (some, others), strict=True):
        row[: len(ids)] = ids
    first, second = ops.convert_to_numpy(hash_rows(table, pad_id))
    assert (first == second) == (table[0] == table[1]).all()
    np.testing.assert_array_equal(hash_rows(table[:1, : len(some)], pad_id), [first])


def test_hashes_are_spread_evenly():
    ids = np.stack(np.meshgrid(*[np.arange(1, 72)] * 2), axis=-1).reshape(-1, 2)
    x = ops.convert_to_numpy(hash_rows(ids, pad_id=0)).astype("int64")
    assert len(np.unique(x)) == len(x)
    counts, _ = np.histogram(x, bins=101, range=(-(2**31), 2**31))
    assert np.abs(counts - x.size / 101).max() < 5 * (x.size / 101) ** 0.5


@pytest.mark.parametrize("size", SIZES)
def test_a_draw_is_where_the_cumulative_sum_exceeds_the_number(size):
    random = np.random.default_rng(size)
    # Whole numbers, so that sums are exact; many of them zero.
    weights = np.maximum(random.integers(-5, 7, size=(997, size)), 0)
    weights[:, 3] += 1
    sums = np.cumsum(weights, axis=-1)
    targets = random.integers(sums[:, -1])  # below the sum of the row
    expected = np.argmax(sums > targets[:, None], axis=-1)
    uniform = ((targets + 0.5) / sums[:, -1]).astype("float32")
    drawn = draw_of(weights.astype("float32"), uniform)
    np.testing.assert_array_equal(drawn, expected)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-23])
def test_a_weight_of_zero_is_never_drawn(size, uniform):
    random = np.random.default_rng(size)
    weights = random.random((101, size)).astype("float32") ** 9
    weights[random.random(weights.shape) < 0.9] = 0
    weights[:, 3] += 1e-9
    drawn = draw_of(weights, np.full(101, uniform, "float32"))
    assert (np.take_along_axis(weights, drawn[:, None], axis=1) > 0).all()


@pytest.mark.parametrize(("level", "expected"), [(-1e-9, 2), (3.0, 3), (9.0, 2)])
def test_rounding_does_not_lead_to_a_weight_of_zero(level, expected):
    weights = np.array([[0.0, 0.0, 3.0, 1.0, 0.0]], "float32")
    position, _ = invert_cdf(*tensors(weights, np.array([level], "float32")))
    assert np.array(position).tolist() == [expected]
