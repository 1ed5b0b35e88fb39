import itertools

import keras
import numpy as np
import pytest
from gradients import sum_of_squares, weight_gradients
from keras import ops
from layer_contract import check_layer

from keras_transformer.layers import (
    AdditiveAttention,
    Attention,
    DotProductAttention,
    MultiHeadAttention,
    MultiplicativeAttention,
)

BATCH, QUERIES, KEYS, WIDTH, KEY_WIDTH, VALUE_WIDTH, UNITS = 2, 5, 7, 11, 3, 13, 17
HEADS, KEY_DIM = 3, 4
DTYPES = ["float32", "float16", "bfloat16"]
LAYERS = {
    "dot": lambda **kwargs: DotProductAttention(scaled=False, **kwargs),
    "scaled dot": DotProductAttention,
    "multiplicative": MultiplicativeAttention,
    "additive": lambda **kwargs: AdditiveAttention(UNITS, **kwargs),
}


def normal(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).normal(size=shape).astype("float32")


QUERY = normal(BATCH, QUERIES, WIDTH)
VALUE = normal(BATCH, KEYS, VALUE_WIDTH)
MASKS = {
    "query_mask": np.array([[1, 1, 0, 1, 1], [1, 0, 1, 1, 1]], bool),
    "value_mask": np.array([[1, 1, 0, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1]], bool),
    "key_mask": np.array([[1, 0, 1, 1, 1, 1, 1], [1, 1, 1, 0, 1, 1, 1]], bool),
    "attention_mask": np.random.default_rng(3).random((BATCH, QUERIES, KEYS)) < 0.7,
    "use_causal_mask": True,
}


def key_for(name):
    """Products want keys as wide as the queries."""
    return normal(BATCH, KEYS, WIDTH if "dot" in name else KEY_WIDTH, seed=1)


def randomised(layer, *inputs):
    layer(*inputs)
    weights = [normal(*w.shape, seed=i) / 2 for i, w in enumerate(layer.weights)]
    layer.set_weights(weights)
    return layer


def to_numpy(tensor):
    return np.asarray(ops.convert_to_numpy(tensor), "float64")


def definition(name, weights, query, key):
    """What the papers write, for one query and one key, in float64."""
    if name == "dot":
        return query @ key
    if name == "scaled dot":
        return query @ key / np.sqrt(len(key))
    if name == "multiplicative":
        return query @ weights[0] @ key
    query_kernel, key_kernel, score_kernel = weights
    return np.tanh(query @ query_kernel + key @ key_kernel) @ score_kernel[:, 0]


def numpy_attention(name, layer, query, value, key, mask):
    weights = [to_numpy(w) for w in layer.weights]
    query, value, key = (x.astype("float64") for x in (query, value, key))
    products = np.zeros(mask.shape)
    for b, i, j in np.ndindex(*mask.shape):
        products[b, i, j] = definition(name, weights, query[b, i], key[b, j])
    shares = np.exp(products) * mask
    total = shares.sum(axis=-1, keepdims=True)
    scores = np.divide(shares, total, out=np.zeros_like(shares), where=total > 0)
    return scores @ value, scores


def full_mask(names):
    parts = {
        "query_mask": MASKS["query_mask"][:, :, None],
        "value_mask": MASKS["value_mask"][:, None, :],
        "key_mask": MASKS["key_mask"][:, None, :],
        "attention_mask": MASKS["attention_mask"],
        "use_causal_mask": np.tri(QUERIES, KEYS, dtype=bool)[None],
    }
    mask = np.ones((BATCH, QUERIES, KEYS), bool)
    for name in names:
        mask = mask & parts[name]
    return mask


@pytest.mark.quick("multiplicative")
@pytest.mark.parametrize("name", LAYERS)
def test_scores_are_those_of_the_papers_under_every_combination_of_masks(name):
    key = key_for(name)
    layer = randomised(LAYERS[name](), QUERY, VALUE, key)
    empty = 0
    for chosen in itertools.product([False, True], repeat=len(MASKS)):
        names = list(itertools.compress(MASKS, chosen))
        mask = full_mask(names)
        masks = {name: MASKS[name] for name in names}
        outputs, scores = layer(
            QUERY, VALUE, key, **masks, return_attention_scores=True
        )
        expected = numpy_attention(name, layer, QUERY, VALUE, key, mask)
        np.testing.assert_allclose(to_numpy(outputs), expected[0], 1e-4, 1e-5)
        np.testing.assert_allclose(to_numpy(scores), expected[1], 1e-4, 1e-6)
        assert np.all(to_numpy(scores)[~mask] == 0)
        np.testing.assert_array_equal(layer(QUERY, VALUE, key, **masks), outputs)
        empty += np.count_nonzero(~mask.any(axis=-1))
    assert empty > 0, "every query attends to something: less is shown than should be"


@pytest.mark.quick("DotProductAttention-settings0-11")
@pytest.mark.parametrize(
    ("layer_class", "settings", "key_width"),
    [
        (DotProductAttention, {"scaled": False}, WIDTH),
        (MultiplicativeAttention, {}, KEY_WIDTH),
        (AdditiveAttention, {"units": UNITS}, KEY_WIDTH),
    ],
)
def test_score_functions_keep_the_contract_of_layers(layer_class, settings, key_width):
    query, key = QUERY / 4, normal(BATCH, KEYS, key_width, seed=1)
    outputs_shape = (BATCH, QUERIES, VALUE_WIDTH)
    check_layer(layer_class, settings, (query, VALUE, key), outputs_shape)
    check_layer(
        layer_class,
        settings,
        {
            "query": query,
            "value": key,
            "use_causal_mask": True,
            "return_attention_scores": True,
        },
        [(BATCH, QUERIES, key_width), (BATCH, QUERIES, KEYS)],
    )


@pytest.mark.parametrize("name", LAYERS)
def test_key_is_the_value_unless_given(name):
    value = normal(BATCH, KEYS, WIDTH)
    layer = randomised(LAYERS[name](), QUERY, value)
    expected = layer(QUERY, value, value)
    np.testing.assert_array_equal(layer(QUERY, value), expected)
    # There is nothing to drop out, but an outer layer may say that it trains.
    np.testing.assert_array_equal(layer(QUERY, value, training=True), expected)


@pytest.mark.parametrize("hidden_value", [6.5e4, np.inf, np.nan])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LAYERS)
def test_padding_and_empty_rows_neither_change_nor_spoil_anything(
    name, dtype, hidden_value
):
    value, key = VALUE, key_for(name)
    layer = randomised(LAYERS[name](dtype=dtype), QUERY, value, key)
    kept = MASKS["value_mask"] & [[True], [False]]
    hidden = [
        np.where(MASKS["value_mask"][..., None], x, np.float32(hidden_value))
        for x in (value, key)
    ]
    before, after = (
        to_numpy(layer(QUERY, *x, value_mask=MASKS["value_mask"]))
        for x in ((value, key), hidden)
    )
    np.testing.assert_array_equal(after, before)
    outputs = to_numpy(layer(QUERY, *hidden, value_mask=kept))
    assert np.all(outputs[1] == 0)
    assert np.any(outputs[0] != 0)
    for found in weight_gradients(
        sum_of_squares, layer, QUERY, *hidden, value_mask=kept
    ):
        assert np.all(np.isfinite(found))


def test_the_scale_keeps_the_variance_of_scores_where_it_was():
    states = np.random.default_rng(0).normal(size=(2, 1, 300, 256)).astype("float32")
    plain, scaled = (
        np.var(ops.convert_to_numpy(DotProductAttention(scaled).score(*states)))
        for scaled in (False, True)
    )
    np.testing.assert_allclose(plain, 256, 0.1)
    np.testing.assert_allclose(scaled, 1, 0.1)


def test_without_its_scale_the_dot_product_is_that_of_keras():
    key, masks = key_for("dot"), [MASKS["query_mask"], MASKS["value_mask"]]
    named = dict(zip(("query_mask", "value_mask"), masks, strict=True))
    ours, theirs = DotProductAttention(scaled=False), keras.layers.Attention()
    inputs = QUERY, VALUE, key
    for options in ({}, {"use_causal_mask": True}):
        for mask, by_name in ((None, {}), (masks, named)):
            found = to_numpy(ours(*inputs, **by_name, **options))
            expected = to_numpy(theirs([*inputs], mask=mask, **options))
            np.testing.assert_allclose(found, expected, 1e-4, 1e-5)


@pytest.mark.quick("scaled dot", "multiplicative", "additive")
@pytest.mark.parametrize("name", LAYERS)
def test_functional_models_apply_the_masks_of_their_inputs_and_reload(name, tmp_path):
    query_ids = np.array([[3, 1, 0, 0, 0], [2, 4, 1, 3, 0]])
    value_ids = np.array([[3, 1, 0], [2, 0, 0]])
    inputs = [keras.Input((5,), dtype="int32"), keras.Input((3,), dtype="int32")]
    embedding = keras.layers.Embedding(5, WIDTH, mask_zero=True)
    states = [embedding(x) for x in inputs]
    assert LAYERS[name]()(*states).shape == (None, 5, WIDTH)
    mask = keras.Input((5,), dtype="bool")
    assert LAYERS[name]()(*states, states[1], mask).shape == (None, 5, WIDTH)
    layer = LAYERS[name](dropout=0.3, seed=7)
    outputs, scores = layer(*states, return_attention_scores=True)
    assert outputs.shape == (None, 5, WIDTH)
    assert scores.shape == (None, 5, 3)
    pooled = keras.layers.GlobalAveragePooling1D()(outputs)
    model = keras.Model(inputs, [outputs, scores, pooled])
    outputs, scores, pooled = (to_numpy(x) for x in model([query_ids, value_ids]))
    allowed = (query_ids > 0)[:, :, None] & (value_ids > 0)[:, None, :]
    assert np.all(scores[~allowed] == 0)
    assert np.all(scores[allowed] > 0)
    # The mask of the queries is passed on: padding does not count in the average.
    lengths = np.count_nonzero(query_ids, axis=1)[:, None]
    np.testing.assert_allclose(pooled, outputs.sum(axis=1) / lengths, 1e-4, 1e-5)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded([query_ids, value_ids])[0], outputs)


@pytest.mark.parametrize("name", LAYERS)
def test_output_shapes_are_known_without_a_call(name):
    shapes = [(None, 5, 11), (None, None, 13), (None, None, 11)]
    layer = LAYERS[name]()
    for count in (2, 3):
        expected = (None, 5, 13)
        assert layer.compute_output_shape(*shapes[:count]) == expected


@pytest.mark.parametrize("name", LAYERS)
def test_dropout_drops_scores_in_training_only(name):
    value = np.broadcast_to(np.eye(KEYS, dtype="float32"), (BATCH, KEYS, KEYS))
    inputs = QUERY, value, key_for(name)
    plain = randomised(LAYERS[name](), *inputs)
    layer = randomised(LAYERS[name](dropout=0.5, seed=7), *inputs)
    expected, scores = plain(*inputs, return_attention_scores=True)
    np.testing.assert_array_equal(layer(*inputs), expected)
    # The values are rows of a unit matrix, so that outputs are the dropped scores.
    outputs, returned = layer(*inputs, return_attention_scores=True, training=True)
    np.testing.assert_array_equal(returned, scores)
    outputs, scores = to_numpy(outputs), to_numpy(scores)
    kept = outputs != 0
    assert 0.2 < kept.mean() < 0.8
    np.testing.assert_allclose(outputs[kept], 2 * scores[kept], 1e-5)
    twin = randomised(LAYERS[name](dropout=0.5, seed=7), *inputs)
    np.testing.assert_array_equal(to_numpy(twin(*inputs, training=True)), outputs)


def test_dropout_is_a_fraction():
    with pytest.raises(ValueError, match="`dropout` must be a number from 0 to 1"):
        AdditiveAttention(UNITS, dropout=3)


# As the score of many heads.


@pytest.mark.parametrize("name", LAYERS)
def test_heads_score_each_by_the_same_function(name):
    heads = MultiHeadAttention(HEADS, KEY_DIM, score=LAYERS[name]())
    randomised(heads, QUERY, VALUE)
    single = LAYERS[name]()
    single.build(*[(BATCH, KEYS, KEY_DIM)] * 3)
    single.set_weights(heads.score.get_weights())
    masks = {"value_mask": MASKS["value_mask"], "use_causal_mask": True}
    outputs, scores = heads(QUERY, VALUE, **masks, return_attention_scores=True)

    def split(projection, states):
        """(batch, length, width) -> (heads, batch, length, dim)."""
        states = projection(states)
        states = ops.reshape(states, (*states.shape[:2], HEADS, -1))
        return ops.transpose(states, (2, 0, 1, 3))

    queries = split(heads.query_projection, QUERY)
    keys, values = (
        split(x, VALUE) for x in (heads.key_projection, heads.value_projection)
    )
    read = [
        single(*x, **masks, return_attention_scores=True)
        for x in zip(queries, values, keys, strict=True)
    ]
    expected = ops.concatenate([x for x, _ in read], axis=-1)
    expected = heads.output_projection(expected)
    np.testing.assert_allclose(outputs, expected, 1e-4, 1e-5)
    expected_scores = ops.stack([x for _, x in read], axis=1)
    np.testing.assert_allclose(scores, expected_scores, 1e-4, 1e-6)


def test_the_score_of_heads_is_the_scaled_product_unless_given():
    plain = randomised(MultiHeadAttention(HEADS, KEY_DIM), QUERY, VALUE)
    scored = MultiHeadAttention(HEADS, KEY_DIM, score=DotProductAttention())
    scored(QUERY, VALUE)
    scored.set_weights(plain.get_weights())
    # With scores, for without them JAX and PyTorch have a kernel of their own.
    found, wanted = (
        heads(QUERY, VALUE, return_attention_scores=True) for heads in (scored, plain)
    )
    for mine, others in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(mine, others)


@pytest.mark.quick("dot")
@pytest.mark.parametrize(
    "score",
    [
        DotProductAttention(scaled=False),
        MultiplicativeAttention(),
        AdditiveAttention(5),
    ],
    ids=["dot", "multiplicative", "additive"],
)
def test_heads_with_a_score_keep_the_contract_of_layers(score):
    settings = {"num_heads": HEADS, "key_dim": KEY_DIM, "score": score}
    inputs = {"query": QUERY, "value": VALUE, "use_causal_mask": True}
    check_layer(MultiHeadAttention, settings, inputs, (BATCH, QUERIES, WIDTH))
    assert not score.built, "the layer that was passed is a pattern, and no more"


@pytest.mark.parametrize("name", LAYERS)
def test_keys_projected_once_are_scored_the_same(name):
    layer = MultiHeadAttention(HEADS, KEY_DIM, score=LAYERS[name]())
    randomised(layer, QUERY, QUERY)
    expected = layer(QUERY, QUERY, use_causal_mask=True)
    read = layer.project(ops.convert_to_tensor(QUERY))
    for position in range(QUERIES):
        visible = np.arange(QUERIES)[None, None, None] <= position
        query = QUERY[:, position : position + 1]
        outputs, _ = layer.attend(query, read, attention_mask=visible)
        np.testing.assert_allclose(
            outputs[:, 0], expected[:, position], 1e-4, 1e-5, err_msg=str(position)
        )


def test_attention_with_one_score_leaves_another_alone():
    score = AdditiveAttention(UNITS)
    first, second = (MultiHeadAttention(HEADS, KEY_DIM, score=score) for _ in range(2))
    for layer in (first, second):
        layer(QUERY, VALUE)
    assert first.score is not second.score
    assert len(first.weights) == len(second.weights) == 3 + 8
    assert not {id(w) for w in first.weights} & {id(w) for w in second.weights}


def test_the_names_of_weights_do_not_depend_on_what_was_made_before():
    for _ in range(2):
        layer = MultiHeadAttention(HEADS, KEY_DIM, score=AdditiveAttention(5), name="x")
        layer(QUERY, VALUE)
        assert layer.weights[0].path == "x/score/query_kernel"


def test_any_attention_with_a_score_of_its_own_will_do():
    class Nearest(Attention):
        def score(self, query, key):
            distances = query[..., :, None, :] - key[..., None, :, :]
            return -ops.sum(ops.square(distances), axis=-1)

    keys = 9 * np.eye(5, dtype="float32")[None]
    outputs, scores = Nearest()(keys, keys, return_attention_scores=True)
    np.testing.assert_allclose(scores, np.eye(5)[None], 0, 1e-6)
    np.testing.assert_allclose(outputs, keys, 0, 1e-5)


@pytest.mark.parametrize(
    ("score", "message"),
    [
        ("additive", "`score` must be a layer. Received: score='additive'"),
        (keras.layers.Dense(3), "`score` must be an attention layer such as"),
    ],
    ids=["name", "dense"],
)
def test_a_score_of_another_kind_is_refused(score, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(HEADS, KEY_DIM, score=score)


def test_a_dot_product_wants_one_width():
    message = "the same width for a dot product.* query_dim=11, key_dim=13"
    with pytest.raises(ValueError, match=message):
        DotProductAttention()(QUERY, VALUE)


def test_there_must_be_units():
    message = "`units` must be a positive integer. Received: units=0"
    with pytest.raises(ValueError, match=message):
        AdditiveAttention(0)


@pytest.mark.parametrize("name", ["query", "value", "key"])
def test_inputs_of_another_rank_are_refused(name):
    inputs = {"query": QUERY, "value": VALUE, "key": VALUE}
    inputs[name] = inputs[name][0]
    with pytest.raises(ValueError, match=f"`{name}` must have the shape"):
        AdditiveAttention(UNITS)(**inputs)
