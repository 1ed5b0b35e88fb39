"""Positions given by the caller, and packed rows, which need them."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.kernels import attention as attention_kernel
from keras_transformer.layers import (
    CausalBlock,
    CausalDecoder,
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

WIDTH, HEADS = 6, 3
RANDOM = np.random.default_rng(0)
# Two sentences in the first row, with one of padding; three in the second.
SEGMENTS = np.array([[1, 1, 1, 2, 2, 2, 2, 0], [1, 1, 2, 3, 3, 3, 3, 3]])
POSITIONS = np.array([[0, 1, 2, 0, 1, 2, 3, 0], [0, 1, 0, 0, 1, 2, 3, 4]], "int32")
MASK = (SEGMENTS[:, :, None] == SEGMENTS[:, None]) & (SEGMENTS > 0)[:, :, None]
PACKED = RANDOM.normal(size=(*SEGMENTS.shape, WIDTH)).astype("float32")
MEMORY = RANDOM.normal(size=(2, 7, WIDTH)).astype("float32")
SCHEMES = {
    "rotary": "rotary",
    "halves": RotaryEmbedding(100, layout="halves"),
    "linear_bias": "linear_bias",
    "sinusoidal": SinusoidalPositionalEncoding(100),
    "learned": LearnedPositionalEncoding(5),
    "concatenated": LearnedPositionalEncoding(5, "concatenate", 3),
}


def stack_of(layer_class, positions, *inputs):
    """A stack of two blocks with weights large enough for positions to matter."""
    stack = layer_class(2, HEADS, 11, positions=positions)
    stack.build(*(x.shape for x in inputs))
    random = np.random.default_rng(1)
    stack.set_weights([random.normal(size=w.shape) / 2 for w in stack.weights])
    return stack


@pytest.mark.quick("Encoder-learned")
@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("layer_class", [Encoder, CausalDecoder])
def test_packed_sentences_have_the_states_of_each_alone(layer_class, name):
    stack = stack_of(layer_class, SCHEMES[name], PACKED)
    how = {"attention_mask": MASK, "positions": POSITIONS}
    states = stack(PACKED, **how)
    with_scores, _ = stack(PACKED, **how, return_attention_scores=True)
    states, with_scores = map(ops.convert_to_numpy, (states, with_scores))
    assert np.isfinite(states).all()
    for row, segments in enumerate(SEGMENTS):
        for segment in range(1, segments.max() + 1):
            here = segments == segment
            alone = ops.convert_to_numpy(stack(PACKED[row : row + 1, here]))[0]
            np.testing.assert_allclose(states[row, here], alone, 1e-5, 1e-5)
            np.testing.assert_allclose(with_scores[row, here], alone, 1e-5, 1e-5)


@pytest.mark.quick("halves")
@pytest.mark.parametrize("name", SCHEMES)
def test_given_positions_are_symbols_of_a_model_that_is_saved(name, tmp_path):
    stack = stack_of(Encoder, SCHEMES[name], PACKED)
    inputs = [
        keras.Input((None, WIDTH)),
        keras.Input((None, None), dtype="bool"),
        keras.Input((None,), dtype="int32"),
    ]
    outputs = stack(inputs[0], attention_mask=inputs[1], positions=inputs[2])
    model = keras.Model(inputs, outputs)
    model.save(tmp_path / "model.keras")
    reloaded = keras.models.load_model(tmp_path / "model.keras")
    expected = stack(PACKED, attention_mask=MASK, positions=POSITIONS)
    for each in (model, reloaded):
        outputs = each.predict_on_batch([PACKED, MASK, POSITIONS])
        np.testing.assert_allclose(outputs, expected, 1e-5, 1e-5)


STACKS = Encoder, CausalDecoder, Decoder
BLOCKS = EncoderBlock, CausalBlock, DecoderBlock


@pytest.mark.quick("EncoderBlock-rotary", "CausalBlock-rotary")
@pytest.mark.parametrize(
    ("layer_class", "name"),
    [
        *((x, name) for x in STACKS for name in ("rotary", "linear_bias", "learned")),
        *((x, name) for x in BLOCKS for name in ("rotary", "linear_bias")),
    ],
)
def test_positions_counted_from_zero_are_the_default(layer_class, name):
    inputs = (PACKED[:, :5],)
    if layer_class in (Decoder, DecoderBlock):
        inputs = (*inputs, MEMORY)
    sizes = (HEADS, 11) if layer_class in BLOCKS else (2, HEADS, 11)
    layer = layer_class(*sizes, positions=SCHEMES[name])
    expected = ops.convert_to_numpy(layer(*inputs))
    counted = np.broadcast_to(np.arange(5), (2, 5))
    for positions in (counted[0], counted):
        outputs = ops.convert_to_numpy(layer(*inputs, positions=positions))
        np.testing.assert_allclose(outputs, expected, 1e-5, 1e-5)
    others = np.array([[4, 0, 3, 1, 2], [0, 1, 2, 3, 4]])
    outputs = ops.convert_to_numpy(layer(*inputs, positions=others))
    np.testing.assert_allclose(outputs[1], expected[1], 1e-5, 1e-5)
    assert np.abs(outputs[0] - expected[0]).max() > 1e-3


def test_reordered_inputs_with_their_positions_are_the_same_set():
    for name in SCHEMES:
        inputs, order = PACKED[:, :5], [3, 0, 4, 1, 2]
        stack = stack_of(Encoder, SCHEMES[name], inputs)
        expected = ops.convert_to_numpy(stack(inputs))[:, order]
        outputs = stack(inputs[:, order], positions=np.array(order))
        np.testing.assert_allclose(outputs, expected, 1e-5, 1e-5, err_msg=name)


@pytest.mark.parametrize("name", ["rotary", "linear_bias"])
def test_long_inputs_have_their_positions_in_every_block(name, monkeypatch):
    layer = MultiHeadAttention(HEADS, 4, positions=name)
    positions = np.array([[9, 0, 3, 3, 1, 7, 2, 5], [0, 1, 2, 0, 1, 2, 3, 4]])
    where = {"query_positions": positions, "key_positions": positions}
    expected = ops.convert_to_numpy(layer(PACKED, PACKED, **where))
    monkeypatch.setattr(attention_kernel, "MAX_UNBLOCKED_LENGTH", 4)
    monkeypatch.setattr(attention_kernel, "BLOCK_LENGTH", 3)
    outputs = layer(PACKED, PACKED, **where)
    np.testing.assert_allclose(outputs, expected, 1e-5, 1e-5)


@pytest.mark.parametrize("name", ["rotary", "linear_bias"])
def test_one_query_at_its_position_reads_what_it_reads_among_all(name):
    layer = MultiHeadAttention(HEADS, 4, positions=name)
    where = {"query_positions": np.array([3]), "key_positions": np.arange(8)}
    one, whole = layer(PACKED[:, 3:4], PACKED, **where), layer(PACKED, PACKED)
    np.testing.assert_allclose(one[:, 0], whole[:, 3], 1e-5, 1e-5)


@pytest.mark.parametrize("name", ["query_positions", "key_positions"])
def test_positions_of_queries_or_keys_alone_are_refused(name):
    layer = MultiHeadAttention(HEADS, 4, positions="rotary")
    with pytest.raises(ValueError, match="must be given together. Received: query_pos"):
        layer(PACKED, PACKED, **{name: np.arange(8)})


@pytest.mark.parametrize("shape", [(), (7,), (2, 8, 1)])
def test_positions_of_queries_that_do_not_fit_are_refused(shape):
    layer = MultiHeadAttention(HEADS, 4, positions="linear_bias")
    message = r"`query_positions` must have the shape .*length=8"
    with pytest.raises(ValueError, match=message):
        layer(
            PACKED,
            PACKED,
            query_positions=np.zeros(shape, int),
            key_positions=np.arange(8),
        )


@pytest.mark.parametrize(
    "call",
    [
        lambda where: SinusoidalPositionalEncoding()(PACKED, start_index=where[0]),
        lambda where: LearnedPositionalEncoding(9)(PACKED, positions=where),
        lambda where: RotaryEmbedding()(PACKED, positions=where),
        lambda where: LinearPositionBias()(PACKED[None], start_index=where[0]),
        lambda where: EncoderBlock(HEADS, 11, positions="rotary")(
            PACKED, positions=where
        ),
    ],
)
def test_positions_that_are_floats_are_refused(call):
    """Mixed precision would round 257 to 256."""
    with pytest.raises(ValueError, match="must be integers.* dtype float32"):
        call(np.arange(8, dtype="float32"))


@pytest.mark.parametrize("layer", [EncoderBlock(HEADS, 11), Encoder(2, HEADS, 11)])
def test_positions_that_nothing_uses_are_refused(layer):
    message = "`positions` must be given only to a layer that uses them"
    with pytest.raises(ValueError, match=message):
        layer(PACKED, positions=POSITIONS)


@pytest.mark.parametrize("name", ["rotary", "learned"])
def test_positions_of_another_length_are_refused(name):
    with pytest.raises(ValueError, match="`positions` must have the shape .*length=8"):
        Encoder(2, HEADS, 11, positions=SCHEMES[name])(PACKED, positions=np.arange(7))
