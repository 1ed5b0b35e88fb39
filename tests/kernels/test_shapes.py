import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.kernels.graphs import shape_of


def test_lengths_that_are_known_are_integers():
    assert shape_of(ops.ones((2, 3, 5))) == (2, 3, 5)
    assert shape_of(keras.KerasTensor((None, 3))) == (None, 3)


@pytest.mark.needs_tensorflow
def test_unknown_lengths_are_found_when_the_graph_runs():
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec([None, 3, None])])
    def lengths(states):
        first, known, last = shape_of(states)
        assert known == 3
        operations = states.graph.get_operations()
        kinds.append([operation.type for operation in operations])
        return first, last

    kinds = []
    for size in ((2, 3, 5), (7, 3, 11)):
        first, last = lengths(np.ones(size, "float32"))
        assert (int(first), int(last)) == (size[0], size[2])
    assert [kind for kind in kinds[0] if kind != "Placeholder"] == ["Shape", "Unpack"]
