import functools

import numpy as np
import pytest
from keras import ops
from layer_contract import check_layer

from keras_transformer.layers import (
    CausalBlock,
    CausalDecoder,
    EncoderBlock,
    LearnedPositionalEncoding,
)

SETTINGS = {
    "num_heads": 2,
    "intermediate_dim": 11,
    "dropout": 0.1,
    "normalize_first": True,
    "activation": "gelu",
    "epsilon": 1e-3,
}
SCHEMES = {
    "none": None,
    "sinusoidal": "sinusoidal",
    "rotary": "rotary",
    "linear bias": "linear_bias",
    "learned": LearnedPositionalEncoding(7),
    "concatenated": LearnedPositionalEncoding(7, "concatenate", encoding_dim=5),
}
STATES = np.random.default_rng(0).normal(size=(3, 7, 10)).astype("float32")


@pytest.mark.slow
def test_a_block_keeps_the_contract_of_layers():
    check_layer(CausalBlock, SETTINGS, STATES, (3, 7, 10))


@pytest.mark.slow
def test_a_stack_keeps_the_contract_of_layers():
    settings = {"num_layers": 2, **SETTINGS, "num_heads": 5}
    settings |= {"positions": SCHEMES["concatenated"]}
    check_layer(CausalDecoder, settings, STATES, (3, 7, 15))


def test_a_block_is_an_encoder_block_with_a_causal_mask():
    block, encoder = CausalBlock(**SETTINGS), EncoderBlock(**SETTINGS)
    block.build(STATES.shape)
    encoder.build(STATES.shape)
    encoder.set_weights(block.get_weights())
    outputs, scores = block(STATES, return_attention_scores=True)
    expected = encoder(STATES, use_causal_mask=True)
    np.testing.assert_allclose(outputs, expected, 1e-5, 1e-6)
    assert scores.shape == (3, 2, 7, 7)


@pytest.mark.quick("learned-4-True")
@pytest.mark.parametrize("normalize_first", [False, True])
@pytest.mark.parametrize("prompt_length", [1, 4])
@pytest.mark.parametrize("positions", SCHEMES.values(), ids=SCHEMES)
def test_steps_after_a_prompt_give_what_the_call_gives(
    positions, normalize_first, prompt_length
):
    """Two hypotheses, each in its own slot, after prompts of two lengths."""
    settings = {**SETTINGS, "normalize_first": normalize_first}
    settings |= {"num_heads": 5, "positions": positions}
    decoder = CausalDecoder(num_layers=2, **settings)
    prompts = STATES[:2, :prompt_length]
    mask = np.ones((2, prompt_length), bool)
    mask[0, 1:] = False
    # (batch, hypotheses, length, hidden_dim)
    new = np.random.default_rng(1).normal(size=(2, 2, 3, 10)).astype("float32")
    decoder.build((None, None, 10))
    memory_mask = ops.convert_to_tensor(mask)
    context, cache = decoder.start(ops.convert_to_tensor(prompts), 2, 3, memory_mask)
    lengths = ops.convert_to_tensor(mask.sum(axis=1), "int32")
    slots = np.eye(2, dtype=bool)[None, :, None, :]
    for index in range(3):
        written = (np.arange(3) <= index)[None, None, :, None]
        visible = np.broadcast_to(slots & written, (2, 2, 3, 2))
        states = ops.convert_to_tensor(new[:, :, index])
        at = ops.full((2,), index, "int32")
        outputs, cache = decoder.step(
            states, context, cache, at, visible, positions=lengths + at
        )
        for i in range(2):
            for j in range(2):
                past = prompts[i, mask[i]], new[i, j, : index + 1]
                expected = decoder(np.concatenate(past)[None])[0, -1]
                np.testing.assert_allclose(outputs[i, j], expected, 1e-4, 1e-5)


@pytest.mark.quick("linear_bias-mask0")
@pytest.mark.parametrize("mask", [[0, 0, 1, 1, 1], [1, 0, 1, 1, 1], [1, 1, 1, 0, 0]])
@pytest.mark.parametrize("positions", ["rotary", "linear_bias"])
def test_prompts_may_be_padded_on_any_side(positions, mask):
    decoder = CausalDecoder(2, 5, 11, positions=positions)
    decoder.build((None, None, 10))
    prompts, mask = STATES[:1, :5], np.array([mask], bool)
    new = np.random.default_rng(1).normal(size=(1, 1, 10)).astype("float32")
    context, cache = decoder.start(ops.convert_to_tensor(prompts), 1, 1, mask)
    visible = np.ones((1, 1, 1, 1), bool)
    index = ops.zeros((1,), "int32")
    outputs, _ = decoder.step(new, context, cache, index, visible)
    states = np.concatenate([prompts, new], axis=1)
    whole = np.concatenate([mask, [[True]]], axis=1)
    expected = decoder(states, mask=whole)[:, -1]
    np.testing.assert_allclose(outputs[:, 0], expected, 1e-4, 1e-5)


@pytest.mark.parametrize("make", [CausalBlock, functools.partial(CausalDecoder, 2)])
def test_prompts_without_a_mask_are_read_whole(make):
    block = make(5, 11, positions="rotary")
    block.build((None, None, 10))
    prompts = ops.convert_to_tensor(STATES[:1, :5])
    *_, context, cache = block.start(prompts, 1, 1)
    new, visible = STATES[1:2, :1], np.ones((1, 1, 1, 1), bool)
    index = ops.zeros((1,), "int32")
    outputs, _ = block.step(new, context, cache, index, visible, index + 5)
    expected = block(np.concatenate([STATES[:1, :5], new], axis=1))[:, -1]
    np.testing.assert_allclose(outputs[:, 0], expected, 1e-4, 1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_cached_step_reads_no_padding_of_the_prompt(value):
    decoder = CausalDecoder(2, 5, 11, positions="rotary")
    decoder.build((None, None, 10))
    mask, new = np.array([[True, True, True, False]]), STATES[1:2, :1]
    visible, index = np.ones((1, 1, 1, 1), bool), ops.zeros((1,), "int32")
    outputs = []
    for padding in (0.0, value):
        prompts = np.where(mask[..., None], STATES[:1, :4], np.float32(padding))
        context, cache = decoder.start(ops.convert_to_tensor(prompts), 1, 1, mask)
        outputs.append(decoder.step(new, context, cache, index, visible)[0])
    assert np.isfinite(ops.convert_to_numpy(outputs[1])).all()
    np.testing.assert_array_equal(outputs[1], outputs[0])


def test_a_hypothesis_reads_nothing_of_those_that_it_does_not_see():
    decoder = CausalDecoder(2, 5, 11, positions="rotary")
    decoder.build((None, None, 10))
    prompts = ops.convert_to_tensor(STATES[:1, :3])
    found = []
    for hidden in (0.0, 1e9):
        context, cache = decoder.start(prompts, 3, 2)
        visible = np.zeros((1, 3, 2, 3), bool)
        visible[:, :, 0] = np.eye(3)
        states = STATES[1:2, :3].copy()
        states[:, 1] += hidden
        index = ops.zeros((1,), "int32")
        _, cache = decoder.step(states, context, cache, index, visible)
        # The first two go on from the first one, the third from the one that differs.
        visible[:, :, 0] = np.eye(3)[[0, 0, 1]]
        visible[:, :, 1] = np.eye(3)
        step = STATES[2:3, :3], context, cache, index + 1, visible
        found.append(ops.convert_to_numpy(decoder.step(*step)[0]))
    expected, outputs = found
    np.testing.assert_array_equal(outputs[:, :2], expected[:, :2])
    assert np.abs(outputs[:, 2] - expected[:, 2]).max() > 0.01


def test_a_stack_without_layers_is_refused():
    with pytest.raises(ValueError, match="`num_layers` must be .* num_layers=0"):
        CausalDecoder(num_layers=0, num_heads=2, intermediate_dim=11)


def test_positions_that_end_are_not_decoded_beyond():
    decoder = CausalDecoder(1, 2, 11, positions=SCHEMES["learned"])
    decoder.build(STATES.shape)
    prompts = ops.convert_to_tensor(STATES[:, :4])
    decoder.start(prompts, 2, 4)  # the first step may read the last position again
    with pytest.raises(ValueError, match="end at `max_length`=7: shorten .* length=8"):
        decoder.start(prompts, 2, 5)
