"""The same numbers as KerasHub's layers, with the same weights; see docs/keras.md."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import layers

keras_hub = pytest.importorskip("keras_hub")

STATES = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
MEMORY = np.random.default_rng(1).normal(size=(2, 7, 8)).astype("float32")
HEADS = np.random.default_rng(2).normal(size=(2, 4, 5, 8)).astype("float32")
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], bool)
MEMORY_MASK = np.array([[1, 1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1]], bool)
EPSILON = 1e-5


def to_numpy(tensor):
    return np.asarray(ops.convert_to_numpy(tensor), "float64")


def draw_weights(ours, theirs):
    """Gives two layers the same weights."""
    random = np.random.default_rng(3)
    # KerasHub's encoder creates this layer earlier than its decoder does.
    others = sorted(theirs.weights, key=lambda w: "feedforward_layer_norm" in w.path)
    for weight, other in zip(ours.weights, others, strict=True):
        weight.assign(random.normal(size=weight.shape))
        other.assign(ops.reshape(weight, other.shape))


def assert_equal_where(mask, found, expected):
    np.testing.assert_allclose(
        to_numpy(found)[mask], to_numpy(expected)[mask], 1e-4, 1e-4
    )


@pytest.mark.quick("relu-True", "gelu-True")
@pytest.mark.parametrize("normalize_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_blocks_are_equal(activation, normalize_first):
    settings = {"normalize_first": normalize_first, "activation": activation}
    ours = layers.EncoderBlock(2, 12, epsilon=EPSILON, **settings)
    theirs = keras_hub.layers.TransformerEncoder(
        12, 2, layer_norm_epsilon=EPSILON, **settings
    )
    ours(STATES), theirs(STATES)
    draw_weights(ours, theirs)
    expected = theirs(STATES, padding_mask=MASK)
    assert_equal_where(MASK, ours(STATES, mask=MASK), expected)


@pytest.mark.quick("True")
@pytest.mark.parametrize("normalize_first", [False, True])
def test_decoder_blocks_are_equal(normalize_first):
    settings = {"normalize_first": normalize_first}
    ours = layers.DecoderBlock(2, 12, epsilon=EPSILON, **settings)
    theirs = keras_hub.layers.TransformerDecoder(
        12, 2, layer_norm_epsilon=EPSILON, **settings
    )
    ours(STATES, MEMORY), theirs(STATES, MEMORY)
    draw_weights(ours, theirs)
    expected = theirs(
        STATES,
        MEMORY,
        decoder_padding_mask=MASK,
        encoder_padding_mask=MEMORY_MASK,
    )
    found = ours(STATES, MEMORY, inputs_mask=MASK, memory_mask=MEMORY_MASK)
    assert_equal_where(MASK, found, expected)


@pytest.mark.quick("True")
@pytest.mark.parametrize("normalize_first", [False, True])
def test_causal_blocks_are_decoders_without_cross_attention(normalize_first):
    settings = {"normalize_first": normalize_first}
    ours = layers.CausalBlock(2, 12, epsilon=EPSILON, **settings)
    theirs = keras_hub.layers.TransformerDecoder(
        12, 2, layer_norm_epsilon=EPSILON, **settings
    )
    ours(STATES), theirs(STATES)
    draw_weights(ours, theirs)
    expected = theirs(STATES, decoder_padding_mask=MASK)
    assert_equal_where(MASK, ours(STATES, mask=MASK), expected)


@pytest.mark.parametrize("start_index", [0, 3])
@pytest.mark.parametrize("positions", [None, [[0, 4, 1, 7, 2], [3, 3, 0, 1, 9]]])
def test_sinusoids_are_equal(positions, start_index):
    if positions is not None and start_index:
        pytest.skip("positions or a start index, not both")
    how = {"start_index": start_index}
    if positions is not None:
        how = {"positions": np.array(positions)}
    expected = keras_hub.layers.SinePositionEncoding()(STATES, **how)
    found = to_numpy(layers.SinusoidalPositionalEncoding()(STATES, **how)) - STATES
    np.testing.assert_allclose(found, to_numpy(expected) + 0 * STATES, 0, 1e-5)


@pytest.mark.parametrize(
    "how", [{}, {"start_index": 2}, {"positions": [[4, 0, 1] * 2]}]
)
def test_learned_positions_are_equal(how):
    if "positions" in how:
        how = {"positions": np.array(how["positions"])[:, :5].repeat(2, axis=0)}
    ours = layers.LearnedPositionalEncoding(11)
    theirs = keras_hub.layers.PositionEmbedding(11)
    ours(STATES), theirs(STATES)
    draw_weights(ours, theirs)
    found = to_numpy(ours(STATES, **how)) - STATES
    np.testing.assert_allclose(found, to_numpy(theirs(STATES, **how)), 1e-5, 1e-5)


@pytest.mark.parametrize("start_index", [0, 3])
def test_rotary_embeddings_are_equal(start_index):
    ours = layers.RotaryEmbedding(layout="halves")
    # KerasHub's axes are (batch, length, heads, dim).
    theirs = keras_hub.layers.RotaryEmbedding()
    expected = theirs(np.swapaxes(HEADS, 1, 2), start_index=start_index)
    found = to_numpy(ours(HEADS, start_index=start_index))
    np.testing.assert_allclose(found, np.swapaxes(to_numpy(expected), 1, 2), 0, 1e-5)


@pytest.mark.parametrize("bias_max", [8, 6])
@pytest.mark.parametrize("num_heads", [4, 6])
def test_linear_biases_are_equal_up_to_a_number_for_each_query(num_heads, bias_max):
    products = np.random.default_rng(4).normal(size=(2, num_heads, 5, 5))
    ours = layers.LinearPositionBias(bias_max=bias_max)(products.astype("float32"))
    theirs = keras_hub.layers.AlibiBias(bias_max)(products.astype("float32"))
    # KerasHub counts from the last key, which changes no softmax of a causal row.
    difference = to_numpy(ours) - to_numpy(theirs)
    causal = np.tril(np.ones((5, 5), bool))
    for row in range(5):
        seen = difference[:, :, row, causal[row]]
        np.testing.assert_allclose(seen, seen[..., :1] + 0 * seen, 0, 1e-5)


def test_embeddings_are_those_of_keras_in_both_directions():
    ids = np.array([[3, 1, 4, 2, 0], [7, 5, 0, 0, 0]])
    ours = layers.TokenEmbedding(11, 8, scale=False)
    theirs = keras.layers.ReversibleEmbedding(11, 8, mask_zero=True)
    ours(ids), theirs(ids)
    draw_weights(ours, theirs)
    np.testing.assert_array_equal(to_numpy(ours(ids)), to_numpy(theirs(ids)))
    found, expected = (to_numpy(x(STATES, reverse=True)) for x in (ours, theirs))
    np.testing.assert_allclose(found, expected, 1e-5, 1e-5)
