import gc

import keras
import numpy as np
import pytest
from forked import run_program
from gradients import gradients
from keras import ops

from keras_transformer import models, training
from keras_transformer.kernels.attention import attend
from keras_transformer.kernels.crossentropy import smoothed_crossentropy
from keras_transformer.kernels.graphs import shape_of
from keras_transformer.kernels.layer_norm import LayerNormalization
from keras_transformer.kernels.tied_logits import tied_logits
from keras_transformer.layers import masked_softmax


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


@pytest.mark.parametrize(
    "function",
    [
        lambda x: smoothed_crossentropy(np.array([[1, 2], [0, 4], [3, 3]]), x, 0.1),
        lambda x: tied_logits(x, ops.ones((7, 5))),
        lambda x: LayerNormalization()(x),
        lambda x: attend(*[x[:, None]] * 3, masked_softmax)[:, 0],
    ],
    ids=["crossentropy", "tied logits", "layer norm", "attention"],
)
def test_some_rows_have_the_gradients_that_all_have(function):
    inputs = np.random.default_rng(3).normal(size=(3, 2, 5)).astype("float32")

    def of_rows(inputs):  # whose gradient TensorFlow keeps as rows
        return ops.sum(ops.square(ops.take(function(inputs), [2, 1], axis=0)))

    def of_all(inputs):
        outputs = function(inputs)
        chosen = np.reshape([0.0, 1.0, 1.0], (3,) + (1,) * (len(outputs.shape) - 1))
        chosen = ops.convert_to_tensor(chosen, "float32")
        return ops.sum(ops.square(outputs) * chosen)

    [expected], [found] = (gradients(f, [inputs]) for f in (of_all, of_rows))
    assert np.any(expected)
    np.testing.assert_allclose(found, expected, 1e-4, 1e-6)


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


@pytest.mark.quick("muon")
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
