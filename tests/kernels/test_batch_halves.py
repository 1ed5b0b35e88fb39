import numpy as np
import pytest
from keras import ops

from keras_transformer.kernels import batch_halves
from keras_transformer.kernels.batch_halves import search_in_halves


def spy(searched):
    """A search that notes how many rows it is called with."""

    def find(batch):
        searched.append(len(batch))
        return 2 * batch, batch[:, 0]

    return find


def rows_of_two(num_rows):
    return np.arange(2 * num_rows, dtype="int32").reshape(num_rows, 2)


@pytest.mark.needs_tensorflow
@pytest.mark.parametrize(
    ("rows", "num_slots", "searched"),
    [(2, 3, [2]), (4, 3, [2, 2]), (8, 1, [8]), (8, 3, [4, 4]), (1, 99, [1])],
)
def test_a_large_batch_is_searched_in_halves(rows, num_slots, searched, monkeypatch):
    monkeypatch.setattr(batch_halves, "MIN_HYPOTHESES", 12)
    found, source_ids = [], rows_of_two(rows)
    find = search_in_halves(spy(found), num_slots)
    doubled, first = find(ops.convert_to_tensor(source_ids))
    assert found == searched
    np.testing.assert_array_equal(doubled, 2 * source_ids)
    np.testing.assert_array_equal(first, source_ids[:, 0])
