import keras
import numpy as np
import pytest
from keras import ops
from layer_contract import check_layer

from keras_transformer.layers import (
    Decoder,
    DecoderBlock,
    FeedForward,
    LearnedPositionalEncoding,
    MultiHeadAttention,
    SinusoidalPositionalEncoding,
)

BATCH, LENGTH, SOURCE, WIDTH, MEMORY_WIDTH, HEADS, INNER = 2, 5, 7, 6, 11, 3, 13
SETTINGS = {"num_heads": HEADS, "intermediate_dim": INNER, "epsilon": 1e-3}
RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.normal(size=(BATCH, LENGTH, WIDTH)).astype("float32")
MEMORY = RANDOM.normal(size=(BATCH, SOURCE, MEMORY_WIDTH)).astype("float32")
INPUTS_MASK = np.array([[1, 1, 1, 1, 0], [1, 0, 1, 0, 0]], bool)
MEMORY_MASK = np.array([[1, 1, 0, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1]], bool)
MASKS = {"inputs_mask": INPUTS_MASK, "memory_mask": MEMORY_MASK}
NORMS = [False, True]
SCORE_SHAPES = [(BATCH, HEADS, LENGTH, LENGTH), (BATCH, HEADS, LENGTH, SOURCE)]


def randomised(layer):
    layer.build(INPUTS.shape, MEMORY.shape)
    random = np.random.default_rng(1)
    layer.set_weights([random.normal(size=w.shape) for w in layer.weights])
    return layer


def part(layer, name, built_part, *shapes):
    """One of the public layers, with the weights of its like inside `layer`."""
    built_part.build(*shapes)
    built_part.set_weights([w for w in layer.weights if f"/{name}/" in w.path])
    return built_part


def layer_norm(layer, name):
    norm = keras.layers.LayerNormalization(epsilon=1e-3)
    return part(layer, name, norm, INPUTS.shape)


RESIDUALS = [
    "self_attention_residual",
    "cross_attention_residual",
    "feed_forward_residual",
]


@pytest.mark.quick("False-DecoderBlock")
@pytest.mark.parametrize("layer_class", [DecoderBlock, Decoder])
@pytest.mark.parametrize("normalize_first", NORMS)
def test_the_decoder_keeps_the_contract_of_layers(layer_class, normalize_first):
    settings = {
        **SETTINGS,
        "dropout": 0.1,
        "normalize_first": normalize_first,
        "activation": "gelu",
    }
    if layer_class is Decoder:
        settings["num_layers"] = 2
    check_layer(layer_class, settings, (INPUTS, MEMORY), INPUTS.shape)


@pytest.mark.slow
def test_the_contract_holds_with_scores():
    check_layer(
        DecoderBlock,
        SETTINGS,
        {"inputs": INPUTS, "memory": MEMORY, "return_attention_scores": True},
        [INPUTS.shape, *SCORE_SHAPES],
    )


@pytest.mark.quick("False-no masks", "False-masks")
@pytest.mark.parametrize("masks", [{}, MASKS], ids=["no masks", "masks"])
@pytest.mark.parametrize("normalize_first", NORMS)
def test_a_block_is_the_equations_of_the_paper(normalize_first, masks):
    block = randomised(DecoderBlock(**SETTINGS, normalize_first=normalize_first))
    shapes = {"self_attention": INPUTS.shape, "cross_attention": MEMORY.shape}
    attention = {
        name: part(
            block, name, MultiHeadAttention(HEADS, WIDTH // HEADS), INPUTS.shape, shape
        )
        for name, shape in shapes.items()
    }
    transform = part(block, "feed_forward", FeedForward(INNER), INPUTS.shape)

    def attend(states):
        mask = masks.get("inputs_mask")
        return attention["self_attention"](
            states, states, query_mask=mask, value_mask=mask, use_causal_mask=True
        )

    def attend_to_memory(states):
        return attention["cross_attention"](
            states,
            MEMORY,
            query_mask=masks.get("inputs_mask"),
            value_mask=masks.get("memory_mask"),
        )

    states = ops.convert_to_tensor(INPUTS)
    sublayers = (attend, attend_to_memory, transform)
    for sublayer, name in zip(sublayers, RESIDUALS, strict=True):
        norm = layer_norm(block, name)
        if normalize_first:
            states = states + sublayer(norm(states))
        else:
            states = norm(states + sublayer(states))
    np.testing.assert_allclose(block(INPUTS, MEMORY, **masks), states, 1e-4, 1e-5)


@pytest.mark.quick("True")
@pytest.mark.parametrize("normalize_first", NORMS)
def test_a_stack_is_its_blocks_one_after_the_other(normalize_first):
    decoder = Decoder(num_layers=3, **SETTINGS, normalize_first=normalize_first)
    randomised(decoder)
    states, self_scores, cross_scores = INPUTS, [], []
    assert len(decoder.blocks) == 3
    for block in decoder.blocks:
        states, *scores = block(states, MEMORY, **MASKS, return_attention_scores=True)
        assert [x.shape for x in scores] == SCORE_SHAPES
        self_scores.append(scores[0])
        cross_scores.append(scores[1])
    if normalize_first:
        states = layer_norm(decoder, "final_norm")(states)
    np.testing.assert_allclose(decoder(INPUTS, MEMORY, **MASKS), states, 1e-5, 1e-6)
    outputs = decoder(INPUTS, MEMORY, **MASKS, return_attention_scores=True)
    expected = (states, np.stack(self_scores), np.stack(cross_scores))
    for output, wanted in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(output, wanted, 1e-5, 1e-6)


@pytest.mark.quick("Decoder-False", "Decoder-True")
@pytest.mark.parametrize("normalize_first", NORMS)
@pytest.mark.parametrize("layer_class", [DecoderBlock, Decoder])
def test_dropout_acts_on_the_output_of_every_sublayer(layer_class, normalize_first):
    settings = {**SETTINGS, "normalize_first": normalize_first}
    if layer_class is Decoder:
        settings["num_layers"] = 1
    # Next to nothing comes out of a sub-layer, so the states pass it by.
    layer = randomised(layer_class(**settings, dropout=1 - 1e-6))
    norms = RESIDUALS
    if normalize_first:
        norms = ["final_norm"] if layer_class is Decoder else []
    states = ops.convert_to_tensor(INPUTS)
    if layer_class is Decoder:  # which drops its inputs too
        states = ops.zeros_like(states)
    for name in norms:
        states = layer_norm(layer, name)(states)
    outputs = layer(INPUTS, MEMORY, training=True)
    np.testing.assert_allclose(outputs, states, 1e-4, 1e-5)
    without = layer_class(**settings)
    without.build(INPUTS.shape, MEMORY.shape)
    without.set_weights(layer.get_weights())
    np.testing.assert_array_equal(layer(INPUTS, MEMORY), without(INPUTS, MEMORY))


def family_tree(hypotheses, max_length):
    """Whose entries each hypothesis inherits, at every step of a beam search.

    Returns an array of shape (step, batch, hypotheses, position).
    """
    own = np.broadcast_to(np.arange(hypotheses)[:, None], (hypotheses, max_length))
    lineage = np.stack([own] * BATCH)
    random = np.random.default_rng(1)
    steps = []
    for index in range(max_length):
        steps.append(lineage.copy())
        parents = random.integers(0, hypotheses, (BATCH, hypotheses))
        for sentence in range(BATCH):
            past = lineage[sentence, parents[sentence], : index + 1]
            lineage[sentence, :, : index + 1] = past
    return np.stack(steps)


def check_cached_steps(decoder, memory_mask, tolerance):
    """Decodes the positions of a beam search, and each hypothesis as a whole."""
    hypotheses, max_length, dtype = 3, 5, decoder.compute_dtype
    decoder.build(INPUTS.shape, MEMORY.shape)
    memory = ops.cast(MEMORY, dtype)
    projected, cache = decoder.start(memory, hypotheses, max_length, memory_mask)
    shape = (max_length, BATCH, hypotheses, WIDTH)
    read = np.random.default_rng(2).normal(size=shape).astype("float32")
    sentences = np.arange(BATCH)
    tree = family_tree(hypotheses, max_length)
    for step in range(max_length + BATCH - 1):
        # Each sentence begins, and ends, one step later than the last.
        index = np.clip(step - sentences, 0, max_length - 1)
        lineage = tree[index, sentences]
        visible = lineage[..., None] == np.arange(hypotheses)
        visible &= np.arange(max_length)[:, None] <= index[:, None, None, None]
        outputs, cache = decoder.step(
            ops.cast(read[index, sentences], dtype),
            projected,
            cache,
            ops.convert_to_tensor(index, "int32"),
            visible,
        )
        # (batch, hypotheses, position, width); what comes after is not looked at.
        history = read[np.arange(max_length), sentences[:, None, None], lineage]
        expected = decoder(
            history.reshape(-1, max_length, WIDTH),
            np.repeat(MEMORY, hypotheses, axis=0),
            memory_mask=None
            if memory_mask is None
            else np.repeat(memory_mask, hypotheses, axis=0),
        )
        expected = np.asarray(expected, "float64")
        expected = expected[
            np.arange(len(expected)), np.repeat(index, hypotheses)
        ].reshape(outputs.shape)
        outputs = np.asarray(outputs, "float64")
        np.testing.assert_allclose(outputs, expected, 0, tolerance)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_cached_step_reads_no_padding_of_the_memory(value):
    decoder = Decoder(2, HEADS, INNER)
    decoder.build(INPUTS.shape, MEMORY.shape)
    visible, index = np.ones((BATCH, 1, 1, 1), bool), ops.zeros((BATCH,), "int32")
    outputs = []
    for padding in (0.0, value):
        memory = np.where(MEMORY_MASK[..., None], MEMORY, np.float32(padding))
        projected, cache = decoder.start(memory, 1, 1, MEMORY_MASK)
        step = decoder.step(INPUTS[:, :1], projected, cache, index, visible)
        outputs.append(step[0])
    assert np.isfinite(ops.convert_to_numpy(outputs[1])).all()
    np.testing.assert_array_equal(outputs[1], outputs[0])


@pytest.mark.parametrize("normalize_first", NORMS)
def test_a_hypothesis_reads_nothing_of_those_that_it_does_not_see(normalize_first):
    decoder = Decoder(2, HEADS, INNER, normalize_first=normalize_first)
    decoder.build(INPUTS.shape, MEMORY.shape)
    found = []
    for hidden in (0.0, 1e9):
        context, cache = decoder.start(MEMORY, 3, 2)
        visible = np.zeros((BATCH, 3, 2, 3), bool)
        visible[:, :, 0] = np.eye(3)
        states = INPUTS[:, :3].copy()
        states[:, 1] += hidden
        index = ops.zeros((BATCH,), "int32")
        _, cache = decoder.step(states, context, cache, index, visible)
        # The first two go on from the first one, the third from the one that differs.
        visible[:, :, 0] = np.eye(3)[[0, 0, 1]]
        visible[:, :, 1] = np.eye(3)
        step = INPUTS[:, 2:5], context, cache, index + 1, visible
        found.append(ops.convert_to_numpy(decoder.step(*step)[0]))
    expected, outputs = found
    np.testing.assert_array_equal(outputs[:, :2], expected[:, :2])
    assert np.abs(outputs[:, 2] - expected[:, 2]).max() > 0.01


STEP_TOLERANCES = [("float32", 1e-4), ("float16", 0.02), ("bfloat16", 0.15)]


@pytest.mark.quick("float32-0.0001-True-whole")
@pytest.mark.parametrize("memory_mask", [None, MEMORY_MASK], ids=["whole", "padded"])
@pytest.mark.parametrize("normalize_first", NORMS)
@pytest.mark.parametrize(("dtype", "tolerance"), STEP_TOLERANCES)
def test_cached_steps_equal_the_whole_call(
    dtype, tolerance, normalize_first, memory_mask
):
    decoder = Decoder(2, HEADS, INNER, normalize_first=normalize_first, dtype=dtype)
    check_cached_steps(decoder, memory_mask, tolerance)


@pytest.mark.quick("float32-0.0001-learned")
@pytest.mark.parametrize(
    "positions",
    [
        "sinusoidal",
        "rotary",
        "linear_bias",
        LearnedPositionalEncoding(LENGTH),
        SinusoidalPositionalEncoding(merge="concatenate", encoding_dim=3),
    ],
    ids=["sinusoidal", "rotary", "linear_bias", "learned", "concatenated"],
)
@pytest.mark.parametrize(("dtype", "tolerance"), STEP_TOLERANCES)
def test_cached_steps_equal_the_whole_call_in_every_scheme_of_positions(
    dtype, tolerance, positions
):
    decoder = Decoder(2, HEADS, INNER, positions=positions, dtype=dtype)
    check_cached_steps(decoder, MEMORY_MASK, tolerance)


def test_the_cache_keeps_its_shape_and_dtype():
    decoder = Decoder(2, HEADS, INNER, dtype="mixed_float16")
    decoder.build(INPUTS.shape, MEMORY.shape)
    context, cache = decoder.start(ops.cast(MEMORY, "float16"), 3, 11)

    def specifications(structure):
        return keras.tree.map_structure(
            lambda x: (tuple(x.shape), keras.backend.standardize_dtype(x.dtype)),
            structure,
            none_is_leaf=False,
        )

    before = specifications(cache)
    shape = (BATCH, HEADS, 11, 3 * (WIDTH // HEADS))
    assert before == [((shape, "float16"), (shape, "float16"), None, None)] * 2
    states = ops.zeros((BATCH, 3, WIDTH), "float16")
    visible = np.zeros((BATCH, 3, 11, 3), bool)
    index = ops.zeros((BATCH,), "int32")
    _, cache = decoder.step(states, context, cache, index, visible)
    assert specifications(cache) == before


@pytest.mark.parametrize("layer_class", [DecoderBlock, Decoder])
def test_heads_must_divide_the_width(layer_class):
    settings = {"num_layers": 2} if layer_class is Decoder else {}
    layer = layer_class(num_heads=5, intermediate_dim=INNER, **settings)
    with pytest.raises(
        ValueError,
        match="`num_heads` must divide .* Received: num_heads=5, hidden_dim=6",
    ):
        layer(INPUTS, MEMORY)


def test_there_must_be_layers():
    with pytest.raises(
        ValueError,
        match="`num_layers` must be a positive integer. Received: num_layers=0",
    ):
        Decoder(num_layers=0, **SETTINGS)
