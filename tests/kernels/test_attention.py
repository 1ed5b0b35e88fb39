"""What is computed without scores is what is computed with them."""

import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from gradients import gradients, sum_of_squares, weight_gradients
from keras import ops

from keras_transformer.kernels import attention, target
from keras_transformer.kernels.attention import attend
from keras_transformer.layers import (
    AttentionPositions,
    EncoderBlock,
    LinearPositionBias,
    MultiHeadAttention,
    masked_softmax,
    scaled_dot_product_attention,
)
from keras_transformer.layers.masks import combined_mask

BATCH, HEADS, QUERIES, KEYS, KEY_DIM, WIDTH = 2, 3, 13, 11, 4, 7
BACKEND = keras.backend.backend()


READINGS = ["by blocks", "whole"]
if BACKEND != "tensorflow":
    READINGS += ["fused", "long and fused"]


@pytest.fixture(params=READINGS)
def reading(request, monkeypatch):
    """Small inputs are read as long ones are, then as they are."""
    if request.param in ("by blocks", "long and fused"):
        monkeypatch.setattr(attention, "MAX_UNBLOCKED_LENGTH", 3)
    if request.param == "long and fused":
        monkeypatch.setattr(target, "has_accelerator", lambda: True)
    if "fused" in request.param:
        monkeypatch.setattr(attention, "MAX_UNFUSED_LENGTH", 0)
    monkeypatch.setattr(attention, "BLOCK_LENGTH", 5)


def normal(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).normal(size=shape).astype("float32")


def booleans(*shape):
    return np.random.default_rng(shape).random(shape) < 0.6


def to_numpy(tensor):
    return np.asarray(ops.convert_to_numpy(tensor), "float64")


def biases(query_positions, key_positions):
    positions = LinearPositionBias()
    positions.build((BATCH, HEADS, None, None))
    return positions.bias(query_positions, key_positions)


INPUTS = [
    normal(BATCH, HEADS, QUERIES, KEY_DIM),
    normal(BATCH, HEADS, KEYS, KEY_DIM),
    normal(BATCH, HEADS, KEYS, KEY_DIM, seed=1),
]
NOWHERE = booleans(BATCH, QUERIES, KEYS)
NOWHERE[0, 3:9] = False
MASKS = {
    "no mask": {},
    "causal": {"use_causal_mask": True},
    "queries": {"query_mask": booleans(BATCH, QUERIES)},
    "keys": {"key_mask": booleans(BATCH, KEYS)},
    "nothing in the first row": {"key_mask": booleans(BATCH, KEYS) & [[0], [1]]},
    "pairs": {"attention_mask": NOWHERE},
    "pairs of all rows": {"attention_mask": NOWHERE[:1]},
    "pairs of heads": {"attention_mask": booleans(BATCH, HEADS, QUERIES, KEYS)},
    "one row for all": {"attention_mask": booleans(BATCH, 1, KEYS)},
    "all": {
        "query_mask": booleans(BATCH, QUERIES),
        "key_mask": booleans(BATCH, KEYS),
        "attention_mask": NOWHERE,
        "use_causal_mask": True,
    },
}


@pytest.mark.usefixtures("reading")
@pytest.mark.parametrize(
    ("name", "bias_of"),
    [*((name, None) for name in MASKS), ("no mask", biases), ("all", biases)],
)
def test_outputs_and_gradients_are_those_with_scores(name, bias_of):
    masks = MASKS[name]

    def mask_of(rows):
        return combined_mask(QUERIES, KEYS, **masks, rows=rows)

    def bias_of_rows(rows):
        return bias_of(np.arange(QUERIES) if rows is None else rows, np.arange(KEYS))

    def without(*inputs):
        return attend(*inputs, masked_softmax, mask_of, bias_of and bias_of_rows)

    def with_scores(queries, keys, values):
        bias = bias_of and bias_of_rows(None)
        return scaled_dot_product_attention(queries, keys, values, mask_of(None), bias)[
            0
        ]

    expected = to_numpy(with_scores(*map(ops.convert_to_tensor, INPUTS)))
    outputs = to_numpy(without(*map(ops.convert_to_tensor, INPUTS)))
    np.testing.assert_allclose(outputs, expected, 1e-5, 1e-6)
    assert np.all(outputs[np.all(expected == 0, axis=-1)] == 0)
    slopes, expected = (
        gradients(lambda *x, call=call: sum_of_squares(call(*x)), INPUTS)
        for call in (without, with_scores)
    )
    for slope, its_slope in zip(slopes, expected, strict=True):
        np.testing.assert_allclose(slope, its_slope, 1e-5, 1e-5)


@pytest.mark.quick(
    "float32-None", "float32-rotary", "float32-linear_bias", "bfloat16-rotary"
)
@pytest.mark.usefixtures("reading")
@pytest.mark.parametrize("positions", [None, "rotary", "linear_bias"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_many_heads_learn_the_same_with_scores_and_without(positions, dtype):
    layer = MultiHeadAttention(HEADS, KEY_DIM, positions=positions, dtype=dtype)
    states = normal(BATCH, QUERIES, WIDTH)
    arguments = {"value_mask": booleans(BATCH, QUERIES), "use_causal_mask": True}
    layer(states, states)
    layer.set_weights(
        [normal(*w.shape, seed=i) / 2 for i, w in enumerate(layer.weights)]
    )
    x = ops.cast(states, dtype)
    expected, _ = layer(x, x, **arguments, return_attention_scores=True)
    precision = {"float32": 1e-5, "float16": 5e-3, "bfloat16": 4e-2}[dtype]
    size = np.abs(to_numpy(expected)).max()
    np.testing.assert_allclose(
        to_numpy(layer(x, x, **arguments)), to_numpy(expected), 0, size * precision
    )
    slopes, expected = (
        weight_gradients(
            lambda outputs, scored=scored: sum_of_squares(
                outputs[0] if scored else outputs
            ),
            layer,
            x,
            x,
            **arguments,
            return_attention_scores=scored,
        )
        for scored in (False, True)
    )
    for slope, its_slope in zip(slopes, expected, strict=True):
        size = max(np.abs(x).max() for x in expected)
        np.testing.assert_allclose(slope, its_slope, 0, size * precision)


@pytest.mark.usefixtures("reading")
@pytest.mark.parametrize("hidden", [np.nan, np.inf, 6e4])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_is_masked_makes_no_difference_whatever_it_is(dtype, hidden):
    layer = MultiHeadAttention(HEADS, KEY_DIM, dtype=dtype)
    query, value = normal(BATCH, QUERIES, WIDTH), normal(BATCH, KEYS, WIDTH)
    mask = booleans(BATCH, KEYS)
    mask[1] = False
    expected = to_numpy(layer(query, value, value_mask=mask))
    value[~mask] = hidden
    outputs = to_numpy(layer(query, value, value_mask=mask))
    np.testing.assert_array_equal(outputs, expected)
    assert np.all(np.isfinite(outputs))
    bias = to_numpy(layer.output_projection.bias)
    np.testing.assert_array_equal(outputs[1], np.broadcast_to(bias, outputs[1].shape))


@pytest.mark.usefixtures("reading")
def test_the_future_is_hidden_even_where_its_scores_are_the_largest_in_float16():
    queries, keys, values = (ops.cast(x, "float16") for x in INPUTS)
    future = (np.arange(KEYS) > 6)[:, None]
    huge = ops.where(future, ops.sign(keys) * 200, keys)
    wide = queries * 100

    def causal(rows):
        return combined_mask(QUERIES, KEYS, use_causal_mask=True, rows=rows)

    before, after = (
        to_numpy(attend(wide, x, values, masked_softmax, causal)) for x in (keys, huge)
    )
    np.testing.assert_array_equal(after[:, :, :7], before[:, :, :7])


class LearnedSlope(AttentionPositions):
    def build(self, shape):
        self.slope = self.add_weight(shape=(), initializer="ones", name="slope")

    def bias(self, query_positions, key_positions):
        distances = query_positions[:, None] - key_positions
        return ops.cast(distances, "float32")[None, None] * self.slope


@pytest.mark.usefixtures("reading")
def test_a_bias_that_is_learned_is_learned_without_scores_too():
    layer = MultiHeadAttention(HEADS, KEY_DIM, positions=LearnedSlope())
    states = normal(BATCH, QUERIES, WIDTH)
    layer(states, states)
    names = [w.path for w in layer.trainable_variables]
    slopes = weight_gradients(sum_of_squares, layer, states, states)
    (of_bias,) = (
        x for name, x in zip(names, slopes, strict=True) if name.endswith("slope")
    )
    assert np.abs(of_bias) > 1e-3


@pytest.mark.quick("False")
@pytest.mark.skipif(BACKEND != "tensorflow", reason="shapes are known elsewhere")
@pytest.mark.parametrize("jit_compile", [False, True])
def test_lengths_may_be_unknown_until_they_are_read(monkeypatch, jit_compile):
    import tensorflow as tf

    monkeypatch.setattr(attention, "MAX_UNBLOCKED_LENGTH", 12)
    monkeypatch.setattr(attention, "BLOCK_LENGTH", 5)
    layer = MultiHeadAttention(HEADS, KEY_DIM, positions="linear_bias")
    layer(normal(BATCH, 5, WIDTH), normal(BATCH, 5, WIDTH))
    states = tf.TensorSpec((None, None, WIDTH))
    mask = tf.TensorSpec((None, None), tf.bool)

    def slopes(states, mask, scored=False):
        with tf.GradientTape() as tape:
            tape.watch(states)
            outputs = layer(
                states,
                states,
                value_mask=mask,
                use_causal_mask=True,
                return_attention_scores=scored,
            )
            outputs = outputs[0] if scored else outputs
            loss = sum_of_squares(outputs)
        return outputs, tape.gradient(loss, [states, *layer.trainable_weights])

    compiled = tf.function(
        slopes, input_signature=[states, mask], jit_compile=jit_compile
    )
    for batch, length in ((2, 7), (2, 12), (2, 13), (2, 31), (2, 1), (1, 1)):
        x = tf.constant(normal(batch, length, WIDTH))
        real = tf.constant(booleans(batch, length))
        found, expected = compiled(x, real), slopes(x, real, scored=True)
        size = max(np.abs(x).max() for x in expected[1] if x is not None)
        for ours, theirs in zip(*map(tf.nest.flatten, (found, expected)), strict=True):
            theirs = 0.0 if theirs is None else theirs  # the query of a single key
            np.testing.assert_allclose(ours, theirs, 1e-4, size * 1e-5)


@pytest.mark.needs_tensorflow
@pytest.mark.parametrize(("max_length", "has_condition"), [(1024, False), (1025, True)])
def test_inputs_that_are_known_to_be_short_need_no_condition(max_length, has_condition):
    import tensorflow as tf

    layer = MultiHeadAttention(num_heads=2, key_dim=4)
    states = np.random.default_rng(1).normal(size=(2, 5, 8)).astype("float32")
    expected = layer(states, states)
    signature = [tf.TensorSpec((None, None, 8))]
    traced = tf.function(lambda x: layer(x, x), input_signature=signature)
    with attention.no_blocks(max_length):
        graph = traced.get_concrete_function().graph
    assert any("If" in op.type for op in graph.get_operations()) is has_condition
    np.testing.assert_allclose(traced(states), expected, 1e-5, 1e-6)


def test_a_functional_model_takes_inputs_of_any_length(monkeypatch):
    inputs = keras.Input((None, WIDTH))
    block = EncoderBlock(1, 5)
    model = keras.Model(inputs, block(inputs))
    states = normal(BATCH, 19, WIDTH)
    expected = to_numpy(block(states, return_attention_scores=True)[0])
    monkeypatch.setattr(attention, "MAX_UNBLOCKED_LENGTH", 3)
    monkeypatch.setattr(attention, "BLOCK_LENGTH", 5)
    found = model.predict_on_batch(states)
    np.testing.assert_allclose(found, expected, 1e-4, 1e-5)


PROGRAM = """
import resource, sys
import keras, numpy as np
from keras_transformer.layers import EncoderBlock

def train(model, length):
    states = np.random.default_rng(0).normal(size=(1, length, 4)).astype("float32")
    model.train_on_batch([states, np.ones((1, length), bool)], states)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

inputs, mask = keras.Input((None, 4)), keras.Input((None,), dtype="bool")
block = EncoderBlock(1, 4, positions="linear_bias")
model = keras.Model([inputs, mask], block(inputs, mask=mask, use_causal_mask=True))
model.compile("sgd", "mse", jit_compile=sys.argv[1] == "jit_compile")
before = train(model, 1025)
print(train(model, 16384) - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("compiled", ["jit_compile", "graph"])
def test_a_training_step_never_holds_the_scores_of_a_long_input(compiled):
    if BACKEND == "torch" and compiled == "jit_compile":
        pytest.skip("torch.compile wants a compiler of C++")
    program = [sys.executable, "-c", PROGRAM, compiled]
    package = str(Path(attention.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": package}
    done = subprocess.run(
        program, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    grown, scores = int(done.stdout.splitlines()[-1]), 4 * 16384**2
    assert grown < scores / 3
