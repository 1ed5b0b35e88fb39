import numpy as np
import pytest
from keras import ops

from keras_transformer.decoding.cache import (
    inherit_lineage,
    own_lineage,
    visible_entries,
    write_position,
)


@pytest.mark.parametrize("num_hypotheses", [1, 2, 5])
def test_a_hypothesis_sees_what_it_wrote_and_what_its_ancestors_wrote(num_hypotheses):
    batch_size, max_length = 3, 7
    random = np.random.default_rng(11)
    lineage = own_lineage(batch_size, num_hypotheses, max_length)
    # The slots of each hypothesis' ancestors, itself the last.
    past = [[[] for _ in range(num_hypotheses)] for _ in range(batch_size)]
    for index in range(max_length):
        visible = ops.convert_to_numpy(visible_entries(lineage, index))
        assert visible.shape == (batch_size, num_hypotheses, max_length, num_hypotheses)
        for sentence in range(batch_size):
            for slot in range(num_hypotheses):
                past[sentence][slot] = [*past[sentence][slot], slot]
                expected = np.zeros((max_length, num_hypotheses), bool)
                expected[range(index + 1), past[sentence][slot]] = True
                np.testing.assert_array_equal(visible[sentence, slot], expected)
        parents = random.integers(num_hypotheses, size=(batch_size, num_hypotheses))
        lineage = inherit_lineage(
            lineage, ops.convert_to_tensor(parents, "int32"), index
        )
        past = [
            [past[sentence][parent] for parent in parents[sentence]]
            for sentence in range(batch_size)
        ]


def test_a_position_is_written_and_the_others_stay():
    table = np.arange(30, dtype="int32").reshape(2, 3, 5)
    values = -np.arange(1, 7, dtype="int32").reshape(2, 3)
    written = ops.convert_to_numpy(write_position(table, 3, values))
    np.testing.assert_array_equal(written[..., 3], values)
    others = [0, 1, 2, 4]
    np.testing.assert_array_equal(written[..., others], table[..., others])
