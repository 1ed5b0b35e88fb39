import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import causal_mask, padding_mask


def test_padding_mask_marks_real_tokens():
    ids = np.array([[7, 5, 0, 0, 0], [3, 3, 3, 0, 0], [2, 4, 6, 8, 9]])
    expected = [[1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    mask = ops.convert_to_numpy(padding_mask(ids))
    assert mask.dtype == bool
    np.testing.assert_array_equal(mask, np.array(expected, bool))


def test_padding_mask_knows_another_padding():
    mask = padding_mask(np.array([[0, 5, 7, 7], [7, 7, 7, 7]]), pad_id=7)
    expected = [[True, True, False, False], [False, False, False, False]]
    np.testing.assert_array_equal(ops.convert_to_numpy(mask), expected)


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint16", "int64"])
def test_padding_mask_takes_every_kind_of_integer(dtype):
    if dtype == "int64" and keras.backend.backend() == "jax":
        pytest.skip("JAX has no int64, unless a user asks it to.")
    mask = padding_mask(ops.convert_to_tensor([[3, 0]], dtype))
    np.testing.assert_array_equal(ops.convert_to_numpy(mask), [[True, False]])


def test_causal_mask_hides_what_comes_after():
    expected = [
        [
            [1, 0, 0, 0, 0],
            [1, 1, 0, 0, 0],
            [1, 1, 1, 0, 0],
            [1, 1, 1, 1, 0],
            [1, 1, 1, 1, 1],
        ]
    ]
    mask = ops.convert_to_numpy(causal_mask(5))
    assert mask.dtype == bool
    np.testing.assert_array_equal(mask, np.array(expected, bool))


def test_causal_mask_of_a_single_position():
    np.testing.assert_array_equal(ops.convert_to_numpy(causal_mask(1)), [[[True]]])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bool"])
def test_ids_that_are_not_integers_are_refused(dtype):
    ids = ops.ones((2, 3), dtype)
    with pytest.raises(
        ValueError, match=f"`ids` must be integers.* Received: ids of dtype {dtype}"
    ):
        padding_mask(ids)
