import gc

import keras
import numpy as np
import pytest
from forked import run_program
from keras import ops

from keras_transformer import models, training
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


def train_a_model(optimizer):
    model = models.LanguageModel(
        17, num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=11
    )
    model.compile(optimizer, training.TokenCrossentropy())
    ids = np.array([[2, 5, 7, 3]])
    model.fit(ids, ids, verbose=0)


def count_graphs():
    import tensorflow as tf

    gc.collect()
    return sum(isinstance(x, tf.__internal__.FuncGraph) for x in gc.get_objects())


@pytest.mark.quick("muon", "keras")
@pytest.mark.parametrize(
    "optimizer",
    [
        training.Muon,
        lambda: training.Adam(gradient_accumulation_steps=3, clipnorm=1.0),
        lambda: "adam",
        lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()),
    ],
    ids=["muon", "adam", "keras", "loss scale"],
)
@pytest.mark.needs_tensorflow
def test_the_graphs_of_a_training_are_freed(optimizer):
    before = count_graphs()
    train_a_model(optimizer())
    assert count_graphs() <= before


MODEL = """
import gc
import keras
import tensorflow as tf
import keras_transformer as kt

def graphs():
    gc.collect()
    return sum(isinstance(x, tf.__internal__.FuncGraph) for x in gc.get_objects())

def use():
    model = kt.models.Transformer(
        17, num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=11
    )
    loss, ids = kt.training.TokenCrossentropy(0.1), tf.constant([[2, 5, 7, 3]])
    inputs = {"source_ids": ids, "target_ids": ids}

    @tf.function
    def gradients():
        with tf.GradientTape() as tape:
            value = loss(ids, model(inputs, training=True))
        return tape.gradient(value, model.trainable_weights)

    gradients()
    model.predict(inputs, verbose=0)
    model.generate(ids, max_length=3)
    model.compile(kt.training.Adam(), loss)
    model.fit(inputs, ids, verbose=0)

before = graphs()
use()
print(graphs() - before)
"""


@pytest.mark.slow
@pytest.mark.needs_tensorflow
def test_the_graphs_of_a_deleted_model_are_freed():
    assert run_program(MODEL).stdout.split() == ["0"]
