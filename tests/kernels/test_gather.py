import numpy as np
import pytest
from keras import ops

from keras_transformer.kernels.selection import take_last, take_one, take_rows


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
