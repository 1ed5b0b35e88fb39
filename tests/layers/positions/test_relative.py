import math

import numpy as np
import pytest
from keras import ops
from layer_contract import check_layer

from keras_transformer.layers import (
    Decoder,
    DecoderBlock,
    Encoder,
    EncoderBlock,
    LearnedPositionalEncoding,
    LinearPositionBias,
    MultiHeadAttention,
    RotaryEmbedding,
    SinusoidalPositionalEncoding,
)
from keras_transformer.layers.positions.relative import head_slopes

BATCH, LENGTH, MEMORY_LENGTH, HEADS, KEY_DIM, WIDTH = 2, 5, 7, 3, 4, 6
RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.normal(size=(BATCH, LENGTH, WIDTH)).astype("float32")
MEMORY = RANDOM.normal(size=(BATCH, MEMORY_LENGTH, WIDTH)).astype("float32")
POSITIONS = np.arange(10, dtype="int32").reshape(2, 5)[::-1]
HEADED = RANDOM.normal(size=(BATCH, HEADS, LENGTH, KEY_DIM)).astype("float32")
SCHEMES = ["rotary", "linear_bias"]


def randomised(layer, *inputs):
    layer(*inputs)
    random = np.random.default_rng(1)
    layer.set_weights([random.normal(size=w.shape) / 2 for w in layer.weights])
    return layer


def to_numpy(tensor):
    return np.asarray(ops.convert_to_numpy(tensor), "float64")


def paper_rotation(states, positions, max_wavelength=10000):
    """Equations 14 and 15 of RoFormer, in float64: one matrix for each position."""
    dim = states.shape[-1]
    rotated = np.zeros(states.shape)
    for index, position in enumerate(positions):
        matrix = np.zeros((dim, dim))
        for i in range(1, dim // 2 + 1):
            angle = position * max_wavelength ** (-2 * (i - 1) / dim)
            block = slice(2 * i - 2, 2 * i)
            cosine, sine = math.cos(angle), math.sin(angle)
            matrix[block, block] = [[cosine, -sine], [sine, cosine]]
        rotated[..., index, :] = states[..., index, :].astype("float64") @ matrix.T
    return rotated


def paper_slopes(num_heads, bias_max=8):
    """The code that is published with the paper, in float64; its 3 is `log2(8)`."""

    def of_power_of_two(n):
        start = 2 ** (-(2 ** -(math.log2(n) - math.log2(bias_max))))
        return [start * start**i for i in range(n)]

    if math.log2(num_heads).is_integer():
        return of_power_of_two(num_heads)
    closest = 2 ** math.floor(math.log2(num_heads))
    between = paper_slopes(2 * closest, bias_max)[0::2][: num_heads - closest]
    return of_power_of_two(closest) + between


def paper_bias(num_heads, queries, keys):
    distances = np.abs(np.subtract.outer(queries, keys))
    return -np.multiply.outer(paper_slopes(num_heads), distances)


@pytest.mark.parametrize(
    ("layer_class", "settings", "inputs"),
    [
        (RotaryEmbedding, {"max_wavelength": 100}, HEADED),
        (RotaryEmbedding, {"max_wavelength": 100}, {"inputs": INPUTS}),
        (
            RotaryEmbedding,
            {"layout": "halves"},
            {"inputs": INPUTS, "positions": POSITIONS},
        ),
        (LinearPositionBias, {"bias_max": 5}, {"inputs": HEADED, "start_index": 3}),
    ],
    ids=["rotary", "rotary, without heads", "halves, positions", "linear bias"],
)
def test_positions_keep_the_contract_of_layers(layer_class, settings, inputs):
    shape = (inputs["inputs"] if isinstance(inputs, dict) else inputs).shape
    check_layer(layer_class, settings, inputs, shape)


@pytest.mark.quick("name")
@pytest.mark.parametrize(
    "positions", ["linear_bias", RotaryEmbedding(100)], ids=["name", "layer"]
)
def test_attention_with_positions_keeps_the_contract_of_layers(positions):
    settings = {"num_heads": HEADS, "key_dim": KEY_DIM, "positions": positions}
    inputs = {"query": INPUTS, "value": INPUTS, "use_causal_mask": True}
    check_layer(MultiHeadAttention, settings, inputs, INPUTS.shape)


STACK_SCHEMES = {
    "sinusoidal": ("sinusoidal", WIDTH),
    "rotary": (RotaryEmbedding(100), WIDTH),
    "linear_bias": ("linear_bias", WIDTH),
    "concatenated": (
        LearnedPositionalEncoding(11, merge="concatenate", encoding_dim=3),
        WIDTH + 3,
    ),
}


@pytest.mark.quick("Encoder-concatenated")
@pytest.mark.parametrize("name", STACK_SCHEMES)
@pytest.mark.parametrize("layer_class", [Encoder, Decoder])
def test_stacks_with_positions_keep_the_contract_of_layers(layer_class, name):
    positions, width = STACK_SCHEMES[name]
    settings = {
        "num_layers": 1,
        "num_heads": HEADS,
        "intermediate_dim": 11,
        "positions": positions,
    }
    inputs = INPUTS if layer_class is Encoder else (INPUTS, MEMORY)
    check_layer(layer_class, settings, inputs, (BATCH, LENGTH, width))


@pytest.mark.parametrize("max_wavelength", [10000, 1.5, 1e6])
@pytest.mark.parametrize("start_index", [0, 1, 1000, 1_000_000])
@pytest.mark.parametrize("dim", [2, 4, 64])
def test_rotary_turns_by_the_angles_of_the_paper(dim, start_index, max_wavelength):
    states = np.random.default_rng(dim).normal(size=(BATCH, 97, dim)).astype("float32")
    layer = RotaryEmbedding(max_wavelength)
    outputs = to_numpy(layer(states, start_index=start_index))
    positions = start_index + np.arange(97)
    expected = paper_rotation(states, positions, max_wavelength)
    # As for the sinusoids: frequencies are rounded to 2 ** -33 of a turn.
    error = 2 * np.pi * 2**-33 * positions[-1] + 1e-6
    np.testing.assert_allclose(outputs, expected, 0, error * np.abs(states).max() * 2)


@pytest.mark.parametrize(
    ("dtype", "rounding"), [("float16", 2**-11), ("bfloat16", 2**-8)]
)
def test_half_precision_rounds_what_is_turned_but_not_the_angles(dtype, rounding):
    states = ops.cast(RANDOM.normal(size=(1, 600, 64)), dtype)
    rotated = RotaryEmbedding(dtype=dtype)(states, start_index=1000)
    expected = paper_rotation(to_numpy(states), 1000 + np.arange(600))
    np.testing.assert_allclose(to_numpy(rotated), expected, rounding, 1e-5)


def rotation_of_pairs(states, positions, frequencies, pairs):
    """Rotates columns of `states` in pairs, as complex numbers."""
    rotated = np.array(states, "float64")
    for frequency, (x, y) in zip(frequencies, pairs, strict=True):
        points = states[..., x] + 1j * states[..., y].astype("float64")
        points = points * np.exp(1j * positions * frequency)
        rotated[..., x], rotated[..., y] = points.real, points.imag
    return rotated


def test_halves_are_rotated_as_in_gpt_neox():
    states = RANDOM.normal(size=(BATCH, HEADS, 13, 6)).astype("float32")
    outputs = RotaryEmbedding(100, layout="halves")(states, start_index=3)
    frequencies = [100 ** (-2 * i / 6) for i in range(3)]
    expected = rotation_of_pairs(
        states, 3 + np.arange(13), frequencies, [(0, 3), (1, 4), (2, 5)]
    )
    np.testing.assert_allclose(to_numpy(outputs), expected, 0, 1e-5)


def test_a_layout_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="`layout` must be one of .*'half'"):
        RotaryEmbedding(layout="half")


@pytest.mark.parametrize("shift", [1, 1000, 1_000_000])
def test_the_product_of_turned_vectors_depends_on_their_distance_alone(shift):
    states = np.random.default_rng(1).normal(size=(2, 61, 16)).astype("float32")
    layer = RotaryEmbedding()

    def products(start_index):
        queries, keys = (to_numpy(layer(x, start_index=start_index)) for x in states)
        return queries @ keys.T

    at_the_start = products(0)
    np.testing.assert_allclose(products(shift), at_the_start, 0, 2e-5)
    assert np.abs(at_the_start - states[0] @ states[1].T).max() > 1


@pytest.mark.parametrize("bias_max", [8, 5, 0.5])
@pytest.mark.parametrize("num_heads", [*range(1, 18), 31, 32, 48, 96])
def test_slopes_are_those_of_the_paper(num_heads, bias_max):
    slopes = head_slopes(num_heads, bias_max)
    assert slopes.dtype == "float32"
    np.testing.assert_allclose(slopes, paper_slopes(num_heads, bias_max), 1e-6)


def test_the_linear_bias_has_the_slopes_of_its_bias_max():
    bias = to_numpy(LinearPositionBias(bias_max=5)(np.zeros((1, 3, 2, 2), "float32")))
    np.testing.assert_allclose(-bias[0, :, 0, 1], paper_slopes(3, 5), 1e-6)
    with pytest.raises(ValueError, match="`bias_max` must be positive. .*bias_max=0"):
        LinearPositionBias(bias_max=0)


def test_eight_heads_have_the_slopes_that_the_paper_spells_out():
    expected = [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
    np.testing.assert_array_equal(head_slopes(8), expected)


@pytest.mark.parametrize("num_heads", [1, 3, 8])
@pytest.mark.parametrize("start_index", [0, 4, 100_000])
def test_the_linear_bias_is_the_distance_times_the_slope(num_heads, start_index):
    products = RANDOM.normal(size=(BATCH, num_heads, 5, 11)).astype("float32")
    outputs = to_numpy(LinearPositionBias()(products, start_index=start_index))
    bias = paper_bias(num_heads, start_index + np.arange(5), np.arange(11))
    np.testing.assert_allclose(outputs, products + bias, 1e-6, 1e-6)


@pytest.mark.parametrize(
    "layer", [RotaryEmbedding(), LinearPositionBias()], ids=SCHEMES
)
def test_positions_may_differ_within_a_batch(layer):
    layer.build((None, HEADS, None, KEY_DIM))
    positions = np.array([[0, 1, 2, 3, 4], [7, 3, 11, 0, 5]])
    together = layer.rotate(HEADED, positions)
    bias = layer.bias(positions, positions[:, ::-1])
    for i, row in enumerate(positions):
        alone = layer.rotate(HEADED[i : i + 1], row)
        np.testing.assert_allclose(together[i], alone[0], 1e-6, 1e-6)
        if bias is not None:
            np.testing.assert_array_equal(bias[i], layer.bias(row, row[::-1]))
    one_place = layer.rotate(HEADED, 7)
    np.testing.assert_allclose(
        one_place, layer.rotate(HEADED, np.full(LENGTH, 7)), 1e-6, 1e-6
    )


@pytest.mark.parametrize("name", SCHEMES)
def test_attention_is_the_definition_with_positions_in_it(name):
    layer = randomised(
        MultiHeadAttention(HEADS, KEY_DIM, positions=name), INPUTS, INPUTS
    )
    mask = np.array([[1, 1, 0, 1, 1], [1, 1, 1, 1, 0]], bool)
    _, scores = layer(INPUTS, INPUTS, value_mask=mask, return_attention_scores=True)

    def split(projection):
        """(batch, length, width) -> (batch, heads, length, dim)."""
        states = to_numpy(projection(INPUTS)).reshape(BATCH, LENGTH, HEADS, KEY_DIM)
        return states.transpose(0, 2, 1, 3)

    queries, keys = split(layer.query_projection), split(layer.key_projection)
    places, bias = np.arange(LENGTH), 0.0
    if name == "rotary":
        queries, keys = paper_rotation(queries, places), paper_rotation(keys, places)
    else:
        bias = paper_bias(HEADS, places, places)
    products = queries @ keys.swapaxes(-1, -2) / np.sqrt(KEY_DIM) + bias
    expected = np.exp(products) * mask[:, None, None, :]
    expected /= expected.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(to_numpy(scores), expected, 1e-4, 1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_large_bias_leaves_half_precision_products_their_digits(dtype):
    # At a distance of 500,000 the bias is about -2000, beside which half
    # precision keeps no digits of the products.
    layer = MultiHeadAttention(1, 2, use_bias=False, positions="linear_bias")
    reference = randomised(layer, INPUTS, INPUTS)
    half = MultiHeadAttention(
        1, 2, use_bias=False, positions="linear_bias", dtype=dtype
    )
    half(INPUTS, INPUTS)
    half.set_weights(reference.get_weights())
    positions = np.full(LENGTH, 500_000)
    scores = []
    for attention in (reference, half):
        states = ops.cast(INPUTS, attention.compute_dtype)
        read = attention.project(states)
        attended = attention.attend(
            states, read, positions=positions, return_attention_scores=True
        )
        scores.append(to_numpy(attended[1]))
    np.testing.assert_allclose(scores[1], scores[0], 0, 0.03)


@pytest.mark.parametrize("name", SCHEMES)
def test_only_distances_count_in_an_encoder(name):
    encoder = Encoder(2, HEADS, 11, positions=name)
    randomised(encoder, INPUTS)
    before = to_numpy(encoder(INPUTS))
    # Masked positions in front move the others, all alike.
    moved = np.concatenate([RANDOM.normal(size=(BATCH, 13, WIDTH)), INPUTS], axis=1)
    mask = np.broadcast_to(np.arange(13 + LENGTH) >= 13, moved.shape[:2])
    after = to_numpy(encoder(moved.astype("float32"), mask=mask))[:, 13:]
    np.testing.assert_allclose(after, before, 1e-4, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", [None, *SCHEMES])
def test_the_order_counts_where_there_are_positions(name):
    block = randomised(EncoderBlock(HEADS, 11, positions=name), INPUTS)
    reversed_twice = to_numpy(block(INPUTS[:, ::-1]))[:, ::-1]
    difference = np.abs(reversed_twice - to_numpy(block(INPUTS))).max()
    if name == "linear_bias":
        # Without a causal mask, left and right count alike.
        assert difference < 1e-4
        causal = to_numpy(block(INPUTS[:, ::-1], use_causal_mask=True))
        assert np.abs(causal[:, ::-1] - reversed_twice).max() > 0.1
        shuffled = [3, 0, 4, 1, 2]
        other = to_numpy(block(INPUTS[:, shuffled]))
        difference = np.abs(other - to_numpy(block(INPUTS))[:, shuffled]).max()
    assert (difference < 1e-4) == (name is None)


def test_cross_attention_knows_no_positions():
    for name in SCHEMES:
        block = DecoderBlock(HEADS, 11, positions=name)
        randomised(block, INPUTS, MEMORY)
        shuffled = [3, 0, 6, 4, 1, 5, 2]
        before, after = (block(INPUTS, x) for x in (MEMORY, MEMORY[:, shuffled]))
        np.testing.assert_allclose(before, after, 1e-4, 1e-5)


@pytest.mark.quick("merge1")
@pytest.mark.parametrize("merge", [{}, {"merge": "concatenate", "encoding_dim": 3}])
def test_an_encoding_in_a_stack_is_the_encoding_before_it(merge):
    encoding = SinusoidalPositionalEncoding(100, **merge)
    outer = randomised(Encoder(2, HEADS, 11, positions=encoding), INPUTS)
    encoded = encoding(INPUTS)
    inner = Encoder(2, HEADS, 11)
    inner(encoded)
    inner.set_weights(outer.get_weights())
    np.testing.assert_array_equal(outer(INPUTS), inner(encoded))


def test_the_sums_of_inputs_and_encodings_are_dropped_out():
    encoder = Encoder(
        1,
        HEADS,
        11,
        dropout=1 - 1e-6,
        normalize_first=True,
        positions=LearnedPositionalEncoding(LENGTH),
    )
    assert np.abs(ops.convert_to_numpy(encoder(INPUTS))).max() > 0.1
    np.testing.assert_array_equal(encoder(INPUTS, training=True), 0 * INPUTS)


def test_encodings_that_end_are_not_decoded_beyond():
    decoder = Decoder(1, HEADS, 11, positions=LearnedPositionalEncoding(LENGTH))
    decoder(INPUTS, MEMORY)
    decoder.start(ops.convert_to_tensor(MEMORY), 1, LENGTH)
    message = "end at `max_length`=5: shorten .* Received: length=6"
    with pytest.raises(ValueError, match=message):
        decoder.start(ops.convert_to_tensor(MEMORY), 1, LENGTH + 1)


@pytest.mark.parametrize("layer_class", [Encoder, EncoderBlock, MultiHeadAttention])
def test_schemes_of_no_such_name_are_refused(layer_class):
    sizes = {Encoder: (2, HEADS, 11)}.get(layer_class, (HEADS, 11))
    message = "`positions` must be one of .*'rotary'.* Received: positions='rotari'"
    with pytest.raises(ValueError, match=message):
        layer_class(*sizes, positions="rotari")


@pytest.mark.parametrize(
    "layer_class", [EncoderBlock, DecoderBlock, MultiHeadAttention]
)
def test_encodings_of_inputs_are_not_for_inside_attention(layer_class):
    for positions in ("sinusoidal", SinusoidalPositionalEncoding()):
        message = "must act inside attention, as `RotaryEmbedding.*` .* do. Call an"
        with pytest.raises(ValueError, match=message):
            layer_class(HEADS, 11, positions=positions)


def test_positions_that_are_no_layer_are_refused():
    with pytest.raises(ValueError, match="`positions` must be a layer. .*positions=5"):
        Encoder(2, HEADS, 11, positions=5)


def test_columns_are_turned_in_pairs():
    message = "`dim`, the width of queries and keys, must be even.* Received: dim=3"
    with pytest.raises(ValueError, match=message):
        RotaryEmbedding()(ops.zeros((2, 5, 3)))
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(HEADS, 3, positions="rotary")(INPUTS, INPUTS)
    layer = RotaryEmbedding()
    layer(ops.zeros((2, 5, 4)))
    with pytest.raises(ValueError, match=message):
        layer(ops.zeros((2, 5, 3)))


def test_wavelengths_must_be_above_one():
    message = "`max_wavelength` must be above 1. Received: max_wavelength=1"
    with pytest.raises(ValueError, match=message):
        RotaryEmbedding(1)


def test_products_of_another_rank_are_refused():
    message = r"must have the shape \(batch, num_heads, query_length, key_length\)"
    with pytest.raises(ValueError, match=message):
        LinearPositionBias()(INPUTS)


def test_products_of_other_heads_than_built_are_refused():
    layer = LinearPositionBias()
    layer(HEADED)
    message = r"`inputs` must have the heads .*shape \(2, 1, 5, 4\).* num_heads=3"
    with pytest.raises(ValueError, match=message):
        layer(HEADED[:, :1])
