"""Every public layer passes the checks that Keras puts its own layers to."""

import pytest
from layer_cases import CASES, ELSEWHERE, PUBLIC, WITHOUT_MASKS
from layer_contract import check_layer

from keras_transformer import layers

try:
    from keras.src.testing import TestCase
except ImportError:  # It is not public: then the contract has to do.
    TestCase = None


def test_no_layer_is_left_out():
    assert set(CASES) | ELSEWHERE == PUBLIC
    assert not set(CASES) & ELSEWHERE


# Keras fits any layer on a generator, by its default to shuffle it.
@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")
@pytest.mark.filterwarnings("ignore:The model does not have any trainable weights")
@pytest.mark.parametrize("name", CASES)
def test_a_layer_passes_the_checks_of_keras(name):
    layer_class = getattr(layers, name)
    settings, inputs, shape = CASES[name]
    supports_masking = name not in WITHOUT_MASKS
    if TestCase is None:
        check_layer(
            layer_class, settings, inputs, shape, supports_masking=supports_masking
        )
        return
    if len(inputs) == 1:
        [array] = inputs.values()
        how = {"input_data": array}
    else:
        shapes = {f"{key}_shape": array.shape for key, array in inputs.items()}
        # Keras trains on layers of one input only.
        how = {"input_shape": shapes, "run_training_check": False}
    TestCase().run_layer_test(
        layer_class,
        settings,
        expected_output_shape=shape,
        supports_masking=supports_masking,
        **how,
    )
