import functools
import itertools

import keras
import numpy as np
import pytest
from gradients import sum_of_squares, weight_gradients
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from keras import ops
from layer_contract import check_layer

from keras_transformer.kernels import attention
from keras_transformer.layers import (
    DotProductAttention,
    MultiHeadAttention,
    masked_softmax,
    scaled_dot_product_attention,
)

BATCH, QUERIES, KEYS, WIDTH, MEMORY_WIDTH = 2, 5, 7, 11, 13
HEADS, KEY_DIM, VALUE_DIM = 3, 2, 5
DTYPES = ["float32", "float16", "bfloat16"]
# Far larger than anything real, and still finite once it is projected.
HUGE = {"float32": 1e30, "float16": 1e3, "bfloat16": 1e30}


def normal(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).normal(size=shape).astype("float32")


def booleans(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).random(shape) < 0.6


QUERY = normal(BATCH, QUERIES, WIDTH)
VALUE = normal(BATCH, KEYS, MEMORY_WIDTH)
KEY = normal(BATCH, KEYS, WIDTH)


def numpy_attention(query, key, value, mask=None, bias=0.0):
    """The definition, in float64."""
    query, key, value = (x.astype("float64") for x in (query, key, value))
    products = query @ np.swapaxes(key, -1, -2) / np.sqrt(query.shape[-1]) + bias
    weights = np.exp(products - products.max(axis=-1, keepdims=True))
    if mask is not None:
        weights = weights * mask
    total = weights.sum(axis=-1, keepdims=True)
    scores = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    return scores @ value, scores


def to_numpy(tensor):
    return np.asarray(ops.convert_to_numpy(tensor), "float64")


def randomised(layer, *inputs):
    """Builds a layer and draws all its weights, biases too."""
    layer(*inputs)
    weights = [normal(*w.shape, seed=i) / 2 for i, w in enumerate(layer.weights)]
    layer.set_weights(weights)
    return layer


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize(
    "mask_shape",
    [None, (QUERIES, KEYS), (BATCH, 1, 1, KEYS), (BATCH, HEADS, QUERIES, KEYS)],
)
def test_scaled_dot_products_are_the_definition(mask_shape, with_bias):
    query = normal(BATCH, HEADS, QUERIES, KEY_DIM)
    key = normal(BATCH, HEADS, KEYS, KEY_DIM)
    value = normal(BATCH, HEADS, KEYS, VALUE_DIM)
    mask = None if mask_shape is None else booleans(*mask_shape)
    bias = 3 * normal(HEADS, QUERIES, KEYS) if with_bias else None
    outputs, scores = scaled_dot_product_attention(query, key, value, mask, bias)
    expected_outputs, expected_scores = numpy_attention(
        query, key, value, mask, 0.0 if bias is None else bias
    )
    np.testing.assert_allclose(to_numpy(outputs), expected_outputs, 1e-5, 1e-6)
    np.testing.assert_allclose(to_numpy(scores), expected_scores, 1e-5, 1e-7)
    if mask is not None:
        assert np.all(to_numpy(scores)[~np.broadcast_to(mask, scores.shape)] == 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_masked_softmax_keeps_the_dtype_and_ignores_what_is_masked(dtype):
    scores = ops.cast(normal(5, 7), dtype)
    mask = booleans(5, 7)
    mask[0] = False
    weights = masked_softmax(scores, mask)
    assert keras.backend.standardize_dtype(weights.dtype) == dtype
    for hidden in (np.inf, -np.inf, np.nan, 6e4):
        changed = masked_softmax(ops.where(mask, scores, ops.cast(hidden, dtype)), mask)
        np.testing.assert_array_equal(to_numpy(changed), to_numpy(weights))
    assert np.all(to_numpy(weights)[~mask] == 0)
    sums = to_numpy(weights).sum(axis=-1)
    np.testing.assert_allclose(sums, mask.any(axis=-1), 0, 0.02)


@pytest.mark.quick("init_kwargs1-inputs1")
@pytest.mark.parametrize(
    ("init_kwargs", "inputs"),
    [
        (
            {"num_heads": HEADS, "key_dim": KEY_DIM, "dropout": 0.1},
            {"query": QUERY, "value": VALUE, "use_causal_mask": True},
        ),
        (
            {
                "num_heads": HEADS,
                "key_dim": KEY_DIM,
                "value_dim": VALUE_DIM,
                "use_bias": False,
            },
            (QUERY, VALUE, KEY),
        ),
    ],
)
def test_attention_keeps_the_contract_of_layers(init_kwargs, inputs):
    check_layer(MultiHeadAttention, init_kwargs, inputs, (BATCH, QUERIES, WIDTH))


def keras_twin(layer, *inputs):
    """Keras's layer with the weights of ours, which it keeps apart by heads."""
    twin = keras.layers.MultiHeadAttention(
        layer.num_heads, layer.key_dim, layer.value_dim, use_bias=layer.use_bias
    )
    # On JAX, Keras's fused path takes no values of another width than the keys.
    twin(*inputs, return_attention_scores=True)
    ours, theirs = layer.get_weights(), twin.get_weights()
    assert len(ours) == len(theirs)
    twin.set_weights(
        [mine.reshape(x.shape) for mine, x in zip(ours, theirs, strict=True)]
    )
    return twin


@pytest.mark.quick("cross-attention-False")
@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize(
    "inputs",
    [(QUERY, QUERY, QUERY), (QUERY, VALUE, KEY)],
    ids=["self-attention", "cross-attention"],
)
def test_equals_the_layer_of_keras_under_every_combination_of_masks(inputs, use_bias):
    layer = MultiHeadAttention(HEADS, KEY_DIM, VALUE_DIM, use_bias=use_bias)
    randomised(layer, *inputs)
    twin = keras_twin(layer, *inputs)
    queries, keys = inputs[0].shape[1], inputs[1].shape[1]
    masks = {
        "query_mask": booleans(BATCH, queries),
        "value_mask": booleans(BATCH, keys),
        "key_mask": booleans(BATCH, keys, seed=1),
        "attention_mask": booleans(BATCH, queries, keys),
        "use_causal_mask": True,
    }
    full = {
        "query_mask": masks["query_mask"][:, :, None],
        "value_mask": masks["value_mask"][:, None, :],
        "key_mask": masks["key_mask"][:, None, :],
        "attention_mask": masks["attention_mask"],
        "use_causal_mask": np.tri(queries, keys, dtype=bool)[None],
    }
    shape = (BATCH, queries, keys)
    for chosen in itertools.product([False, True], repeat=len(masks)):
        names = list(itertools.compress(masks, chosen))
        arguments = {name: masks[name] for name in names}
        outputs = to_numpy(layer(*inputs, **arguments))
        scored, scores = layer(*inputs, **arguments, return_attention_scores=True)
        np.testing.assert_allclose(to_numpy(scored), outputs, 1e-5, 1e-6)
        expected, expected_scores = twin(
            *inputs, **arguments, return_attention_scores=True
        )
        mask = np.ones(shape, bool)
        for name in names:
            mask = mask & full[name]
        attends = mask.any(axis=-1)
        np.testing.assert_allclose(
            outputs[attends],
            to_numpy(expected)[attends],
            1e-4,
            1e-5,
            err_msg=str(names),
        )
        # (batch, heads, query, key) -> (batch, query, heads, key)
        scores, expected_scores = (
            np.swapaxes(to_numpy(x), 1, 2) for x in (scores, expected_scores)
        )
        np.testing.assert_allclose(
            scores[attends], expected_scores[attends], 1e-4, 1e-6, err_msg=str(names)
        )
        assert np.all(np.swapaxes(scores, 2, 3)[~mask] == 0), names
        bias = layer.output_projection.bias if use_bias else np.zeros(WIDTH)
        np.testing.assert_array_equal(
            outputs[~attends], np.broadcast_to(bias, outputs[~attends].shape)
        )


def test_attention_mask_may_tell_the_heads_apart():
    layer = randomised(MultiHeadAttention(HEADS, KEY_DIM), QUERY, VALUE)
    mask = booleans(BATCH, HEADS, QUERIES, KEYS)
    _, scores = layer(QUERY, VALUE, attention_mask=mask, return_attention_scores=True)
    scores = to_numpy(scores)
    assert np.all(scores[~mask] == 0)
    np.testing.assert_allclose(scores.sum(axis=-1), mask.any(axis=-1), 1e-5)


def test_key_is_the_value_unless_given():
    layer = randomised(MultiHeadAttention(HEADS, KEY_DIM), QUERY, VALUE)
    expected = to_numpy(layer(QUERY, VALUE, VALUE))
    np.testing.assert_allclose(to_numpy(layer(QUERY, VALUE)), expected, 1e-5, 1e-5)


@pytest.mark.parametrize("key_dims", [(KEY_DIM,), (KEY_DIM, VALUE_DIM)])
def test_one_wide_projection_gives_what_three_narrow_ones_do(key_dims):
    layer = randomised(MultiHeadAttention(HEADS, *key_dims), VALUE, VALUE)
    states = ops.convert_to_tensor(VALUE)
    copies = [ops.copy(states) for _ in range(3)]
    expected = to_numpy(layer(*copies))
    together = [(states, states), (states, states, states)]
    apart = [(states, states, copies[0]), (states, copies[0], copies[0])]
    for inputs in together + apart:
        np.testing.assert_allclose(to_numpy(layer(*inputs)), expected, 1e-5, 1e-6)


def test_projected_once_or_at_every_call_is_the_same():
    layer = randomised(MultiHeadAttention(HEADS, KEY_DIM, VALUE_DIM), QUERY, VALUE)
    mask = booleans(BATCH, KEYS)
    read = layer.project(ops.convert_to_tensor(VALUE), mask=mask)
    assert read.keys.shape == (BATCH, HEADS, KEYS, KEY_DIM)
    assert read.values.shape == (BATCH, HEADS, KEYS, VALUE_DIM)
    for states in (read.keys, read.values):
        assert not np.any(np.moveaxis(to_numpy(states), 1, 2)[~mask])
    for position in range(QUERIES):
        query = QUERY[:, position : position + 1]
        outputs, _ = layer.attend(query, read)
        expected = layer(query, VALUE, value_mask=mask)
        np.testing.assert_allclose(to_numpy(outputs), to_numpy(expected), 1e-5, 1e-6)


def test_dropout_acts_on_the_scores_in_training_only():
    layer = MultiHeadAttention(HEADS, KEY_DIM, dropout=0.5)
    randomised(layer, QUERY, VALUE)
    plain = MultiHeadAttention(HEADS, KEY_DIM)
    plain(QUERY, VALUE)
    plain.set_weights(layer.get_weights())
    expected = to_numpy(plain(QUERY, VALUE))
    np.testing.assert_array_equal(to_numpy(layer(QUERY, VALUE)), expected)
    dropped = to_numpy(layer(QUERY, VALUE, training=True))
    assert np.abs(dropped - expected).max() > 0.01
    # A key that is alone has a score of one: dropped, or kept and doubled.
    alone = np.arange(KEYS) == 3
    mask = np.broadcast_to(alone, (BATCH, KEYS))
    values = layer.project(ops.convert_to_tensor(VALUE)).values
    heads = to_numpy(values)[:, :, 3]
    kernel, bias = (to_numpy(w) for w in layer.output_projection.weights)
    outputs = to_numpy(layer(QUERY, VALUE, value_mask=mask, training=True))
    for sentence in range(BATCH):
        options = [
            (2.0 * np.array(kept)[:, None] * heads[sentence]).ravel() @ kernel + bias
            for kept in itertools.product([0, 1], repeat=HEADS)
        ]
        for output in outputs[sentence]:
            distances = [np.abs(output - option).max() for option in options]
            assert min(distances) < 1e-4


@pytest.mark.needs_tensorflow
@pytest.mark.parametrize("training", [False, True])
def test_dropout_weighs_the_values_once(training):
    import tensorflow as tf

    def products(dropout):
        layer = MultiHeadAttention(HEADS, KEY_DIM, dropout=dropout)
        layer(QUERY, VALUE)
        traced = tf.function(lambda x, y: layer(x, y, training=training))
        operations = traced.get_concrete_function(QUERY, VALUE).graph.get_operations()
        return [one.type for one in operations if "MatMul" in one.type]

    assert products(dropout=0.5) == products(dropout=0.0)


@pytest.mark.quick("float32-True-0.5", "bfloat16-False-0.5", "bfloat16-True-0.0")
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("return_scores", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_query_that_may_attend_to_nothing_reads_zeros(dtype, return_scores, dropout):
    layer = MultiHeadAttention(HEADS, KEY_DIM, dropout=dropout, dtype=dtype)
    randomised(layer, QUERY, VALUE)
    mask = booleans(BATCH, QUERIES, KEYS)
    mask[0, 1] = mask[1, 3] = False
    empty = ~mask.any(axis=-1)
    how = {
        "attention_mask": mask,
        "return_attention_scores": return_scores,
        "training": True,
    }
    outputs = layer(QUERY, VALUE, **how)
    outputs = outputs if return_scores else (outputs,)
    bias = np.broadcast_to(to_numpy(layer.output_projection.bias), (2, WIDTH))
    np.testing.assert_array_equal(to_numpy(outputs[0])[empty], bias)
    if return_scores:
        scores = np.swapaxes(to_numpy(outputs[1]), 1, 2)
        assert np.all(scores[empty] == 0)

    def loss(outputs):
        return sum_of_squares(outputs[0] if return_scores else outputs)

    found = weight_gradients(loss, layer, QUERY, VALUE, **how)
    assert all(np.all(np.isfinite(x)) for x in found)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_batch_of_nothing_but_padding_has_finite_gradients(dtype):
    layer = randomised(MultiHeadAttention(HEADS, KEY_DIM, dtype=dtype), QUERY, VALUE)
    mask = np.zeros((BATCH, KEYS), bool)
    found = weight_gradients(sum_of_squares, layer, QUERY, VALUE, value_mask=mask)
    assert all(np.all(np.isfinite(x)) for x in found)
    assert all(np.all(x == 0) for x in found[:-1]), "more than the bias learns"


@functools.cache
def attention_in(dtype):
    return randomised(MultiHeadAttention(HEADS, KEY_DIM, dtype=dtype), QUERY, VALUE)


@pytest.mark.quick("float16")
@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=15)
@given(
    mask=arrays(bool, (BATCH, QUERIES, KEYS)),
    changed=st.integers(0, KEYS - 1),
    use_causal_mask=st.booleans(),
    sign=st.sampled_from([-1, 1]),
    size=st.floats(-1, 1),
)
def test_what_a_query_may_not_see_never_changes_its_output(
    dtype, mask, changed, use_causal_mask, sign, size
):
    layer = attention_in(dtype)
    other = VALUE.copy()
    # From a thousandth of the largest value to all of it.
    other[:, changed] = sign * HUGE[dtype] * 10.0 ** (3 * size - 3)
    arguments = {"attention_mask": mask, "use_causal_mask": use_causal_mask}
    before, after = (to_numpy(layer(QUERY, x, **arguments)) for x in (VALUE, other))
    sees = mask[:, :, changed]
    if use_causal_mask:
        sees = sees & (np.arange(QUERIES) >= changed)
    np.testing.assert_array_equal(after[~sees], before[~sees])


@pytest.mark.parametrize(
    ("dtype", "largest"),
    [
        ("float16", 6.5e4),
        ("bfloat16", 3.3e38),
        ("float32", 3.4e38),
    ],
)
def test_not_even_the_largest_number_gets_through_a_padding_mask(dtype, largest):
    layer, mask = attention_in(dtype), booleans(BATCH, KEYS)
    assert not mask.all()
    other = np.where(mask[..., None], VALUE, np.float32(largest))
    before, after = (
        to_numpy(layer(QUERY, value, value_mask=mask)) for value in (VALUE, other)
    )
    np.testing.assert_array_equal(after, before)


def test_a_single_key_is_read_without_a_warning():
    layer = randomised(MultiHeadAttention(HEADS, KEY_DIM), QUERY, VALUE)
    values = layer.project(ops.convert_to_tensor(VALUE[:, :1])).values
    expected = layer.output_projection(ops.reshape(values, (BATCH, 1, -1)))
    outputs = to_numpy(layer(QUERY, VALUE[:, :1]))
    for position in range(QUERIES):
        np.testing.assert_allclose(outputs[:, position], expected[:, 0], 1e-5, 1e-6)


@pytest.mark.parametrize("name", ["num_heads", "key_dim", "value_dim"])
def test_sizes_that_are_not_positive_are_refused(name):
    arguments = {"num_heads": 2, "key_dim": 3, name: 0}
    with pytest.raises(
        ValueError, match=f"`{name}` must be a positive integer. Received: {name}=0"
    ):
        MultiHeadAttention(**arguments)


@pytest.mark.parametrize("name", ["query", "value", "key"])
def test_inputs_of_another_rank_are_refused(name):
    inputs = {"query": QUERY, "value": VALUE, "key": KEY}
    inputs[name] = inputs[name][0]
    with pytest.raises(
        ValueError, match=rf"`{name}` must have the shape \(batch, length, hidden_dim\)"
    ):
        MultiHeadAttention(HEADS, KEY_DIM)(**inputs)


@pytest.mark.parametrize("is_long", [False, True], ids=["short", "by blocks"])
def test_all_sentences_may_share_an_attention_mask(is_long, monkeypatch):
    mask = np.tri(QUERIES, dtype=bool)  # each query has another, the last two also
    options = {"return_attention_scores": not is_long}
    for layer in (MultiHeadAttention(HEADS, KEY_DIM), DotProductAttention()):
        expected = layer(QUERY, QUERY, attention_mask=mask[None], **options)
        with monkeypatch.context() as context:
            if is_long:
                context.setattr(attention, "MAX_UNBLOCKED_LENGTH", 3)
            found = layer(QUERY, QUERY, attention_mask=mask, **options)
        pairs = map(keras.tree.flatten, (found, expected))
        for one, other in zip(*pairs, strict=True):
            np.testing.assert_allclose(to_numpy(one), to_numpy(other), atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_heads": 1.5}, "num_heads=1.5"),
        ({"dropout": 10}, "`dropout` must be a number from 0 to 1"),
        ({"value_dim": 0}, "value_dim=0"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(**{"num_heads": HEADS, "key_dim": KEY_DIM, **settings})


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(2, 5, 7), (1, 6, 7)], r"batch sizes .*\(2, 5, 7\).*\(1, 6, 7\)"),
        ([(2, 5, 7), (2, 6, 7), (2, 4, 7)], r"\(2, 6, 7\).*\(2, 4, 7\)"),
        ([(2, 5, 7), (2, 3, 6, 7)], r"`value` must have .*\(2, 3, 6, 7\)"),
        ([(2, 7), (2, 7)], r"`query` must have .*\(2, 7\)"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_in_one_line(shapes, message):
    layer = MultiHeadAttention(HEADS, KEY_DIM)
    with pytest.raises(ValueError, match=message) as error:
        layer(*(np.zeros(shape, "float32") for shape in shapes))
    assert len(str(error.value).strip().splitlines()) == 1


def test_keys_projected_once_are_masked_for_each_query():
    mask = booleans(BATCH, QUERIES, KEYS)
    layer = MultiHeadAttention(HEADS, KEY_DIM)
    randomised(layer, QUERY, VALUE)
    read = layer.project(ops.convert_to_tensor(VALUE))
    expected = to_numpy(layer(QUERY, VALUE, attention_mask=mask))
    for i in range(QUERIES):
        row = mask[:, None, i : i + 1]
        outputs, _ = layer.attend(QUERY[:, i : i + 1], read, attention_mask=row)
        np.testing.assert_allclose(to_numpy(outputs)[:, 0], expected[:, i], 1e-4, 1e-4)


def test_scores_of_a_symbolic_call_have_the_shape_of_an_eager_one():
    layer = MultiHeadAttention(HEADS, KEY_DIM)
    symbols = [keras.KerasTensor(x.shape) for x in (QUERY, VALUE, KEY)]
    found = layer(*symbols, return_attention_scores=True)
    expected = layer(QUERY, VALUE, KEY, return_attention_scores=True)
    assert [x.shape for x in found] == [tuple(x.shape) for x in expected]
