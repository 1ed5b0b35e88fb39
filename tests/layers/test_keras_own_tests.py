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
OVERRIDE = "it calls or overrides `_compute_attention`, which is private to Keras"
FLASH = "there is no `flash_attention`: `call` chooses the kernel by itself"
WORDS = "the message has other words"
SWITCHES = "`MultiHeadAttention` has no switches that no Transformer here sets"
DIFFERENCES = {
    **dict.fromkeys(
        [
            "test_attention_axes_negative_indexing",
            "test_basics",
            "test_causal_only_masks_non_4d_inputs",
            "test_compute_output_shape_different_qv_last_dims",
            "test_compute_output_shape_high_dim_different_proj",
            "test_compute_output_shape_high_dim_same_proj",
            "test_compute_output_shape_with_key_different_proj",
            "test_compute_output_shape_with_key_same_proj",
            "test_compute_output_shape_without_key_different_proj",
            "test_compute_output_shape_without_key_same_proj",
            "test_high_dim_attention_4d_inputs_1freebatch_mask2",
            "test_high_dim_attention_4d_inputs_1freebatch_mask3",
            "test_high_dim_attention_4d_inputs_1freebatch_mask4",
            "test_high_dim_attention_4d_inputs_2d_attention",
            "test_high_dim_attention_5d_inputs_2d_attention",
            "test_high_dim_attention_5d_inputs_2d_attention_fullmask",
            "test_initializer",
            "test_lora",
            "test_mha_constraints",
            "test_multi_head_attention_output_shape_as_int",
            "test_multi_head_attention_output_shape_as_tuple",
            "test_multi_head_attention_output_shape_error",
            "test_quantize_int8",
            "test_shape_mismatch_error_key_value_dim_mismatch_high_dim",
            "test_sliding_window",
            "test_sliding_window_serialization",
        ],
        SWITCHES,
    ),
    "test_causal_only_skipped_for_subclass": OVERRIDE,
    "test_compute_attention_combines_causal_and_explicit_mask_fused_fallback": OVERRIDE,
    "test_compute_attention_combines_causal_and_explicit_mask_manual_path": OVERRIDE,
    "test_flash_attention_with_errors": FLASH,
    "test_invalid_scalar_args_rejected": WORDS,
    "test_shape_mismatch_error_query_value_dim_mismatch": WORDS,
    "test_dropout_negative_rate": WORDS,
    "test_dropout_rate_greater_than_one": WORDS,
}
# Not by the mark `quick`, which needs cases: some releases come without tests.
QUICK = (
    "test_basics_with_flash_attention",
    "test_causal_only_masks_non_4d_inpu",
    "test_compute_attention_combines_ca",
)


def keras_tests():
    for module_name in PLACES:
        try:
            module = importlib.import_module(f"keras.src.layers.{module_name}")
        except ImportError:
            continue  # this release of Keras comes without tests
        for case in vars(module).values():
            if isinstance(case, type) and issubclass(case, unittest.TestCase):
                for name in unittest.TestLoader().getTestCaseNames(case):
                    slow = () if name.startswith(QUICK) else pytest.mark.slow
                    yield pytest.param(module_name, case, name, id=name, marks=slow)


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
