import itertools

import keras
import numpy as np
import pytest
from keras import ops
from layer_contract import check_layer

from keras_transformer.layers import Residual

BATCH, LENGTH, WIDTH = 2, 5, 3
EPSILON = 1e-3
INPUTS = np.random.default_rng(0).normal(size=(BATCH, LENGTH, WIDTH)).astype("float32")


@keras.saving.register_keras_serializable(package="keras_transformer_tests")
def square(states):
    return states * states


def with_scores(states):
    return square(states), ops.sum(states, axis=-1)


def randomised(layer):
    layer.build(INPUTS.shape)
    random = np.random.default_rng(1)
    layer.set_weights([random.normal(size=w.shape) for w in layer.weights])
    return layer


def normalised(layer, states):
    gamma, beta = layer.get_weights()
    centred = states - states.mean(axis=-1, keepdims=True)
    return (
        centred / np.sqrt(states.var(axis=-1, keepdims=True) + EPSILON) * gamma + beta
    )


@pytest.mark.quick("True")
@pytest.mark.parametrize("normalize_first", [False, True])
def test_residual_keeps_the_contract_of_layers(normalize_first):
    settings = {"dropout": 0.1, "normalize_first": normalize_first, "epsilon": EPSILON}
    inputs = {"inputs": INPUTS, "sublayer": square}
    check_layer(Residual, settings, inputs, INPUTS.shape)


def test_post_norm_is_the_equation_of_the_paper():
    layer = randomised(Residual(epsilon=EPSILON))
    outputs = ops.convert_to_numpy(layer(INPUTS, sublayer=square))
    expected = normalised(layer, INPUTS + square(INPUTS))
    np.testing.assert_allclose(outputs, expected, 1e-5, 1e-5)


def test_pre_norm_normalises_what_the_sublayer_reads():
    layer = randomised(Residual(normalize_first=True, epsilon=EPSILON))
    outputs = ops.convert_to_numpy(layer(INPUTS, sublayer=square))
    expected = INPUTS + square(normalised(layer, INPUTS))
    np.testing.assert_allclose(outputs, expected, 1e-5, 1e-5)


@pytest.mark.parametrize("normalize_first", [False, True])
def test_whatever_else_the_sublayer_returns_comes_through(normalize_first):
    layer = randomised(Residual(normalize_first=normalize_first, epsilon=EPSILON))
    outputs, scores = layer(INPUTS, sublayer=with_scores)
    alone = layer(INPUTS, sublayer=square)
    np.testing.assert_array_equal(outputs, alone)
    read = normalised(layer, INPUTS) if normalize_first else INPUTS
    np.testing.assert_allclose(scores, read.sum(axis=-1), 1e-5, 1e-5)


def test_dropout_acts_on_the_output_of_the_sublayer():
    pre, post = (
        randomised(Residual(0.5, normalize_first, EPSILON))
        for normalize_first in (True, False)
    )
    for layer in (pre, post):
        outputs = layer(INPUTS, sublayer=ops.ones_like, training=True)
        outputs = ops.convert_to_numpy(outputs)
        # What is kept is doubled, so that the mean stays.
        options = [INPUTS + kept for kept in itertools.product([0, 2], repeat=WIDTH)]
        if layer is post:
            options = [normalised(layer, states) for states in options]
        errors = np.abs(np.stack(options) - outputs).max(axis=-1)
        assert errors.min(axis=0).max() < 1e-4
        assert len(set(errors.argmin(axis=0).ravel())) > 2, "nothing varies"


@pytest.mark.parametrize("normalize_first", [False, True])
def test_nothing_is_dropped_at_inference(normalize_first):
    with_dropout, without = (
        randomised(Residual(rate, normalize_first)) for rate in (0.5, 0.0)
    )
    expected = without(INPUTS, sublayer=square)
    outputs = with_dropout(INPUTS, sublayer=square)
    np.testing.assert_array_equal(outputs, expected)
    np.testing.assert_array_equal(with_dropout(INPUTS, sublayer=square), expected)


def test_a_layer_whose_weights_a_functional_model_would_not_hold_is_refused():
    layer, dense = Residual(), keras.layers.Dense(WIDTH)
    with pytest.raises(ValueError, match="between `prepare` and `add`.*Received"):
        layer(keras.Input((None, WIDTH)), sublayer=dense)
    assert layer(INPUTS, sublayer=dense).shape == INPUTS.shape
