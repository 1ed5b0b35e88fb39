"""Rematerialised layers give the gradients that they give otherwise."""

import collections
import functools

import keras
import numpy as np
import pytest
from gradients import gradients
from keras import ops

from keras_transformer import layers, models
from keras_transformer.kernels.dropout import Dropout
from keras_transformer.training import TokenCrossentropy

STATES = np.random.default_rng(3).normal(size=(2, 5, 8)).astype("float32")
MASK = np.array([[True] * 5, [True] * 3 + [False] * 2])
DROPOUT = {"dropout": 0.3, "attention_dropout": 0.3, "seed": 7}


def layer_gradients(layer, *args, **kwargs):
    """The gradients of the first argument and of all weights."""

    def total(inputs, *weights):
        fixed = [variable.value for variable in layer.non_trainable_variables]
        outputs, _ = layer.stateless_call(weights, fixed, inputs, *args[1:], **kwargs)
        return ops.sum(ops.square(outputs))

    return gradients(total, [args[0], *[x.value for x in layer.trainable_variables]])


CASES = {
    "encoder": (
        lambda: layers.Encoder(2, 2, 16, positions="rotary", **DROPOUT),
        (STATES,),
        {"mask": MASK, "training": True},
    ),
    "decoder": (
        lambda: layers.Decoder(1, 2, 16, normalize_first=True, **DROPOUT),
        (STATES, STATES[:, :3]),
        {"training": True},
    ),
    "attention": (
        lambda: layers.MultiHeadAttention(2, 4),
        (STATES, STATES),
        {"use_causal_mask": True, "training": True},
    ),
    "pooling": (lambda: layers.AttentionPooling(), (STATES,), {"mask": MASK}),
    "dropout": (lambda: Dropout(0.5, seed=3), (STATES,), {"training": True}),
}


@pytest.mark.quick("attention", "pooling", "dropout")
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_the_plain_call(name):
    make, args, kwargs = CASES[name]
    plain = make()
    with keras.RematScope(mode="full"):
        layer = make()
    for each in (plain, layer):
        each.build(*[x.shape for x in args])
    layer.set_weights(plain.get_weights())
    found = layer_gradients(layer, *args, **kwargs)
    expected = layer_gradients(plain, *args, **kwargs)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, 1e-4, 1e-5)
    # The random numbers of the next call are others than those of the first.
    if name != "attention" and kwargs.get("training"):
        first, second = (ops.convert_to_numpy(layer(*args, **kwargs)) for _ in "12")
        assert np.any(first != second)


@pytest.mark.slow
def test_a_whole_model_trains_rematerialised():
    with keras.RematScope(mode="full"):
        model = models.LanguageModel(17, 1, 8, 2, 16, dropout=0.1)
    model.compile("adam", TokenCrossentropy(), jit_compile=False)
    ids = np.array([[2, 5, 7, 3]])
    history = model.fit(ids, ids, verbose=0)
    assert np.all(np.isfinite(history.history["loss"]))


@pytest.mark.quick("LanguageModel")
@pytest.mark.parametrize("name", ["Transformer", "LanguageModel"])
def test_a_model_learns_the_same_if_its_blocks_are_computed_again(name):
    sizes = {"num_layers": 1, "hidden_dim": 8, "num_heads": 2, "intermediate_dim": 16}
    settings = {**sizes, "dropout": 0.1, "attention_dropout": 0.1, "seed": 3}
    ids = np.array([[5, 7, 3, 0], [5, 4, 8, 3]])
    inputs, found = ids, []
    if name == "Transformer":
        inputs = {"source_ids": ids, "target_ids": ids}
    for mode in (None, "full"):
        keras.utils.set_random_seed(5)
        with keras.RematScope(mode):
            model = getattr(models, name)(17, **settings)
        model.compile(keras.optimizers.SGD(0.1), TokenCrossentropy(), jit_compile=False)
        model.fit(inputs, ids, epochs=2, shuffle=False, verbose=0)
        found.append(model.get_weights())
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, 1e-4, 1e-6)


@pytest.mark.needs_tensorflow
def test_a_step_reads_a_weight_once():
    """Grappler drops the order of a second reading and the update of the weight."""
    import tensorflow as tf

    with keras.RematScope("full"):
        model = models.LanguageModel(17, 1, 8, 2, 16)
    ids = np.array([[2, 5, 7, 3]])

    @tf.function
    def gradients():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(ids, training=True))
        return tape.gradient(loss, model.trainable_variables)

    graph = gradients.get_concrete_function().graph
    handles = {x.name: id(handle) for handle, x in graph.captures}
    operations = [x for x in graph.get_operations() if x.type == "ReadVariableOp"]
    reads = collections.Counter(handles[x.inputs[0].name] for x in operations)
    for weight in model.get_layer("decoder").trainable_variables:
        assert reads[id(weight.value.handle)] == 1, weight.path


@pytest.mark.needs_tensorflow
@pytest.mark.parametrize(
    ("scope", "again"),
    [
        (("full",), ["block_1", "block_0"]),
        (("list_of_layers", 1024, ["block_0"]), ["block_0"]),
        (("list_of_layers", 1024, ["decoder"]), ["block_0", "block_1"]),
    ],
)
def test_what_is_computed_again(scope, again, monkeypatch):
    """One block after the other, so that the activations of one are in memory."""
    called, call = [], layers.CausalBlock.call

    @functools.wraps(call)
    def noted(self, *args, **kwargs):
        called.append(self.name)
        return call(self, *args, **kwargs)

    monkeypatch.setattr(layers.CausalBlock, "call", noted)
    with keras.RematScope(*scope):
        model = models.LanguageModel(17, 2, 8, 2, 16)
    model.compile("sgd", TokenCrossentropy(), run_eagerly=True)
    ids = np.array([[2, 5, 7, 3]])
    called.clear()
    model.train_on_batch(ids, ids)
    assert called == ["block_0", "block_1", *again]


@pytest.mark.slow
@pytest.mark.needs_tensorflow
def test_layers_train_in_a_graph():
    with keras.RematScope(mode="full"):
        encoder = layers.Encoder(2, 2, 16, **DROPOUT)
    model = keras.Sequential([keras.Input((5, 8)), encoder])
    model.compile("adam", "mse")
    before = model.get_weights()
    model.fit(STATES, STATES, verbose=0)
    moved = [np.any(x != y) for x, y in zip(before, model.get_weights(), strict=True)]
    assert all(moved)
