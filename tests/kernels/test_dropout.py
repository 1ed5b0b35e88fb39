import keras
import numpy as np
import pytest
from keras import ops
from layer_contract import check_layer

from keras_transformer.kernels.dropout import Dropout

ONES = np.ones((101, 103, 7), "float32")


def dropped(layer, inputs=ONES):
    return ops.convert_to_numpy(layer(inputs, training=True))


def test_dropout_keeps_the_contract_of_layers():
    inputs = np.random.default_rng(5).normal(size=(3, 5, 7)).astype("float32")
    check_layer(Dropout, {"rate": 0.3, "seed": 5}, inputs, inputs.shape)


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.5, 0.9])
def test_the_share_that_is_dropped_is_the_rate_to_the_nearest_byte(rate):
    outputs = dropped(Dropout(rate, seed=3))
    share = max(1, round(rate * 256)) / 256
    deviation = (share * (1 - share) / outputs.size) ** 0.5
    assert abs(np.mean(outputs == 0) - share) < 5 * deviation
    assert abs(share - rate) <= 1 / 256


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.5, 0.9])
def test_what_is_kept_makes_up_for_what_is_dropped(rate):
    layer = Dropout(rate, seed=3)
    kept = np.unique(dropped(layer))[-1]
    assert kept * (1 - max(1, round(rate * 256)) / 256) == pytest.approx(1)


def test_elements_are_dropped_one_without_the_other():
    zeros = (dropped(Dropout(0.5, seed=3)) == 0).ravel()
    for distance in (1, 2, 3, 4, 7, 7 * 103):
        together = np.mean(zeros[:-distance] & zeros[distance:])
        assert together == pytest.approx(0.25, abs=0.01)


def test_every_call_drops_others_and_a_seed_repeats_them():
    first, second = Dropout(0.5, seed=11), Dropout(0.5, seed=11)
    once = dropped(first)
    np.testing.assert_array_equal(once, dropped(second))
    assert np.any(once != dropped(first))


def test_what_is_not_trained_or_not_dropped_stays_as_it_is():
    assert np.all(ops.convert_to_numpy(Dropout(0.5)(ONES)) == 1)
    assert np.all(dropped(Dropout(0.0)) == 1)
    assert np.all(dropped(Dropout(1.0)) == 0)


def test_infinities_that_are_dropped_are_gone():
    outputs = dropped(Dropout(0.5, seed=3), ONES * np.inf)
    assert set(np.unique(outputs)) == {0.0, np.inf}


def test_a_rate_outside_of_its_range_is_refused():
    with pytest.raises(ValueError, match="`rate` must be a number from 0 to 1"):
        Dropout(1.5)


def test_any_shape_is_taken_known_or_not():
    inputs = keras.Input((None, 3))
    outputs = Dropout(0.5, seed=3)(keras.layers.Dense(3)(inputs))
    model = keras.Model(inputs, outputs)
    model.compile(loss="mse")
    for length in (1, 5):  # 3 and 15 elements: no multiple of four
        model.train_on_batch(np.ones((1, length, 3)), np.ones((1, length, 3)))
