"""Keras's own tests of its layers, run with our layers in their place.

Keras ships these tests in its package. A test in `DIFFERENCES` must fail: it tests a
name or a behaviour that differs on purpose, for the reason given; docs/keras.md lists
the reasons.
"""

import importlib
import unittest

import numpy as np
import pytest
from keras.src import layers as keras_layers

from keras_transformer import layers
from keras_transformer.kernels.dropout import Dropout
from keras_transformer.kernels.layer_norm import LayerNormalization


class InPlaceOfKeras(layers.MultiHeadAttention):
    """Our layer under the private names of Keras's, with kernels of its shapes."""

    _query_dense = property(lambda self: self.query_projection)
    _key_dense = property(lambda self: self.key_projection)
    _value_dense = property(lambda self: self.value_projection)
    _output_dense = property(lambda self: self.output_projection)
    _gate_dense = property(lambda self: self.gate_projection)
    _sliding_window = property(lambda self: self.sliding_window)

    def set_weights(self, weights):
        shapes = [weight.shape for weight in self.weights]
        super().set_weights(
            [np.reshape(w, shape) for w, shape in zip(weights, shapes, strict=True)]
        )


PLACES = {
    "attention.multi_head_attention_test": ("MultiHeadAttention", InPlaceOfKeras),
    "normalization.layer_normalization_test": (
        "LayerNormalization",
        LayerNormalization,
    ),
    "regularization.dropout_test": ("Dropout", Dropout),
}
OVERRIDE = "our layer has no `_compute_attention` to override"
FLASH = "no `flash_attention`: `call` chooses the kernel"
DIFFERENCES = {
    "test_causal_only_skipped_for_subclass": OVERRIDE,
}


def keras_tests():
    for module_name in PLACES:
        try:
            module = importlib.import_module(f"keras.src.layers.{module_name}")
        except ImportError:
            continue  # this release of Keras comes without tests
        for case in vars(module).values():
            if isinstance(case, type) and issubclass(case, unittest.TestCase):
                for name in unittest.TestLoader().getTestCaseNames(case):
                    yield pytest.param(module_name, case, name, id=name)


@pytest.mark.parametrize(("module_name", "case", "name"), [*keras_tests()])
def test_as_keras(module_name, case, name, monkeypatch):
    monkeypatch.setattr(keras_layers, *PLACES[module_name])
    result = unittest.TestResult()
    case(name).run(result)
    for _, reason in result.skipped:
        pytest.skip(reason)
    faults = [text for _, text in result.failures + result.errors]
    if name in DIFFERENCES:
        assert faults, f"passes now, although: {DIFFERENCES[name]}"
    else:
        assert not faults, faults[0]
