import keras
import numpy as np
import pytest
from keras import ops
from layer_contract import check_layer

from keras_transformer.layers import (
    Encoder,
    EncoderBlock,
    FeedForward,
    LearnedPositionalEncoding,
    MultiHeadAttention,
)

BATCH, LENGTH, WIDTH, HEADS, INNER = 2, 5, 6, 3, 11
SETTINGS = {"num_heads": HEADS, "intermediate_dim": INNER, "epsilon": 1e-3}
RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.normal(size=(BATCH, LENGTH, WIDTH)).astype("float32")
MASK = np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], bool)
ATTENTION_MASK = RANDOM.random((BATCH, LENGTH, LENGTH)) < 0.7
NORMS = [False, True]


def randomised(layer):
    layer.build(INPUTS.shape)
    random = np.random.default_rng(1)
    layer.set_weights([random.normal(size=w.shape) for w in layer.weights])
    return layer


def weights_under(layer, name):
    return [ops.convert_to_numpy(w) for w in layer.weights if f"/{name}/" in w.path]


def part(layer, name, built_part, *shapes):
    """One of the public layers, with the weights of its like inside `layer`."""
    built_part.build(*shapes)
    built_part.set_weights(weights_under(layer, name))
    return built_part


@pytest.mark.quick("False-EncoderBlock")
@pytest.mark.parametrize("layer_class", [EncoderBlock, Encoder])
@pytest.mark.parametrize("normalize_first", NORMS)
def test_the_encoder_keeps_the_contract_of_layers(layer_class, normalize_first):
    settings = {
        **SETTINGS,
        "dropout": 0.1,
        "normalize_first": normalize_first,
        "activation": "gelu",
    }
    if layer_class is Encoder:
        settings["num_layers"] = 2
    inputs = {"inputs": INPUTS, "use_causal_mask": True}
    check_layer(layer_class, settings, inputs, INPUTS.shape)


@pytest.mark.slow
def test_the_contract_holds_with_scores():
    check_layer(
        EncoderBlock,
        SETTINGS,
        {"inputs": INPUTS, "return_attention_scores": True},
        [INPUTS.shape, (BATCH, HEADS, LENGTH, LENGTH)],
    )


@pytest.mark.quick("False-mask", "True-no mask", "True-mask+attention_mask+use_causa")
@pytest.mark.parametrize(
    "masks",
    [
        {},
        {"mask": MASK},
        {"attention_mask": ATTENTION_MASK},
        {"mask": MASK, "attention_mask": ATTENTION_MASK, "use_causal_mask": True},
    ],
    ids=lambda masks: "+".join(masks) or "no mask",
)
@pytest.mark.parametrize("normalize_first", NORMS)
def test_a_block_is_the_equations_of_the_paper(normalize_first, masks):
    block = randomised(EncoderBlock(**SETTINGS, normalize_first=normalize_first))
    attention = part(
        block,
        "self_attention",
        MultiHeadAttention(HEADS, WIDTH // HEADS),
        INPUTS.shape,
        INPUTS.shape,
    )
    transform = part(block, "feed_forward", FeedForward(INNER), INPUTS.shape)
    norms = [
        part(block, name, keras.layers.LayerNormalization(epsilon=1e-3), INPUTS.shape)
        for name in ("self_attention_residual", "feed_forward_residual")
    ]

    def attend(states):
        return attention(
            states,
            states,
            query_mask=masks.get("mask"),
            value_mask=masks.get("mask"),
            attention_mask=masks.get("attention_mask"),
            use_causal_mask=masks.get("use_causal_mask", False),
        )

    states = ops.convert_to_tensor(INPUTS)
    for sublayer, norm in zip((attend, transform), norms, strict=True):
        if normalize_first:
            states = states + sublayer(norm(states))
        else:
            states = norm(states + sublayer(states))
    np.testing.assert_allclose(block(INPUTS, **masks), states, 1e-4, 1e-5)


@pytest.mark.quick("True")
@pytest.mark.parametrize("normalize_first", NORMS)
def test_a_stack_is_its_blocks_one_after_the_other(normalize_first):
    encoder = Encoder(num_layers=3, **SETTINGS, normalize_first=normalize_first)
    randomised(encoder)
    masks = {"mask": MASK, "attention_mask": ATTENTION_MASK, "use_causal_mask": True}
    states, all_scores = INPUTS, []
    assert len(encoder.blocks) == 3
    for block in encoder.blocks:
        states, scores = block(states, **masks, return_attention_scores=True)
        all_scores.append(scores)
    if normalize_first:
        norm = keras.layers.LayerNormalization(epsilon=1e-3)
        states = part(encoder, "final_norm", norm, INPUTS.shape)(states)
    else:
        assert not weights_under(encoder, "final_norm")
    np.testing.assert_allclose(encoder(INPUTS, **masks), states, 1e-5, 1e-6)
    outputs, scores = encoder(INPUTS, **masks, return_attention_scores=True)
    np.testing.assert_allclose(outputs, states, 1e-5, 1e-6)
    np.testing.assert_allclose(scores, np.stack(all_scores), 1e-5, 1e-6)


def test_blocks_of_a_stack_share_no_weights():
    encoder = Encoder(num_layers=2, **SETTINGS)
    encoder.build(INPUTS.shape)
    first, second = (block.get_weights() for block in encoder.blocks)
    assert len(encoder.weights) == len(first) + len(second)
    assert np.any(first[0] != second[0])


@pytest.mark.quick("Encoder-False", "Encoder-True")
@pytest.mark.parametrize("normalize_first", NORMS)
@pytest.mark.parametrize("layer_class", [EncoderBlock, Encoder])
def test_dropout_acts_on_the_output_of_every_sublayer(layer_class, normalize_first):
    settings = {**SETTINGS, "normalize_first": normalize_first}
    if layer_class is Encoder:
        settings["num_layers"] = 1
    # Next to nothing comes out of a sub-layer, so the states pass it by.
    layer = randomised(layer_class(**settings, dropout=1 - 1e-6))
    states = ops.convert_to_tensor(INPUTS)
    if layer_class is Encoder:  # which drops its inputs too
        states = ops.zeros_like(states)
    norms = ["self_attention_residual", "feed_forward_residual"]
    if normalize_first:
        norms = ["final_norm"] if layer_class is Encoder else []
    for name in norms:
        norm = keras.layers.LayerNormalization(epsilon=1e-3)
        states = part(layer, name, norm, INPUTS.shape)(states)
    np.testing.assert_allclose(layer(INPUTS, training=True), states, 1e-4, 1e-5)
    without = layer_class(**settings)
    without.build(INPUTS.shape)
    without.set_weights(layer.get_weights())
    np.testing.assert_array_equal(layer(INPUTS), without(INPUTS))


@pytest.mark.parametrize("layer_class", [EncoderBlock, Encoder])
def test_heads_must_divide_the_width(layer_class):
    settings = {"num_layers": 2} if layer_class is Encoder else {}
    layer = layer_class(num_heads=5, intermediate_dim=INNER, **settings)
    with pytest.raises(
        ValueError,
        match="`num_heads` must divide .* Received: num_heads=5, hidden_dim=6",
    ):
        layer(INPUTS)


def test_there_must_be_heads():
    with pytest.raises(ValueError, match="`num_heads` must be .* num_heads=0"):
        EncoderBlock(num_heads=0, intermediate_dim=INNER)(INPUTS)


def test_there_must_be_layers():
    with pytest.raises(
        ValueError,
        match="`num_layers` must be a positive integer. Received: num_layers=0",
    ):
        Encoder(num_layers=0, **SETTINGS)


def test_inputs_of_another_rank_are_refused():
    with pytest.raises(ValueError, match="must have the shape .batch, length, hidden"):
        EncoderBlock(**SETTINGS)(INPUTS[0])


@pytest.mark.parametrize("positions", [None, "rotary", "sinusoidal"])
def test_a_stack_drops_its_inputs_with_their_positions(positions):
    encoder = Encoder(1, **SETTINGS, positions=positions, dropout=0.5, seed=7)
    encoder.build(INPUTS.shape)
    seen = []
    block = encoder.blocks[0]
    call = block.call
    block.call = lambda states, **how: seen.append(states) or call(states, **how)
    for training in (True, False):
        encoder(INPUTS, training=training)
    dropped, kept = map(ops.convert_to_numpy, seen)
    is_kept = dropped != 0
    assert 0.2 < is_kept.mean() < 0.8
    np.testing.assert_allclose(dropped[is_kept], 2 * kept[is_kept], 1e-5)


def test_a_stack_knows_how_many_positions_it_has():
    learned = LearnedPositionalEncoding(max_length=11)
    for positions, expected in ((learned, 11), ("rotary", None), (None, None)):
        assert Encoder(1, **SETTINGS, positions=positions).max_positions == expected


@pytest.mark.parametrize(
    "layer",
    [Encoder(1, 2, 11, positions="sinusoidal"), Encoder(1, 2, 11), EncoderBlock(2, 11)],
)
def test_ids_are_refused_with_a_pointer_to_embeddings(layer):
    with pytest.raises(ValueError, match=r"Embed ids first.* inputs of shape \(2, 4\)"):
        layer(np.array([[3, 1, 4, 0], [1, 5, 0, 0]]))
