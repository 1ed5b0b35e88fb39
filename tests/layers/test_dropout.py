"""Where blocks and stacks drop, and the seeds of what they drop."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.kernels.dropout import Dropout
from keras_transformer.layers import (
    CausalDecoder,
    Decoder,
    DecoderBlock,
    Encoder,
    EncoderBlock,
    FeedForward,
    MultiHeadAttention,
    Residual,
)

RANDOM = np.random.default_rng(3)
STATES = RANDOM.normal(size=(2, 5, 6)).astype("float32")
MEMORY = RANDOM.normal(size=(2, 7, 6)).astype("float32")
BLOCK = {"num_heads": 2, "intermediate_dim": 11}
STACK = {"num_layers": 2, **BLOCK}
ALL = {"dropout": 0.3, "attention_dropout": 0.3, "activation_dropout": 0.3}
CASES = [
    (EncoderBlock, BLOCK, [STATES]),
    (DecoderBlock, BLOCK, [STATES, MEMORY]),
    (Encoder, {**STACK, "positions": "sinusoidal"}, [STATES]),
    (Decoder, {**STACK, "positions": "linear_bias"}, [STATES, MEMORY]),
    (CausalDecoder, {**STACK, "positions": "sinusoidal"}, [STATES]),
]
every_block = pytest.mark.parametrize(("layer_class", "settings", "inputs"), CASES)


def call(layer, inputs, training=True):
    return ops.convert_to_numpy(layer(*inputs, training=training))


def twin(layer, inputs, **changes):
    """Another layer of the same class and weights."""
    config = {**layer.get_config(), "name": None, **changes}
    other = type(layer).from_config(config)
    call(other, inputs, training=False)
    other.set_weights(layer.get_weights())
    return other


def seed_states(layer):
    """The seed of every dropout inside, by its path."""
    return {
        variable.path: int(ops.convert_to_numpy(variable)[0])
        for variable in layer.variables
        if "seed_generator" in variable.path
    }


def test_the_feed_forward_network_drops_activations():
    layer = FeedForward(11, dropout=0.4, seed=7)
    layer.build(STATES.shape)
    wide, wide_bias, narrow, narrow_bias = layer.get_weights()
    activations = np.maximum(STATES @ wide + wide_bias, 0)
    dropped = ops.convert_to_numpy(Dropout(0.4, seed=7)(activations, training=True))
    outputs = call(layer, [STATES])
    np.testing.assert_allclose(outputs, dropped @ narrow + narrow_bias, 1e-4, 1e-5)
    expected = activations @ narrow + narrow_bias
    np.testing.assert_allclose(call(layer, [STATES], False), expected, 1e-4, 1e-5)


def test_attention_and_residual_drop_by_their_seed():
    def outputs_of_attention(seed):
        layer = MultiHeadAttention(2, 3, dropout=0.5, seed=seed)
        layer.build(STATES.shape, MEMORY.shape)
        layer.set_weights([np.ones(w.shape) for w in layer.weights])
        return call(layer, [STATES, MEMORY])

    def outputs_of_residual(seed):
        layer = Residual(dropout=0.5, seed=seed)
        return ops.convert_to_numpy(
            layer(STATES, sublayer=lambda states: states * 2, training=True)
        )

    for outputs_of in (outputs_of_attention, outputs_of_residual):
        np.testing.assert_array_equal(outputs_of(7), outputs_of(7))
        assert np.any(outputs_of(7) != outputs_of(11))


@pytest.mark.quick("EncoderBlock-settings0-inputs0")
@every_block
def test_with_all_scores_dropped_positions_are_alone(layer_class, settings, inputs):
    layer = layer_class(**settings, attention_dropout=1.0)
    last = [x.copy() for x in inputs]
    for states in last:
        states[:, 0] += 1.0
    for training, is_alone in ((True, True), (False, False)):
        outputs = call(layer, inputs, training)[:, 1:]
        others = call(layer, last, training)[:, 1:]
        assert np.allclose(outputs, others, 1e-6, 1e-6) == is_alone


@pytest.mark.quick("EncoderBlock-settings0-inputs0", "DecoderBlock-settings1-inputs1")
@every_block
def test_with_all_activations_dropped_their_weights_do_nothing(
    layer_class, settings, inputs
):
    layer = layer_class(**settings, activation_dropout=1.0)
    outputs = [call(layer, inputs, training) for training in (True, False)]
    for variable in layer.weights:
        if "feed_forward/widen" in variable.path:
            variable.assign(ops.ones(variable.shape))
    again = [call(layer, inputs, training) for training in (True, False)]
    np.testing.assert_array_equal(again[0], outputs[0])
    assert np.any(again[1] != outputs[1])


@pytest.mark.quick("EncoderBlock-settings0-inputs0")
@every_block
def test_a_seed_repeats_all_dropout(layer_class, settings, inputs):
    layer = layer_class(**settings, **ALL, seed=7)
    expected = call(layer, inputs)
    twins = {seed: twin(layer, inputs, seed=seed) for seed in (7, 11, None)}
    outputs = {seed: call(twins[seed], inputs) for seed in twins}
    np.testing.assert_array_equal(outputs[7], expected)
    assert np.any(outputs[11] != expected)
    assert np.any(outputs[None] != expected)
    assert np.any(call(twins[7], inputs) != expected)  # of the second call


@pytest.mark.quick("EncoderBlock-settings0-inputs0", "Encoder-settings2-inputs2")
@every_block
def test_every_dropout_inside_has_a_seed_of_its_own(layer_class, settings, inputs):
    layer = layer_class(**settings, **ALL, seed=7)
    call(layer, inputs)
    seeds = seed_states(layer)
    num_attentions = 2 if "Decoder" in layer_class.__name__ else 1
    num_attentions = 1 if layer_class is CausalDecoder else num_attentions
    # Of scores, of activations, and at the end of each sub-layer.
    expected = (2 * num_attentions + 2) * settings.get("num_layers", 1)
    expected += "num_layers" in settings  # of the inputs of a stack
    assert len(set(seeds.values())) == len(seeds) == expected


@pytest.mark.parametrize(
    ("layer_class", "settings", "name"),
    [
        (Dropout, {}, "rate"),
        (FeedForward, {"intermediate_dim": 11}, "dropout"),
        (Residual, {}, "dropout"),
        *((EncoderBlock, BLOCK, name) for name in ALL),
        (Encoder, STACK, "attention_dropout"),
    ],
)
@pytest.mark.parametrize("value", [-0.1, 1.5, float("nan"), "0.1"])
def test_a_rate_outside_of_its_range_is_refused(layer_class, settings, name, value):
    message = f"`{name}` must be a number from 0 to 1. Received: {name}={value!r}"
    with pytest.raises(ValueError, match=message):
        layer_class(**settings, **{name: value})


def test_blocks_train_with_all_dropout():
    inputs = keras.Input((5, 6))
    model = keras.Model(inputs, Encoder(**STACK, **ALL, seed=7)(inputs))
    model.compile("sgd", "mse")
    assert np.isfinite(model.train_on_batch(STATES, STATES))
