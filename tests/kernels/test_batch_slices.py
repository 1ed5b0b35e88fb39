import keras
import numpy as np
import pytest
from forked import run_program

from keras_transformer.models import LanguageModel, Transformer
from keras_transformer.training import (
    Perplexity,
    TokenAccuracy,
    TokenCrossentropy,
    train_in_parts,
)

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="shapes TensorFlow's steps"
)
RANDOM = np.random.default_rng(0)
VOCABULARY = 13


def batch(rows):
    """Sentences of very different lengths, so that the parts count differently."""
    source, target = RANDOM.integers(3, VOCABULARY, (2, rows, 8))
    for ids in (source, target):
        for row, kept in enumerate(ids):
            kept[2 + 6 * row // max(rows - 1, 1) :] = 0
    inputs = {"source_ids": source, "target_ids": target[:, :-1]}
    return inputs, target[:, 1:]


def trained(data, parts=None, weights=None, loss=None, optimizer=None):
    """Logs of two steps, and the weights after them."""
    keras.utils.set_random_seed(3)
    model = Transformer(
        VOCABULARY,
        num_layers=1,
        hidden_dim=8,
        num_heads=2,
        intermediate_dim=16,
        dropout=0.0,
    )
    if parts:
        assert train_in_parts(model, parts) is model
    model.compile(
        optimizer or keras.optimizers.SGD(0.5),
        loss or TokenCrossentropy(0.1),
        weighted_metrics=[TokenAccuracy(), Perplexity()],
        jit_compile=False,
    )
    logs = [
        model.train_on_batch(*data, sample_weight=weights, return_dict=True)
        for _ in range(2)
    ]
    return logs, model.get_weights()


def assert_equal(ours, theirs):
    for own, their in zip(ours[0], theirs[0], strict=True):
        assert own.keys() == their.keys()
        for name in own:
            assert own[name] == pytest.approx(their[name], rel=1e-4), name
    for own, their in zip(ours[1], theirs[1], strict=True):
        np.testing.assert_allclose(own, their, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("rows", "parts"), [(6, 1), (6, 2), (7, 3), (1, 2)])
def test_a_step_in_parts_equals_one_of_the_whole_batch(rows, parts):
    data = batch(rows)
    assert_equal(trained(data, parts), trained(data))


def test_sample_weights_weigh_the_parts():
    data = batch(6)
    weights = np.array([0, 5, 1, 0.5, 2, 3])
    whole = trained(data, weights=weights)
    assert_equal(trained(data, 2, weights), whole)
    with pytest.raises(AssertionError):
        assert_equal(trained(data, 2), whole)


def test_fit_takes_batches_of_any_size_and_reports_the_mean():
    inputs, labels = batch(7)
    losses = []
    for parts in (None, 2):
        keras.utils.set_random_seed(3)
        model = LanguageModel(VOCABULARY, 1, 8, 2, 16, dropout=0.0)
        if parts:
            train_in_parts(model, parts)
        model.compile(keras.optimizers.SGD(0.5), TokenCrossentropy())
        ids = inputs["target_ids"]
        losses += model.fit(ids, labels, batch_size=3, verbose=0).history["loss"]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_a_loss_that_is_scaled_gives_the_same_step():
    data = batch(4)
    scaling = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.5))
    assert_equal(trained(data, 2, optimizer=scaling), trained(data))


@pytest.mark.parametrize("parts", [0, -1])
def test_parts_are_positive(parts):
    with pytest.raises(ValueError, match=f"positive.*parts={parts}"):
        train_in_parts(keras.Sequential(), parts)


def test_another_loss_is_told_what_is_missing():
    with pytest.raises(ValueError, match="needs `TokenCrossentropy`.*Received: loss"):
        trained(batch(4), 2, loss="sparse_categorical_crossentropy")


REPLICAS = """
import keras
import numpy as np
import tensorflow as tf
from keras_transformer.training import TokenCrossentropy, train_in_parts

[cpu] = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * 2
)
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    model = keras.Sequential([keras.layers.Embedding(5, 5)])
    train_in_parts(model).compile("sgd", TokenCrossentropy())
model.fit(np.ones((4, 3)), np.ones((4, 3)), verbose=0)
"""


def test_replicas_are_refused():
    done = run_program(REPLICAS)
    assert done.returncode
    assert "is for one device. Received: a strategy of 2 replicas" in done.stderr


def test_a_model_in_training_goes_on_in_parts():
    ids = np.ones((4, 3), "int32")
    model = keras.Sequential([keras.layers.Embedding(5, 5)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.train_on_batch(ids, ids)
    train_in_parts(model)
    with pytest.raises(ValueError, match="needs `TokenCrossentropy`"):
        model.train_on_batch(ids, ids)
