"""No padding and no future token changes an output, whichever way masks come."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from keras import ops
from layer_contract import AttachMask, ReadMask

from keras_transformer.layers import (
    AttentionPooling,
    Decoder,
    DecoderBlock,
    DotProductAttention,
    Encoder,
    EncoderBlock,
    FeedForward,
    LearnedPositionalEncoding,
    MultiHeadAttention,
    Residual,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    padding_mask,
)

BATCH, LENGTH, SOURCE, WIDTH = 2, 5, 7, 6
DTYPES = ["float32", "float16", "bfloat16"]
# Far larger than anything real, and still finite once it is projected.
HUGE = {"float32": 1e30, "float16": 1e3, "bfloat16": 1e30}
RANDOM = np.random.default_rng(0)
STATES = RANDOM.normal(size=(BATCH, LENGTH, WIDTH)).astype("float32")
MEMORY = RANDOM.normal(size=(BATCH, SOURCE, WIDTH)).astype("float32")
TARGET_IDS = np.array([[4, 2, 0, 3, 0], [7, 5, 11, 0, 0]])
SOURCE_IDS = np.array([[3, 1, 4, 0, 0, 9, 0], [2, 7, 1, 8, 2, 0, 0]])
ATTENTION_MASK = RANDOM.random((BATCH, LENGTH, LENGTH)) < 0.7


def to_numpy(tensor):
    return np.asarray(ops.convert_to_numpy(tensor), "float64")


def randomised(layer, *inputs):
    layer(*inputs)
    random = np.random.default_rng(1)
    layer.set_weights([random.normal(size=w.shape) for w in layer.weights])
    return layer


# Calls without masks, and what the same call is with explicit ones.
WITH_MASKS = {
    "attention": (
        lambda: MultiHeadAttention(2, 3),
        lambda layer, x, memory: layer(x, memory),
        lambda layer, x, memory, x_mask, memory_mask: layer(
            x, memory, query_mask=x_mask, value_mask=memory_mask
        ),
    ),
    "encoder block": (
        lambda: EncoderBlock(2, 11),
        lambda layer, x, memory: layer(x),
        lambda layer, x, memory, x_mask, memory_mask: layer(x, mask=x_mask),
    ),
    "encoder block with an attention mask": (
        lambda: EncoderBlock(2, 11),
        lambda layer, x, memory: layer(
            x, attention_mask=ops.convert_to_tensor(ATTENTION_MASK)
        ),
        lambda layer, x, memory, x_mask, memory_mask: layer(
            x, mask=x_mask, attention_mask=ATTENTION_MASK
        ),
    ),
    "encoder": (
        lambda: Encoder(2, 2, 11, normalize_first=True),
        lambda layer, x, memory: layer(x, use_causal_mask=True),
        lambda layer, x, memory, x_mask, memory_mask: layer(
            x, mask=x_mask, use_causal_mask=True
        ),
    ),
    "decoder block": (
        lambda: DecoderBlock(2, 11),
        lambda layer, x, memory: layer(x, memory),
        lambda layer, x, memory, x_mask, memory_mask: layer(
            x, memory, inputs_mask=x_mask, memory_mask=memory_mask
        ),
    ),
    "decoder": (
        lambda: Decoder(2, 2, 11, normalize_first=True),
        lambda layer, x, memory: layer(x, memory),
        lambda layer, x, memory, x_mask, memory_mask: layer(
            x, memory, inputs_mask=x_mask, memory_mask=memory_mask
        ),
    ),
}


@pytest.mark.quick("encoder block with an attention ma")
@pytest.mark.parametrize("name", WITH_MASKS)
def test_keras_masks_equal_explicit_ones(name):
    make, call, call_with_masks = WITH_MASKS[name]
    layer = make()
    embedding = keras.layers.Embedding(13, WIDTH, mask_zero=True)
    target, source = (
        keras.Input((length,), BATCH, dtype="int32") for length in (LENGTH, SOURCE)
    )
    outputs = call(layer, embedding(target), embedding(source))
    model = keras.Model([target, source], outputs)
    random = np.random.default_rng(1)
    model.set_weights([random.normal(size=w.shape) for w in model.weights])
    (table,) = embedding.get_weights()
    states, memory = table[TARGET_IDS], table[SOURCE_IDS]
    real = TARGET_IDS != 0
    expected = to_numpy(call_with_masks(layer, states, memory, real, SOURCE_IDS != 0))[
        real
    ]
    eager = call(layer, embedding(TARGET_IDS), embedding(SOURCE_IDS))
    compiled = model.predict_on_batch([TARGET_IDS, SOURCE_IDS])
    np.testing.assert_allclose(to_numpy(eager)[real], expected, 1e-4, 1e-5)
    np.testing.assert_allclose(compiled[real], expected, 1e-4, 1e-5)
    unmasked = to_numpy(call(layer, states, memory))[real]
    assert np.abs(unmasked - expected).max() > 0.1, "the masks make no difference"


def test_keras_masks_travel_through_every_layer():
    ids = keras.Input((None,), dtype="int32")
    states = keras.layers.Embedding(13, WIDTH, mask_zero=True)(ids)
    memory = keras.layers.Embedding(13, WIDTH)(ids)
    layers = [
        lambda x: SinusoidalPositionalEncoding()(x, start_index=3),
        SinusoidalPositionalEncoding(merge="concatenate", encoding_dim=2),
        LearnedPositionalEncoding(11),
        lambda x: MultiHeadAttention(2, 3)(x, memory),
        EncoderBlock(2, 11),
        FeedForward(11),
        lambda x: Residual()(x, sublayer=ops.square),
        Encoder(1, 2, 11, normalize_first=True),
        lambda x: DecoderBlock(2, 11)(x, memory),
        lambda x: Decoder(1, 2, 11)(x, memory),
    ]
    probes = [ReadMask() for _ in layers]
    for layer, probe in zip(layers, probes, strict=True):
        states = probe(layer(states))
    model = keras.Model(ids, states)
    model(TARGET_IDS)
    for layer, probe in zip(layers, probes, strict=True):
        assert probe.mask is not None, f"{layer} loses the mask"
        np.testing.assert_array_equal(probe.mask, TARGET_IDS != 0)


ENCODERS = {
    dtype: [
        Encoder(2, 2, 11, normalize_first=normalize_first, dtype=dtype)
        for normalize_first in (False, True)
    ]
    for dtype in DTYPES
}
DECODERS = {
    dtype: [
        Decoder(2, 2, 11, normalize_first=normalize_first, dtype=dtype)
        for normalize_first in (False, True)
    ]
    for dtype in DTYPES
}
huge_values = st.builds(
    lambda sign, power: sign * 10.0**power, st.sampled_from([-1, 1]), st.floats(-3, 0)
)


@pytest.mark.quick("float32")
@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=5)
@given(
    mask=arrays(bool, (BATCH, LENGTH)),
    value=huge_values,
    use_causal_mask=st.booleans(),
    attached=st.booleans(),
)
def test_padding_never_changes_what_the_encoder_makes_of_the_rest(
    dtype, mask, value, use_causal_mask, attached
):
    padded = np.where(mask[..., None], STATES, np.float32(value * HUGE[dtype]))
    for encoder in ENCODERS[dtype]:
        before, after = (
            to_numpy(
                # In its own dtype: Keras 3.12 loses the mask of what it casts.
                encoder(
                    AttachMask(dtype=dtype)((x, mask)),
                    use_causal_mask=use_causal_mask,
                )
                if attached
                else encoder(x, mask=mask, use_causal_mask=use_causal_mask)
            )
            for x in (STATES, padded)
        )
        assert np.all(np.isfinite(before))
        np.testing.assert_array_equal(after[mask], before[mask])


@pytest.mark.quick("float32")
@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=5)
@given(
    mask=arrays(bool, (BATCH, LENGTH)),
    memory_mask=arrays(bool, (BATCH, SOURCE)),
    value=huge_values,
    position=st.integers(1, LENGTH),
)
def test_neither_padding_nor_the_future_changes_what_the_decoder_makes_of_the_past(
    dtype, mask, memory_mask, value, position
):
    value = np.float32(value * HUGE[dtype])
    states = STATES.copy()
    states[:, position:] *= -7
    states = np.where(mask[..., None], states, value)
    memory = np.where(memory_mask[..., None], MEMORY, value)
    for decoder in DECODERS[dtype]:
        before, after = (
            to_numpy(decoder(*inputs, inputs_mask=mask, memory_mask=memory_mask))
            for inputs in ((STATES, MEMORY), (states, memory))
        )
        same = mask & (np.arange(LENGTH) < position)
        assert np.all(np.isfinite(before))
        np.testing.assert_array_equal(after[same], before[same])


def test_not_even_the_largest_half_precision_number_gets_out_of_padding():
    mask = TARGET_IDS != 0
    padded = np.where(mask[..., None], STATES, np.float32(6.5e4))
    encoder = randomised(Encoder(2, 2, 11, dtype="float16"), STATES)
    before, after = (to_numpy(encoder(x, mask=mask)) for x in (STATES, padded))
    np.testing.assert_array_equal(after[mask], before[mask])


def test_the_mask_of_ids_is_the_mask_of_their_embedding():
    probe = ReadMask()
    probe(keras.layers.Embedding(13, WIDTH, mask_zero=True)(TARGET_IDS))
    np.testing.assert_array_equal(probe.mask, padding_mask(TARGET_IDS))


def test_a_residual_by_a_layer_keeps_the_mask_and_arithmetic_does_not():
    attention, probe = MultiHeadAttention(2, 3), ReadMask()
    states = TokenEmbedding(11, 6)(np.array([[3, 1, 0]]))
    probe(keras.layers.Add()([states, attention(states, states)]))
    assert to_numpy(probe.mask).tolist() == [[True, True, False]]
    probe(states + attention(states, states))
    assert probe.mask is None  # if this fails, docs/keras.md need not warn of it


@pytest.mark.parametrize("layer", [MultiHeadAttention(2, 3), DotProductAttention()])
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("query_mask", (2, 7)),
        ("value_mask", (2, 5)),
        ("key_mask", (2, 5)),
        ("attention_mask", (2, 7, 5)),
        ("attention_mask", (2,)),
    ],
)
def test_masks_of_another_length_are_refused_by_their_name(layer, name, shape):
    query, value, mask = ops.ones((2, 5, 6)), ops.ones((2, 7, 6)), ops.ones(shape, bool)
    with pytest.raises(ValueError, match=f"`{name}` must have the shape .* of shape"):
        layer(query, value, **{name: mask})
    with pytest.raises(ValueError, match=f"`{name}` must have the shape .* of shape"):
        layer(query, value, return_attention_scores=True, **{name: mask})


@pytest.mark.parametrize("layer", [AttentionPooling(2), Encoder(1, 2, 11)])
def test_masks_of_three_axes_are_refused_by_their_shape(layer):
    with pytest.raises(ValueError, match=r"mask` must .* \(batch, length\).*2, 1, 5"):
        layer(STATES, mask=np.ones((BATCH, 1, LENGTH), bool))
