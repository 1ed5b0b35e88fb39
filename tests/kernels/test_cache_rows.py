import numpy as np
import pytest
from keras import ops

from keras_transformer.kernels.selection import rows_at, write_rows

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
