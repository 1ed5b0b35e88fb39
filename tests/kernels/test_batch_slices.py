import itertools
import os

import keras
import numpy as np
import pytest
from forked import run_program

from keras_transformer.kernels import target
from keras_transformer.kernels.batch_slices import BatchSlicesMixin
from keras_transformer.models import LanguageModel, Transformer
from keras_transformer.training import (
    Adam,
    Perplexity,
    TokenAccuracy,
    TokenCrossentropy,
)

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="shapes TensorFlow's steps"
)
RANDOM = np.random.default_rng(0)
VOCABULARY = 13
IDS = np.array([[1, 2, 3, 0], [4, 0, 0, 0]], "int32")


class Bigrams(BatchSlicesMixin, keras.Model):
    """The smallest model that predicts the next token."""


def bigrams():
    ids = keras.Input((None,), dtype="int32")
    return Bigrams(ids, keras.layers.Embedding(VOCABULARY, VOCABULARY)(ids))


def batch(rows):
    """Sentences of very different lengths, so that the slices count differently."""
    source, target = RANDOM.integers(3, VOCABULARY, (2, rows, 8))
    for ids in (source, target):
        for row, kept in enumerate(ids):
            kept[2 + 6 * row // max(rows - 1, 1) :] = 0
    inputs = {"source_ids": source, "target_ids": target[:, :-1]}
    return inputs, target[:, 1:]


def trained(data, slices=1, weights=None):
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
    model.compile(
        keras.optimizers.SGD(0.5),
        TokenCrossentropy(0.1),
        weighted_metrics=[TokenAccuracy(), Perplexity()],
        jit_compile=False,
        batch_slices=slices,
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


@pytest.mark.parametrize(("rows", "slices"), [(6, 2), (7, 3), (1, 2)])
def test_a_step_in_slices_equals_that_of_keras(rows, slices):
    data = batch(rows)
    assert_equal(trained(data, slices), trained(data))


def test_one_slice_is_the_step_of_keras(monkeypatch):
    model = bigrams()
    monkeypatch.setattr(keras.Model, "train_step", lambda model, data: {"loss": 7.0})
    for slices, is_kerass in ((1, True), (2, False)):
        model.compile("sgd", TokenCrossentropy(), batch_slices=slices)
        loss = model.train_on_batch(IDS, IDS)
        assert (loss == 7) is is_kerass


@pytest.mark.parametrize(
    ("loss", "settings", "num_slices"),
    [
        (TokenCrossentropy(), {"jit_compile": False}, 2),
        (TokenCrossentropy(), {"jit_compile": False, "batch_slices": 1}, 1),
        (TokenCrossentropy(), {"jit_compile": True}, 1),
        ("sparse_categorical_crossentropy", {"jit_compile": False}, 1),
    ],
)
def test_a_cpu_of_several_cores_takes_slices_by_itself(
    loss, settings, num_slices, monkeypatch
):
    monkeypatch.setattr(target, "computes_each_operation_in_one_thread", lambda: True)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    model, taken = bigrams(), []
    in_slices = model._train_step_in_slices
    model._train_step_in_slices = lambda n, data: taken.append(n) or in_slices(n, data)
    model.compile("sgd", loss, **settings)
    model.train_on_batch(IDS, IDS)
    assert taken == ([num_slices] if num_slices > 1 else [])


@pytest.mark.parametrize(("num_cores", "one_thread"), [(1, True), (4, False)])
def test_one_core_or_split_operations_take_the_whole_batch(
    num_cores, one_thread, monkeypatch
):
    asked = "computes_each_operation_in_one_thread"
    monkeypatch.setattr(target, asked, lambda: one_thread)
    monkeypatch.setattr(os, "cpu_count", lambda: num_cores)
    model = bigrams()
    monkeypatch.setattr(model, "_train_step_in_slices", None)
    model.compile("sgd", TokenCrossentropy())
    assert model.train_on_batch(IDS, IDS) > 0


@pytest.mark.parametrize(
    ("rows", "is_known"), [(7, False), (8, False), (9, False), (9, True)]
)
def test_slices_of_a_batch_are_traced_once(rows, is_known):
    import tensorflow as tf

    model, calls = bigrams(), []
    forward = model.call
    model.call = lambda *args, **kwargs: calls.append(1) or forward(*args, **kwargs)
    model.compile("sgd", TokenCrossentropy(), jit_compile=False, batch_slices=3)
    ids = np.ones((rows, 5), "int32")
    pairs = (
        tf.data.Dataset.from_tensors((ids, ids))
        .unbatch()
        .batch(rows, drop_remainder=is_known)
    )
    model.fit(pairs, shuffle=False, verbose=0)
    assert len(calls) == 1


def test_each_slice_draws_numbers_of_its_own_anew_in_every_step():
    import tensorflow as tf

    seen = []

    class Watched(keras.layers.Dropout):
        def call(self, inputs, training=False):
            outputs = super().call(inputs, training=training)
            if training:
                tf.py_function(lambda x: seen.append(x.numpy()), [outputs], [])
            return outputs

    ids = keras.Input((None,), dtype="int32")
    states = Watched(0.5)(keras.layers.Embedding(VOCABULARY, VOCABULARY, "ones")(ids))
    model = Bigrams(ids, states)
    model.compile(keras.optimizers.SGD(0.0), TokenCrossentropy(), batch_slices=2)
    for _ in range(2):
        model.train_on_batch(np.ones((6, 5)), np.ones((6, 5)))
    assert len(seen) == 4
    for one, other in itertools.combinations(seen, 2):
        assert np.any(one != other)


def test_slices_sum_what_is_a_sum_and_agree_on_all_else():
    class Counts(keras.layers.Layer):
        def build(self, _):
            settings = {"initializer": "zeros", "trainable": False}
            self.counts = [
                self.add_weight(dtype="float32", aggregation="sum", **settings),
                self.add_weight(dtype="float32", **settings),
                self.add_weight(dtype="int32", **settings),
            ]

        def call(self, inputs):
            for count in self.counts:
                rows = keras.ops.shape(inputs)[0]
                count.assign_add(keras.ops.cast(rows, count.dtype))
            return inputs

    ids, layer = keras.Input((None,), dtype="int32"), Counts()
    states = layer(keras.layers.Embedding(VOCABULARY, VOCABULARY)(ids))
    model = Bigrams(ids, states)
    model.compile("sgd", TokenCrossentropy(), batch_slices=2)
    for _ in range(2):
        model.train_on_batch(np.ones((7, 5)), np.ones((7, 5)))
    # Slices of 3 and 4 rows: their sum, their mean and the largest integer.
    assert [float(count) for count in layer.counts] == [14, 7, 8]


def test_regularizers_and_added_losses_count_as_in_the_whole_batch():
    class Adds(keras.layers.Layer):
        def call(self, inputs):
            self.add_loss(keras.ops.mean(inputs**2))
            return inputs

    found = []
    for slices in (1, 2):
        keras.utils.set_random_seed(3)
        ids = keras.Input((None,), dtype="int32")
        table = keras.layers.Embedding(
            VOCABULARY, VOCABULARY, embeddings_regularizer=keras.regularizers.L2(0.5)
        )
        model = Bigrams(ids, Adds()(table(ids)))
        model.compile(
            keras.optimizers.SGD(0.5),
            TokenCrossentropy(),
            jit_compile=False,
            batch_slices=slices,
        )
        rows = RANDOM.permutation(np.tile(np.arange(1, 5), (6, 1)))
        logs = model.train_on_batch(rows, rows, return_dict=True)
        found.append(([logs], model.get_weights()))
    assert_equal(*found)


def test_sample_weights_weigh_the_slices():
    data = batch(6)
    weights = np.array([0, 5, 1, 0.5, 2, 3])
    whole = trained(data, weights=weights)
    assert_equal(trained(data, 2, weights), whole)
    with pytest.raises(AssertionError):
        assert_equal(trained(data, 2), whole)


def test_fit_takes_batches_of_any_size_and_reports_the_mean():
    inputs, labels = batch(7)
    found = []
    for slices in (1, 2):
        keras.utils.set_random_seed(3)
        model = LanguageModel(VOCABULARY, 1, 8, 2, 16, dropout=0.0)
        model.compile(
            keras.optimizers.SGD(0.5),
            TokenCrossentropy(),
            metrics=[TokenAccuracy(), Perplexity()],
            batch_slices=slices,
        )
        ids = inputs["target_ids"]
        settings = {"batch_size": 3, "epochs": 2, "shuffle": False, "verbose": 0}
        found.append(model.fit(ids, labels, **settings).history)
    assert found[0].keys() == found[1].keys()
    for name, values in found[0].items():
        assert found[1][name] == pytest.approx(values, rel=1e-3), name


def test_a_loss_that_is_scaled_gives_the_same_step():
    inputs, labels = batch(4)
    weights = []
    for slices in (1, 2):
        keras.utils.set_random_seed(3)
        model, optimizer = bigrams(), keras.optimizers.SGD(0.5)
        if slices > 1:
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
        model.compile(
            optimizer, TokenCrossentropy(0.1), jit_compile=False, batch_slices=slices
        )
        before = model.get_weights()
        for _ in range(2):
            model.train_on_batch(inputs["target_ids"], labels)
        weights += model.get_weights()
    np.testing.assert_allclose(*weights, rtol=1e-3, atol=1e-5)
    assert np.any(np.abs(weights[0] - before[0]) > 0.01)


def test_a_model_can_be_compiled_again_with_other_slices():
    data, model = batch(6), bigrams()
    ids, labels = data[0]["target_ids"], data[1]
    calls = []
    forward = model.call
    model.call = lambda *args, **kwargs: calls.append(1) or forward(*args, **kwargs)
    for slices in (1, 3, 2, 1):
        calls.clear()
        model.compile("sgd", TokenCrossentropy(), run_eagerly=True, batch_slices=slices)
        model.train_on_batch(ids, labels)
        assert len(calls) == slices


@pytest.mark.parametrize("slices", ["auto", 1, 2])
def test_a_saved_model_keeps_its_slices(slices, tmp_path):
    model = LanguageModel(VOCABULARY, 1, 8, 2, 16, dropout=0.0)
    model.compile(Adam(), TokenCrossentropy(0.1), batch_slices=slices)
    model.train_on_batch(IDS, IDS)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.batch_slices == slices
    assert loaded.get_compile_config() == model.get_compile_config()
    variables = zip(loaded.optimizer.variables, model.optimizer.variables, strict=True)
    for found, expected in variables:
        np.testing.assert_array_equal(found.numpy(), expected.numpy())
    # As in files of versions that had no slices.
    assert ("batch_slices" in model.get_compile_config()) is (slices != "auto")
    losses = [x.train_on_batch(IDS, IDS) for x in (model, loaded)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_a_model_that_was_never_compiled_has_no_compile_config():
    assert bigrams().get_compile_config() == {}


@pytest.mark.parametrize("slices", [0, -1, 1.5])
def test_slices_are_positive_integers(slices):
    message = f"`batch_slices` must be a positive integer.*batch_slices={slices}"
    with pytest.raises(ValueError, match=message):
        bigrams().compile("sgd", TokenCrossentropy(), batch_slices=slices)


def test_a_loss_without_weights_is_refused():
    loss = "sparse_categorical_crossentropy"
    message = f"`loss` must have a method `weights`.*in 2 slices. Received: .*{loss}"
    with pytest.raises(ValueError, match=message):
        bigrams().compile("sgd", loss, batch_slices=2)


REPLICAS = """
import keras
import numpy as np
import tensorflow as tf
from keras_transformer.kernels.batch_slices import BatchSlicesMixin
from keras_transformer.training import TokenCrossentropy

[cpu] = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * 2
)
class Bigrams(BatchSlicesMixin, keras.Model):
    pass


with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    ids = keras.Input((None,), dtype="int32")
    model = Bigrams(ids, keras.layers.Embedding(13, 13)(ids))
    model.compile("sgd", TokenCrossentropy(), jit_compile=False, batch_slices=2)
ids = np.ones((4, 3), "int32")
model.fit(ids, ids, verbose=0)
"""


def test_replicas_are_refused():
    done = run_program(REPLICAS)
    assert done.returncode
    message = "`batch_slices` must be 1 with 2 replicas. Received: batch"
    assert message in done.stderr


def test_other_backends_are_refused(monkeypatch):
    model = bigrams()
    model.compile("sgd", TokenCrossentropy(), batch_slices=2, run_eagerly=True)
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    message = "Training in 2 slices needs the TensorFlow backend.*=torch"
    with pytest.raises(ValueError, match=message):
        model.train_on_batch(IDS, IDS)
