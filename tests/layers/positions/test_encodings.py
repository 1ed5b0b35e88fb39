import keras
import numpy as np
import pytest
from keras import ops
from layer_contract import check_layer

from keras_transformer.layers import (
    LearnedPositionalEncoding,
    SinusoidalPositionalEncoding,
)

BATCH, LENGTH, WIDTH = 2, 5, 7
INPUTS = np.random.default_rng(0).normal(size=(BATCH, LENGTH, WIDTH)).astype("float32")


def paper_formula(positions, dim, max_wavelength=10000):
    """Section 3.5 of the paper, in float64."""
    table = np.zeros((len(positions), dim))
    for column in range(dim):
        angles = positions / max_wavelength ** ((column - column % 2) / dim)
        table[:, column] = np.cos(angles) if column % 2 else np.sin(angles)
    return table


def encode(layer, length, dim, start_index=0):
    """The table that the layer adds, as it comes out."""
    outputs = layer(ops.zeros((1, length, dim)), start_index=start_index)
    return np.asarray(ops.convert_to_numpy(outputs), "float64")[0]


def sinusoid_error(last_position):
    # The frequencies are rounded to 2 ** -33 of a turn, the error of which
    # grows with the position; the waves themselves to float32.
    return 2 * np.pi * 2**-33 * last_position + 1e-6


@pytest.mark.quick("SinusoidalPositionalEncoding-init_")
@pytest.mark.parametrize(
    ("layer_class", "init_kwargs", "width"),
    [
        (SinusoidalPositionalEncoding, {"max_wavelength": 1000}, WIDTH),
        (
            SinusoidalPositionalEncoding,
            {"max_wavelength": 100, "merge": "concatenate", "encoding_dim": 3},
            WIDTH + 3,
        ),
        (LearnedPositionalEncoding, {"max_length": 11}, WIDTH),
        (
            LearnedPositionalEncoding,
            {"max_length": 11, "merge": "concatenate", "encoding_dim": 3},
            WIDTH + 3,
        ),
    ],
)
def test_encodings_keep_the_contract_of_layers(layer_class, init_kwargs, width):
    check_layer(layer_class, init_kwargs, INPUTS, (BATCH, LENGTH, width))


@pytest.mark.parametrize("start_index", [0, 1, 1000, 1_000_000])
@pytest.mark.parametrize("dim", [1, 2, 7, 64])
def test_sinusoid_is_the_formula_of_the_paper(dim, start_index):
    length = 97
    table = encode(SinusoidalPositionalEncoding(), length, dim, start_index)
    positions = start_index + np.arange(length)
    expected = paper_formula(positions, dim)
    np.testing.assert_allclose(table, expected, 0, sinusoid_error(positions[-1]))


@pytest.mark.parametrize("max_wavelength", [1.5, 100, 1e9])
def test_sinusoid_of_another_wavelength(max_wavelength):
    table = encode(SinusoidalPositionalEncoding(max_wavelength), 211, 13)
    expected = paper_formula(np.arange(211), 13, max_wavelength)
    np.testing.assert_allclose(table, expected, 0, sinusoid_error(211))


@pytest.mark.parametrize("start_index", [0, 1000])
@pytest.mark.parametrize(
    ("policy", "rounding"),
    [("mixed_bfloat16", 2**-9), ("mixed_float16", 2**-12), ("bfloat16", 2**-9)],
)
def test_half_precision_rounds_the_waves_but_not_the_positions(
    policy, rounding, start_index
):
    length, dim = 600, 64
    table = encode(SinusoidalPositionalEncoding(dtype=policy), length, dim, start_index)
    expected = paper_formula(start_index + np.arange(length), dim)
    np.testing.assert_allclose(table, expected, 0, 1.01 * rounding + 2e-6)
    assert len(np.unique(table, axis=0)) == length, "two positions look the same"


def test_start_index_continues_the_table():
    layer = SinusoidalPositionalEncoding()
    whole = encode(layer, 23, WIDTH)
    np.testing.assert_allclose(encode(layer, 12, WIDTH, 11), whole[11:], 0, 1e-6)


MERGES = [{}, {"merge": "concatenate", "encoding_dim": 3}]
ENCODINGS = [
    SinusoidalPositionalEncoding,
    lambda **kwargs: LearnedPositionalEncoding(max_length=17, **kwargs),
]


@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.parametrize("layer", ENCODINGS)
def test_start_index_may_be_a_tensor(layer, merge):
    layer = layer(**merge)
    for start_index in (3, 12):
        tensor = ops.convert_to_tensor(start_index, "int32")
        expected = ops.convert_to_numpy(layer(INPUTS, start_index=start_index))
        outputs = ops.convert_to_numpy(layer(INPUTS, start_index=tensor))
        np.testing.assert_array_equal(outputs, expected)


@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.parametrize("layer", ENCODINGS)
def test_every_sequence_may_begin_at_a_position_of_its_own(layer, merge):
    layer = layer(**merge)
    outputs = layer(INPUTS, start_index=ops.convert_to_tensor([3, 12]))
    for row, start_index in enumerate([3, 12]):
        expected = layer(INPUTS[row : row + 1], start_index=start_index)[0]
        np.testing.assert_allclose(outputs[row], expected, 1e-6, 1e-6)


@pytest.mark.parametrize("kind", [np.int64, np.array])
def test_start_index_may_be_of_another_integer_dtype(kind):
    layer = SinusoidalPositionalEncoding()
    expected = ops.convert_to_numpy(layer(INPUTS, start_index=3))
    outputs = ops.convert_to_numpy(layer(INPUTS, start_index=kind(3)))
    np.testing.assert_array_equal(outputs, expected)


@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.parametrize("layer", ENCODINGS)
def test_positions_may_be_given_in_any_order(layer, merge):
    layer = layer(**merge)
    rows = np.array([[0, 16, 3, 3, 1], [5, 4, 3, 2, 11]])
    outputs = layer(INPUTS, positions=rows)
    for i, row in enumerate(rows):
        shared = layer(INPUTS, positions=row)
        np.testing.assert_allclose(outputs[i], shared[i], 1e-6, 1e-6)
        for j, position in enumerate(row):
            alone = layer(INPUTS[:, j : j + 1], start_index=int(position))
            np.testing.assert_allclose(outputs[i, j], alone[i, 0], 1e-6, 1e-6)


def test_start_index_and_length_may_be_unknown_when_the_model_is_built():
    inputs = keras.Input((None, WIDTH))
    start_index = keras.Input(batch_shape=(), dtype="int32")
    layer = SinusoidalPositionalEncoding()
    model = keras.Model([inputs, start_index], layer(inputs, start_index=start_index))
    for length in (3, 11):
        zeros = ops.zeros((BATCH, length, WIDTH))
        outputs = ops.convert_to_numpy(model([zeros, ops.convert_to_tensor(5)]))
        expected = paper_formula(5 + np.arange(length), WIDTH)
        np.testing.assert_allclose(outputs[1], expected, 0, 1e-6)


def test_addition_leaves_the_inputs_in():
    layer = SinusoidalPositionalEncoding()
    outputs = ops.convert_to_numpy(layer(INPUTS))
    expected = INPUTS + paper_formula(np.arange(LENGTH), WIDTH)
    np.testing.assert_allclose(outputs, expected, 0, 1e-6)


def test_concatenation_puts_the_encoding_after_the_inputs():
    layer = SinusoidalPositionalEncoding(merge="concatenate", encoding_dim=3)
    outputs = ops.convert_to_numpy(layer(INPUTS))
    np.testing.assert_array_equal(outputs[..., :WIDTH], INPUTS)
    expected = np.broadcast_to(paper_formula(np.arange(LENGTH), 3), (BATCH, LENGTH, 3))
    np.testing.assert_allclose(outputs[..., WIDTH:], expected, 0, 1e-6)


def test_learned_positions_are_rows_of_the_table():
    layer = LearnedPositionalEncoding(max_length=11)
    layer.build(INPUTS.shape)
    table = np.random.default_rng(1).normal(size=(11, WIDTH)).astype("float32")
    layer.table.assign(table)
    for start_index in (0, 4, 6):
        outputs = ops.convert_to_numpy(layer(INPUTS, start_index=start_index))
        rows = table[start_index : start_index + LENGTH]
        np.testing.assert_allclose(outputs, INPUTS + rows, 1e-6)


def test_learned_positions_widen_the_inputs():
    layer = LearnedPositionalEncoding(11, merge="concatenate", encoding_dim=3)
    outputs = ops.convert_to_numpy(layer(INPUTS, start_index=6))
    table = ops.convert_to_numpy(layer.table)
    assert table.shape == (11, 3)
    np.testing.assert_array_equal(outputs[..., :WIDTH], INPUTS)
    for sentence in outputs:
        np.testing.assert_array_equal(sentence[:, WIDTH:], table[6:11])


@pytest.mark.parametrize(("length", "start_index"), [(12, 0), (5, 7), (1, 11)])
def test_learned_positions_end_at_max_length(length, start_index):
    layer = LearnedPositionalEncoding(max_length=11)
    with pytest.raises(
        ValueError,
        match=f"end at `max_length`=11: shorten .*length={length}, "
        f"start_index={start_index}",
    ):
        layer(ops.zeros((1, length, 2)), start_index=start_index)


def test_learned_positions_end_in_a_functional_model_too():
    layer = LearnedPositionalEncoding(max_length=11)
    with pytest.raises(ValueError, match="end at `max_length`=11.*length=12"):
        layer(keras.Input((12, 2)))
    # Positions that are given may repeat.
    positions = keras.Input((12,), dtype="int32")
    assert layer(keras.Input((12, 2)), positions=positions).shape == (None, 12, 2)


@pytest.mark.parametrize(
    ("layer_class", "arguments", "message"),
    [
        (SinusoidalPositionalEncoding, {"merge": "mul"}, "`merge` must be one of"),
        (
            SinusoidalPositionalEncoding,
            {"merge": "concatenate"},
            "`encoding_dim`, the width .* with it and only with it",
        ),
        (
            LearnedPositionalEncoding,
            {"max_length": 5, "encoding_dim": 3},
            "`encoding_dim`, the width .* Received: merge='add', encoding_dim=3",
        ),
        (
            SinusoidalPositionalEncoding,
            {"merge": "concatenate", "encoding_dim": 0},
            "`encoding_dim` must be a positive integer. Received: encoding_dim=0",
        ),
        (
            SinusoidalPositionalEncoding,
            {"max_wavelength": 1},
            "`max_wavelength` must be above 1. Received: max_wavelength=1",
        ),
        (
            LearnedPositionalEncoding,
            {"max_length": 0},
            "`max_length` must be a positive integer. Received: max_length=0",
        ),
    ],
)
def test_bad_settings_are_refused(layer_class, arguments, message):
    with pytest.raises(ValueError, match=message):
        layer_class(**arguments)


@pytest.mark.parametrize("shape", [(LENGTH, WIDTH), (BATCH, LENGTH, 3, WIDTH)])
def test_inputs_of_another_rank_are_refused(shape):
    with pytest.raises(ValueError, match="`inputs` must have the shape"):
        SinusoidalPositionalEncoding()(ops.zeros(shape))


@pytest.mark.parametrize("layer", ENCODINGS)
def test_a_start_index_and_positions_exclude_each_other(layer):
    message = "`start_index` and `positions` must not both .* Received: start_index=3"
    with pytest.raises(ValueError, match=message):
        layer()(INPUTS, start_index=3, positions=np.arange(LENGTH))


@pytest.mark.parametrize("shape", [(), (1,), (LENGTH + 1,), (BATCH, 1), (BATCH, 1, 5)])
def test_positions_are_as_long_as_the_inputs(shape):
    message = r"`positions` must have the shape \(length,\) .* for length=5"
    with pytest.raises(ValueError, match=message):
        SinusoidalPositionalEncoding()(INPUTS, positions=np.zeros(shape, "int32"))


def test_given_positions_beyond_a_learned_table_are_nan_and_leave_others_alone():
    layer = LearnedPositionalEncoding(max_length=11)
    positions = np.array([0, 11, 10, -1, 3])
    outputs = ops.convert_to_numpy(layer(INPUTS, positions=positions))
    is_outside = np.isnan(outputs).all(axis=(0, 2))
    np.testing.assert_array_equal(is_outside, [False, True, False, True, False])
    assert np.isfinite(outputs[:, ~is_outside]).all()


# A width of 1 would be broadcast silently.
@pytest.mark.parametrize(("built", "called"), [(7, 5), (7, 1), (1, 7)])
@pytest.mark.parametrize("layer", ENCODINGS)
def test_inputs_of_another_width_than_built_are_refused(layer, built, called):
    layer = layer()
    layer.build((None, None, built))
    message = (
        "`inputs` must have the width that the layer was built for. "
        rf"Received: inputs of shape \(2, 5, {called}\).* hidden_dim={built}"
    )
    with pytest.raises(ValueError, match=message):
        layer(ops.zeros((BATCH, LENGTH, called)))
