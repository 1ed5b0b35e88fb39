import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.serving import next_version
from keras_transformer.serving.server_files import compiled_batches


@pytest.mark.parametrize(
    ("names", "version"),
    [((), "1"), (("1",), "2"), (("2", "9", "10"), "11"), (("3", "x", ".7"), "4")],
)
def test_the_next_version_is_one_above_the_highest(tmp_path, names, version):
    for name in names:
        (tmp_path / name).mkdir()
    assert next_version(tmp_path) == tmp_path / version


@pytest.mark.parametrize(
    ("rows", "shape"),
    [(1, (1, 1)), (2, (1, 8)), (8, (1, 8)), (9, (1, 32)), (33, (2, 32)), (70, (3, 32))],
)
def test_few_sizes_are_compiled_and_filled_up_with_copies(rows, shape):
    batches = compiled_batches(tf.constant(rows)).numpy()
    assert batches.tolist() == np.resize(np.arange(rows), shape).tolist()
