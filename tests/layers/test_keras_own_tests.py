"""Keras's own tests of its layers, run with our layers in their place.

Keras ships these tests in its package. A test in `DIFFERENCES` must fail: it tests a
name or a behaviour that differs on purpose, for the reason given; docs/keras.md lists
the reasons.
"""

import importlib
import unittest

import keras
import numpy as np
import pytest
from keras.src import layers as keras_layers

from keras_transformer import layers
from keras_transformer.kernels.dropout import Dropout
from keras_transformer.kernels.layer_norm import LayerNormalization


@keras.saving.register_keras_serializable(package="tests")
class InPlaceOfKeras(layers.MultiHeadAttention):
    """Our layer, with the names and the kernels' shapes that Keras's tests use."""

    query_dense = _query_dense = property(lambda self: self.query_projection)
    key_dense = _key_dense = property(lambda self: self.key_projection)
    value_dense = _value_dense = property(lambda self: self.value_projection)
    _output_dense = property(lambda self: self.output_projection)
    _gate_dense = property(lambda self: self.gate_projection)
    _sliding_window = property(lambda self: self.sliding_window)

    def set_weights(self, weights):
        shapes = [weight.shape for weight in self.weights]
        super().set_weights(
            [np.reshape(w, shape) for w, shape in zip(weights, shapes, strict=True)]
        )


class InPlaceOfAttention(layers.DotProductAttention):
    """Our layer without its scale, and the argument's name that Keras's tests use."""

    def __init__(self, scaled=False, **kwargs):
        super().__init__(scaled=scaled, **kwargs)

    def compute_output_shape(self, input_shape, *shapes):
        return super().compute_output_shape(input_shape, *shapes)


class InPlaceOfAdditiveAttention(layers.AdditiveAttention):
    """Our layer without its projections: `use_scale=False` is Keras's word for that."""

    def __init__(self, use_scale=False, **kwargs):
        super().__init__(units=2, **kwargs)

    def build_score(self, query_dim, key_dim):
        super().build_score(query_dim, key_dim)
        for kernel in (self.query_kernel, self.key_kernel):
            kernel.assign(np.eye(2))
        self.score_kernel.assign(np.ones((2, 1)))


PLACES = {
    "attention.attention_test": ("Attention", InPlaceOfAttention),
    "attention.additive_attention_test": (
        "AdditiveAttention",
        InPlaceOfAdditiveAttention,
    ),
    "attention.multi_head_attention_test": ("MultiHeadAttention", InPlaceOfKeras),
    "normalization.layer_normalization_test": (
        "LayerNormalization",
        LayerNormalization,
    ),
    "regularization.dropout_test": ("Dropout", Dropout),
}
OVERRIDE = "it calls or overrides `_compute_attention`, which is private to Keras"
FLASH = "there is no `flash_attention`: `call` chooses the kernel by itself"
WORDS = "the message has other words"
EPSILON = "the default epsilon is 1e-6, and the numbers are those of 1e-3"
CONCAT = "`score_mode` and `use_scale` are one learned number; see `AdditiveAttention`"
PROJECTIONS = "`AdditiveAttention` has the paper's projections; it has no `use_scale`"
EMPTY = "a masked query has no scores: zeros, as its outputs are"
BEFORE = "scores are returned as they are before dropout, as with heads"
SCORE_MASK = "`_calculate_scores` and `_calculate_score_mask` are private to Keras"
THREE = "inputs have three axes; `MultiHeadAttention` has `attention_axes`"
DIFFERENCES = {
    "attention_test.test_attention_basics": CONCAT,
    "attention_test.test_attention_correctness": CONCAT,
    "test_attention_invalid_score_mode": CONCAT,
    "test_attention_calculate_scores_with_scale": SCORE_MASK,
    "test_attention_calculate_score_mask_no_causal_no_vmask": SCORE_MASK,
    "test_attention_calculate_score_mask_with_causal_no_vmask": SCORE_MASK,
    "test_attention_calculate_score_mask_with_causal_and_vmask": SCORE_MASK,
    "test_attention_with_mask": EMPTY,
    "test_attention_with_dropout": BEFORE,
    "test_attention_nd_inputs": THREE,
    "additive_attention_test.test_attention_basics": PROJECTIONS,
    "test_causal_only_skipped_for_subclass": OVERRIDE,
    "test_compute_attention_combines_causal_and_explicit_mask_fused_fallback": OVERRIDE,
    "test_compute_attention_combines_causal_and_explicit_mask_manual_path": OVERRIDE,
    "test_flash_attention_with_errors": FLASH,
    "test_invalid_scalar_args_rejected": WORDS,
    "test_shape_mismatch_error_query_value_dim_mismatch": WORDS,
    "test_output": EPSILON,
    "test_output_with_rms_scaling": EPSILON,
    "test_dropout_negative_rate": WORDS,
    "test_dropout_rate_greater_than_one": WORDS,
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


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("few_objects_to_collect")
@pytest.mark.parametrize(("module_name", "case", "name"), [*keras_tests()])
def test_as_keras(module_name, case, name, monkeypatch):
    monkeypatch.setattr(keras_layers, *PLACES[module_name])
    result = unittest.TestResult()
    case(name).run(result)
    for _, reason in result.skipped:
        pytest.skip(reason)
    faults = [text for _, text in result.failures + result.errors]
    full_name = f"{module_name.rpartition('.')[2]}.{name}"
    reason = DIFFERENCES.get(full_name, DIFFERENCES.get(name))
    if reason is not None:
        assert faults, f"passes now, although: {reason}"
    else:
        assert not faults, faults[0]
