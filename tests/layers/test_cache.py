import numpy as np
import pytest
from keras import (
    ops,
)

from keras_transformer.layers.cache import (
    first_length,
    inherit_lineage,
    read_position,
    visible_entries,
    write_position,
)
from keras_transformer.layers.keys_values import KeyValues, lengthen_cache


@pytest.mark.parametrize(
    ("max_length", "num_hypotheses", "length"),
    [
        (100, 1, 100),
        (300, 1, 256),
        (999, 1, 256),
        (100, 3, 64),
        (64, 4, 32),
        (1, 999, 1),
    ],
)
def test_a_cache_is_short_at_first_if_that_saves_enough(
    max_length, num_hypotheses, length
):
    assert first_length(max_length, num_hypotheses) == length


def test_a_longer_cache_keeps_its_entries_and_gets_zeros():
    keys, values = np.ones((2, 3, 5, 7)), np.full((2, 3, 5, 11), 2.0)
    cache = [KeyValues(keys, values, positions=np.full((2, 5), 3))]
    [longer] = lengthen_cache(cache, 13)
    for states, width, value in ((longer.keys, 7, 1), (longer.values, 11, 2)):
        states = np.asarray(states)
        assert states.shape == (2, 3, 13, width)
        assert (states[:, :, :5] == value).all()
        assert not states[:, :, 5:].any()
    np.testing.assert_array_equal(longer.positions, [[3] * 5 + [0] * 8] * 2)


@pytest.mark.parametrize("num_hypotheses", [1, 2, 5])
def test_a_hypothesis_sees_what_it_wrote_and_what_its_ancestors_wrote(num_hypotheses):
    batch_size, max_length = 3, 7
    random = np.random.default_rng(11)
    shape = (batch_size, num_hypotheses, max_length)
    own_slots = ops.arange(num_hypotheses, dtype="int32")[:, None]
    lineage = ops.broadcast_to(own_slots, shape)
    # The slots of each hypothesis' ancestors, itself the last.
    past = [[[] for _ in range(num_hypotheses)] for _ in range(batch_size)]
    for index in range(max_length):
        positions = ops.full((batch_size,), index, dtype="int32")
        visible = ops.convert_to_numpy(visible_entries(lineage, positions))
        assert visible.shape == (batch_size, num_hypotheses, max_length, num_hypotheses)
        for sentence in range(batch_size):
            for slot in range(num_hypotheses):
                past[sentence][slot] = [*past[sentence][slot], slot]
                expected = np.zeros((max_length, num_hypotheses), bool)
                expected[range(index + 1), past[sentence][slot]] = True
                np.testing.assert_array_equal(visible[sentence, slot], expected)
        parents = random.integers(num_hypotheses, size=(batch_size, num_hypotheses))
        lineage = inherit_lineage(
            lineage, ops.convert_to_tensor(parents, "int32"), positions
        )
        past = [
            [past[sentence][parent] for parent in parents[sentence]]
            for sentence in range(batch_size)
        ]


def test_every_sentence_has_a_position_of_its_own():
    random = np.random.default_rng(11)
    lineage = ops.convert_to_tensor(random.integers(2, size=(3, 2, 7)), "int32")
    parents = ops.convert_to_tensor(random.integers(2, size=(3, 2)), "int32")
    index = ops.convert_to_tensor([4, 0, 6], "int32")

    def alone(function, *arguments):
        rows = [
            function(*(x[row : row + 1] for x in arguments), index[row : row + 1])
            for row in range(3)
        ]
        return np.concatenate(list(map(ops.convert_to_numpy, rows)))

    for function, arguments in (
        (visible_entries, (lineage,)),
        (inherit_lineage, (lineage, parents)),
    ):
        together = ops.convert_to_numpy(function(*arguments, index))
        np.testing.assert_array_equal(together, alone(function, *arguments))


def test_a_position_is_written_and_read_and_the_others_stay():
    table = np.arange(30, dtype="int32").reshape(2, 3, 5)
    values = -np.arange(1, 7, dtype="int32").reshape(2, 3)
    index = np.array([3, 1], "int32")
    np.testing.assert_array_equal(
        read_position(table, index), [table[0, :, 3], table[1, :, 1]]
    )
    written = np.array(write_position(table, index, values))
    np.testing.assert_array_equal(read_position(written, index), values)
    written[0, :, 3], written[1, :, 1] = table[0, :, 3], table[1, :, 1]
    np.testing.assert_array_equal(written, table)
