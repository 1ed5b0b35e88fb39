import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis.extra.numpy import (
    arrays,
)
from keras import (
    ops,
)

from keras_transformer.kernels.selection import (
    MIN_LENGTH_FOR_BLOCKS,
    block_length,
    in_nucleus,
    rows_at,
    split_in_blocks,
    take_last,
    take_one,
    take_rows,
    top_k_in_blocks,
    top_one,
    write_rows,
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


@hypothesis.given(
    arrays("float32", (3, 13), elements=st.integers(-20, 0).map(lambda n: n / 4)),
    st.sampled_from([0.1, 0.5, 0.9, 0.99, 1.0]),
)
@hypothesis.settings(max_examples=50)
def test_the_nucleus_is_what_sorting_finds(log_weights, probability):
    log_weights -= np.max(log_weights, axis=-1, keepdims=True)
    weights = np.exp(log_weights)
    tensors = map(ops.convert_to_tensor, (log_weights, weights))
    kept = ops.convert_to_numpy(in_nucleus(*tensors, probability))
    for row, is_kept in zip(np.exp(log_weights.astype("float64")), kept, strict=True):
        likelier = np.array([np.sum(row[row > weight]) for weight in row])
        excess = likelier - probability * np.sum(row)
        clear = np.abs(excess) > 1e-5
        np.testing.assert_array_equal(is_kept[clear], excess[clear] < 0)


@pytest.mark.parametrize("num_rows", [0, 1, 5])
@pytest.mark.parametrize("shape", [(), (7,)], ids=str)
def test_rows_are_taken_as_take_along_axis_takes_them(num_rows, shape):
    random = np.random.default_rng(num_rows)
    x = random.normal(size=(num_rows, 11, *shape)).astype("float32")
    indices = random.integers(11, size=(num_rows, 3)).astype("int32")
    expanded = indices.reshape(num_rows, 3, *[1] * len(shape))
    expected = np.take_along_axis(x, expanded, axis=1)
    tensors = [ops.convert_to_tensor(one) for one in (x, indices)]
    np.testing.assert_array_equal(take_rows(*tensors), expected)
    one = take_one(tensors[0], tensors[1][:, 0])
    np.testing.assert_array_equal(one, expected[:, 0])


@pytest.mark.parametrize("shape", [(4,), (2, 3), (2, 0), (2, 3, 4)], ids=str)
def test_the_last_axis_is_taken_from_as_take_along_axis_takes_from_it(shape):
    random = np.random.default_rng(len(shape))
    x = random.normal(size=(*shape, 11)).astype("float32")
    indices = random.integers(-11, 11, size=shape).astype("int32")
    expected = np.take_along_axis(x, indices[..., None], axis=-1)[..., 0]
    tensors = [ops.convert_to_tensor(one) for one in (x, indices)]
    np.testing.assert_array_equal(take_last(*tensors), expected)


BATCH, HEADS, LENGTH, HYPOTHESES, DIM = 2, 3, 5, 2, 4
RANDOM = np.random.default_rng(0)
STATES = RANDOM.normal(size=(BATCH, HEADS, LENGTH, HYPOTHESES * DIM))
NEW = RANDOM.normal(size=(BATCH, HEADS, HYPOTHESES, DIM))


@pytest.mark.parametrize("index", [(0, 0), (3, 3), (LENGTH - 1, 0), (1, 4)])
def test_writing_rows_equals_choosing_entries(index):
    here = np.arange(LENGTH)[:, None] == np.reshape(index, (BATCH, 1, 1, 1))
    expected = np.where(here, NEW.reshape(BATCH, HEADS, 1, -1), STATES)
    states, new = (ops.convert_to_tensor(x, "float32") for x in (STATES, NEW))
    rows = rows_at(ops.convert_to_tensor(index, "int32"), HEADS, LENGTH)
    written = write_rows(states, rows, new)
    np.testing.assert_array_equal(
        ops.convert_to_numpy(written), expected.astype("float32")
    )
