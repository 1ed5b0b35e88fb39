import keras
import numpy as np
import pytest
from keras import ops
from layer_contract import check_layer

from keras_transformer.layers import AttentionPooling

BATCH, LENGTH, WIDTH, HEADS = 2, 7, 6, 3
RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.normal(size=(BATCH, LENGTH, WIDTH)).astype("float32")
MASK = np.array([[1, 1, 0, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1]], bool)


def pooling(num_heads, dtype=None):
    """A layer that no longer takes the mean."""
    layer = AttentionPooling(num_heads, dtype=dtype)
    layer.build(INPUTS.shape)
    layer.query.assign(np.random.default_rng(1).normal(size=layer.query.shape))
    return layer


def numpy_pooling(inputs, query, mask):
    """The definition in float64, one sentence and one head after the other."""
    heads, dim = query.shape
    outputs, scores = np.zeros((len(inputs), heads * dim)), np.zeros(mask.shape)
    for sentence, real in enumerate(mask):
        for head in range(heads):
            columns = slice(head * dim, (head + 1) * dim)
            states = inputs[sentence][:, columns].astype("float64")
            weights = np.exp(states @ query[head] / np.sqrt(dim)) * real
            weights /= max(weights.sum(), 1e-300)
            outputs[sentence, columns] = weights @ states
            scores[sentence] += weights / heads
    return outputs, scores


@pytest.mark.quick("1")
@pytest.mark.parametrize("num_heads", [1, HEADS])
def test_pooling_keeps_the_contract_of_layers(num_heads):
    check_layer(
        AttentionPooling,
        {"num_heads": num_heads},
        {"inputs": INPUTS, "return_attention_scores": True},
        [(BATCH, WIDTH), (BATCH, LENGTH)],
    )


@pytest.mark.parametrize("num_heads", [1, HEADS])
@pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "padded"])
def test_pooling_is_the_attention_of_one_query(mask, num_heads):
    layer = pooling(num_heads)
    outputs, scores = layer(INPUTS, mask=mask, return_attention_scores=True)
    query = np.asarray(layer.query, "float64")
    real = np.ones_like(MASK) if mask is None else mask
    expected, expected_scores = numpy_pooling(INPUTS, query, real)
    np.testing.assert_allclose(outputs, expected, 1e-5, 1e-6)
    np.testing.assert_allclose(scores, expected_scores, 1e-5, 1e-7)
    assert np.all(np.asarray(scores)[~real] == 0)
    np.testing.assert_array_equal(layer(INPUTS, mask=mask), outputs)


def test_one_query_pools_unless_more_are_named():
    layer = AttentionPooling()
    layer.build(INPUTS.shape)
    assert layer.query.shape == (1, WIDTH)


def test_before_training_it_is_the_mean_of_the_real_positions():
    outputs = AttentionPooling()(INPUTS, mask=MASK)
    expected = [x[real].mean(axis=0) for x, real in zip(INPUTS, MASK, strict=True)]
    np.testing.assert_allclose(outputs, expected, 1e-5, 1e-6)


@pytest.mark.parametrize(
    ("dtype", "largest"),
    [("float16", 6.5e4), ("bfloat16", 3.3e38), ("float32", 3.4e38)],
)
def test_not_even_the_largest_number_gets_out_of_padding(dtype, largest):
    layer = pooling(HEADS, dtype)
    changed = np.where(MASK[..., None], INPUTS, np.float32(largest))
    before, after = (
        ops.convert_to_numpy(layer(ops.cast(x, dtype), mask=MASK))
        for x in (INPUTS, changed)
    )
    np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_an_input_without_a_real_position_gives_zeros(dtype):
    mask = MASK & [[True], [False]]
    outputs, scores = pooling(HEADS, dtype)(
        ops.cast(INPUTS, dtype), mask=mask, return_attention_scores=True
    )
    assert np.all(ops.convert_to_numpy(outputs)[1] == 0)
    assert np.all(ops.convert_to_numpy(scores)[1] == 0)
    assert np.any(ops.convert_to_numpy(outputs)[0] != 0)


def test_the_mask_of_an_embedding_is_taken_up():
    ids = np.where(MASK, 5, 0)
    embedding = keras.layers.Embedding(11, WIDTH, mask_zero=True)
    states = embedding(ids)
    layer = pooling(1)
    expected = layer(ops.convert_to_numpy(states), mask=MASK)
    np.testing.assert_array_equal(layer(states), expected)


def test_the_length_may_be_unknown_when_the_model_is_built():
    inputs = keras.Input((None, WIDTH))
    layer = pooling(HEADS)
    model = keras.Model(inputs, layer(inputs))
    assert model.output_shape == (None, WIDTH)
    for length in (1, LENGTH):
        expected = layer(INPUTS[:, :length])
        np.testing.assert_allclose(model(INPUTS[:, :length]), expected, 1e-6, 1e-6)


def test_heads_must_divide_the_width():
    message = "`num_heads` must divide .* Received: num_heads=5, hidden_dim=6"
    with pytest.raises(ValueError, match=message):
        AttentionPooling(5)(INPUTS)


def test_there_must_be_heads():
    message = "`num_heads` must be a positive integer. Received: num_heads=0"
    with pytest.raises(ValueError, match=message):
        AttentionPooling(0)


def test_inputs_of_another_rank_are_refused():
    with pytest.raises(ValueError, match="must have the shape .batch, length, hidden"):
        AttentionPooling()(INPUTS[0])
