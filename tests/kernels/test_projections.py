import keras
import numpy as np
import pytest
from keras import (
    ops,
)

from keras_transformer.kernels import (
    target,
)
from keras_transformer.kernels.projections import (
    dense,
    merge_heads,
    query_key_products,
    split_heads,
)

ROW = np.random.default_rng(0).normal(size=(1, 1, 8)).astype("float32")


def layer_of(units=5, width=8, **settings):
    layer = keras.layers.Dense(units, bias_initializer="glorot_normal", **settings)
    layer.build((None, None, width))
    return layer


@pytest.fixture
def as_under_xla(monkeypatch):
    """Takes the path for XLA on CPUs, whatever the backend and its devices are."""
    monkeypatch.setattr(target, "xla_compiles_for_cpu", lambda: True)


@pytest.fixture
def called(monkeypatch):
    """The shapes of what dense layers are called with themselves."""
    shapes, call = [], keras.layers.Dense.call

    def spy(self, inputs, **kwargs):
        shapes.append(tuple(inputs.shape))
        return call(self, inputs, **kwargs)

    monkeypatch.setattr(keras.layers.Dense, "call", spy)
    return shapes


@pytest.mark.parametrize(
    "settings", [{"activation": "gelu"}, {"use_bias": False}], ids=str
)
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.usefixtures("as_under_xla")
def test_a_row_multiplied_by_slices_equals_the_layer(settings, dtype, called):
    layer = layer_of(**settings, dtype=dtype)
    outputs = dense(layer, ROW)
    assert called == []
    expected = layer(ROW)
    assert outputs.dtype == expected.dtype
    outputs, expected = (
        ops.convert_to_numpy(ops.cast(one, "float32")) for one in (outputs, expected)
    )
    assert outputs.shape == expected.shape == (1, 1, 5)
    tolerance = 1e-6 if dtype == "float32" else 0.02
    np.testing.assert_allclose(outputs, expected, tolerance, tolerance)


@pytest.mark.needs_tensorflow
@pytest.mark.parametrize("sizes", [(None, None), (None, 3), (2, None)], ids=str)
@pytest.mark.parametrize("settings", [{"activation": "gelu"}, {"use_bias": False}])
def test_states_of_unknown_sizes_are_multiplied_as_a_matrix(settings, sizes, called):
    import tensorflow as tf

    layer = layer_of(**settings)
    states = np.random.default_rng(1).normal(size=(2, 3, 8)).astype("float32")
    traced = tf.function(
        lambda x: dense(layer, x), input_signature=[tf.TensorSpec((*sizes, 8))]
    )
    outputs = traced(states)
    assert called == [(None, 8)]
    np.testing.assert_allclose(outputs, layer(states), 1e-6, 1e-6)


def quantized():
    layer = layer_of()
    layer.quantize("int8")
    return layer


@pytest.mark.parametrize(
    ("shape", "make"),
    [
        ((2, 1, 8), layer_of),
        ((1, 2, 8), layer_of),
        ((1, 8), layer_of),
        ((1, 1, 6), lambda: layer_of(width=6)),
        ((1, 1, 8), quantized),
    ],
    ids=["rows", "length", "axes", "odd_width", "quantized"],
)
@pytest.mark.usefixtures("as_under_xla", "few_objects_to_collect")
def test_all_other_inputs_are_left_to_the_layer(shape, make):
    layer, inputs = make(), np.ones(shape, "float32")
    expected = ops.convert_to_numpy(layer(inputs))
    outputs = ops.convert_to_numpy(dense(layer, inputs))
    np.testing.assert_array_equal(outputs, expected)


def test_without_xla_the_layer_is_called(called):
    dense(layer_of(), ROW)
    assert called == [ROW.shape]


@pytest.mark.parametrize("length", [1, 2])
@pytest.mark.usefixtures("as_under_xla")
def test_products_of_queries_and_keys_equal_their_definition(length):
    random = np.random.default_rng(1)
    query = random.normal(size=(2, 3, length, 5)).astype("float32")
    key = random.normal(size=(2, 3, 7, 5)).astype("float32")
    expected = np.einsum("bhqd,bhkd->bhqk", query, key)
    products = ops.convert_to_numpy(query_key_products(query, key))
    np.testing.assert_allclose(products, expected, 1e-5, 1e-5)


@pytest.mark.needs_tensorflow
def test_xla_multiplies_by_slices_what_turns_out_to_be_one_row():
    import tensorflow as tf

    layer = layer_of()

    @tf.function(jit_compile=True, input_signature=[tf.TensorSpec([None, 1, 8])])
    def compiled(states):
        return dense(layer, states)

    for rows, is_sliced in ((1, True), (3, False)):
        states = tf.constant(np.repeat(ROW, rows, axis=0))
        np.testing.assert_allclose(compiled(states), layer(states), 1e-6, 1e-6)
        program = compiled.experimental_get_compiler_ir(states)("optimized_hlo")
        assert ("f32[4,2,5]" in program) == is_sliced


BATCH, LENGTH, WIDTH, HEADS = 2, 5, 7, 3
HEAD_STATES, OTHERS = np.random.default_rng(0).normal(size=(2, BATCH, LENGTH, WIDTH))


def test_heads_are_slices_of_the_width():
    states = np.arange(BATCH * LENGTH * 6).reshape(BATCH, LENGTH, 6)
    heads = ops.convert_to_numpy(split_heads(ops.convert_to_tensor(states), HEADS))
    for head in range(HEADS):
        columns = slice(2 * head, 2 * head + 2)
        np.testing.assert_array_equal(heads[:, head], states[..., columns])
    merged = ops.convert_to_numpy(merge_heads(ops.convert_to_tensor(heads)))
    np.testing.assert_array_equal(merged, states)
