"""The options of multi-head attention beyond the paper, against their definitions."""

import keras
import numpy as np
import pytest
from gradients import sum_of_squares, weight_gradients
from keras import ops
from layer_contract import check_layer

from keras_transformer.kernels import attention
from keras_transformer.layers import DotProductAttention, MultiHeadAttention

BATCH, QUERIES, KEYS, WIDTH = 2, 11, 13, 7
HEADS, GROUPS, KEY_DIM, VALUE_DIM = 6, 3, 2, 5


def normal(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).normal(size=shape).astype("float32")


QUERY, VALUE = normal(BATCH, QUERIES, WIDTH), normal(BATCH, KEYS, WIDTH)
MASK = np.random.default_rng(3).random((BATCH, QUERIES, KEYS)) < 0.7
VARIANTS = {
    "grouped queries": {"num_key_value_heads": GROUPS},
    "one head of keys": {"num_key_value_heads": 1},
    "window": {"sliding_window": 4},
    "soft cap": {"soft_cap": 1.5},
    "gate": {"use_gate": True},
    "all": {
        "num_key_value_heads": GROUPS,
        "sliding_window": 4,
        "soft_cap": 1.5,
        "use_gate": True,
        "value_dim": VALUE_DIM,
        "use_bias": False,
        "output_shape": (2, 4),
    },
}


def to_numpy(tensor):
    return np.asarray(ops.convert_to_numpy(tensor), "float64")


def randomised(layer, *inputs):
    layer.build(*(x.shape for x in inputs))
    weights = [normal(*w.shape, seed=i) for i, w in enumerate(layer.weights)]
    layer.set_weights(weights)
    return layer


def definition(layer, query, value, mask):
    """Outputs and scores by the equations of the papers, head by head, in float64."""

    def project(projection, states):
        states = states @ to_numpy(projection.kernel)
        return states + to_numpy(projection.bias) if layer.use_bias else states

    def heads(projection, states, number):
        return np.split(project(projection, states), number, axis=-1)

    groups = layer.num_key_value_heads or layer.num_heads
    queries = heads(layer.query_projection, query, layer.num_heads)
    keys = heads(layer.key_projection, value, groups)
    values = heads(layer.value_projection, value, groups)
    distances = np.arange(query.shape[1])[:, None] - np.arange(value.shape[1])
    if layer.sliding_window:
        mask = mask & (np.abs(distances) < layer.sliding_window)
    outputs, all_scores = [], []
    for head in range(layer.num_heads):
        group = head * groups // layer.num_heads
        products = queries[head] @ np.swapaxes(keys[group], 1, 2)
        products = products / np.sqrt(layer.key_dim)
        if layer.soft_cap:
            products = layer.soft_cap * np.tanh(products / layer.soft_cap)
        weights = np.exp(products) * mask
        total = weights.sum(-1, keepdims=True)
        scores = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
        outputs.append(scores @ values[group])
        all_scores.append(scores)
    outputs = np.concatenate(outputs, axis=-1)
    if layer.use_gate:
        gate = project(layer.gate_projection, query)
        outputs = outputs / (1 + np.exp(-gate))
    outputs = project(layer.output_projection, outputs)
    shape = layer.get_config()["output_shape"]
    if shape:
        outputs = outputs.reshape(*outputs.shape[:2], *shape)
    return outputs, np.stack(all_scores, axis=1)


@pytest.mark.parametrize("is_long", [False, True], ids=["short", "by blocks"])
@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_variants_are_their_definitions(options, is_long, monkeypatch):
    if is_long:
        monkeypatch.setattr(attention, "MAX_UNBLOCKED_LENGTH", 3)
        monkeypatch.setattr(attention, "BLOCK_LENGTH", 5)
    layer = randomised(MultiHeadAttention(HEADS, KEY_DIM, **options), QUERY, VALUE)
    expected, expected_scores = definition(layer, QUERY, VALUE, MASK)
    outputs = layer(QUERY, VALUE, attention_mask=MASK)
    np.testing.assert_allclose(to_numpy(outputs), expected, 1e-4, 1e-4)
    outputs, scores = layer(
        QUERY, VALUE, attention_mask=MASK, return_attention_scores=True
    )
    np.testing.assert_allclose(to_numpy(outputs), expected, 1e-4, 1e-4)
    np.testing.assert_allclose(to_numpy(scores), expected_scores, 1e-4, 1e-5)


@pytest.mark.parametrize("is_long", [False, True], ids=["short", "by blocks"])
def test_all_sentences_may_share_an_attention_mask(is_long, monkeypatch):
    if is_long:
        monkeypatch.setattr(attention, "MAX_UNBLOCKED_LENGTH", 3)
    for layer in (MultiHeadAttention(HEADS, KEY_DIM), DotProductAttention()):
        inputs, options = (QUERY, QUERY), {"return_attention_scores": not is_long}
        mask = np.tri(QUERIES, k=1, dtype=bool)
        found = keras.tree.flatten(layer(*inputs, attention_mask=mask, **options))
        expected = layer(*inputs, attention_mask=mask[None], **options)
        for one, other in zip(found, keras.tree.flatten(expected), strict=True):
            np.testing.assert_array_equal(to_numpy(one), to_numpy(other))


def test_gradients_of_variants_are_those_of_the_path_with_scores(monkeypatch):
    monkeypatch.setattr(attention, "MAX_UNBLOCKED_LENGTH", 3)
    monkeypatch.setattr(attention, "BLOCK_LENGTH", 5)
    options = {**VARIANTS["all"], "soft_cap": None}
    layer = randomised(MultiHeadAttention(HEADS, KEY_DIM, **options), QUERY, VALUE)

    def first(outputs):
        return sum_of_squares(outputs[0])

    how = {"attention_mask": MASK}
    found = weight_gradients(sum_of_squares, layer, QUERY, VALUE, **how)
    expected = weight_gradients(
        first, layer, QUERY, VALUE, **how, return_attention_scores=True
    )
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, 1e-3, 1e-3)


@pytest.mark.parametrize("use_gate", [False, True])
@pytest.mark.parametrize("use_causal_mask", [False, True])
@pytest.mark.parametrize("sliding_window", [None, 3])
def test_grouped_queries_equal_those_of_keras(
    sliding_window, use_causal_mask, use_gate
):
    shared = {"sliding_window": sliding_window, "use_gate": use_gate}
    ours = MultiHeadAttention(HEADS, KEY_DIM, num_key_value_heads=GROUPS, **shared)
    randomised(ours, QUERY, VALUE)
    theirs = keras.layers.GroupQueryAttention(KEY_DIM, HEADS, GROUPS, **shared)
    theirs.build(QUERY.shape, VALUE.shape)
    # Keras creates the gate before the projections of keys, and after them here.
    by_name = {w.path.split("/", 1)[1]: w for w in theirs.weights}
    for name in ("query", "key", "value", "gate"):
        if name == "gate" and not use_gate:
            continue
        mine = getattr(ours, f"{name}_projection")
        for part in ("kernel", "bias"):
            other = by_name[f"{name}/{part}"]
            other.assign(ops.reshape(getattr(mine, part), other.shape))
    for part in ("kernel", "bias"):
        other = by_name[f"attention_output/{part}"]
        other.assign(ops.reshape(getattr(ours.output_projection, part), other.shape))
    mask = MASK.copy()
    mask[..., 0] = True  # Keras has an average where there is nothing to attend to
    if sliding_window:
        mask |= np.eye(QUERIES, KEYS, dtype=bool)
    how = {"attention_mask": mask, "use_causal_mask": use_causal_mask}
    expected = to_numpy(theirs(QUERY, VALUE, **how))
    np.testing.assert_allclose(
        to_numpy(ours(QUERY, VALUE, **how)), expected, 1e-4, 1e-4
    )


@pytest.mark.parametrize("axes", [None, 1, 2, (1, 2), (2, 1), (-2,), (1, 3)])
def test_attention_axes_are_those_of_keras(axes):
    shape = (2, 3, 4, 5, WIDTH) if axes == (1, 3) else (2, 3, 4, WIDTH)
    query, value = normal(*shape), normal(*shape, seed=1)
    chosen = range(1, len(shape) - 1) if axes is None else np.atleast_1d(axes)
    attended = [shape[axis] for axis in chosen]
    mask = np.random.default_rng(1).random((2, *attended, *attended)) < 0.8
    mask |= np.eye(np.prod(attended), dtype=bool).reshape(*attended, *attended)
    ours = randomised(MultiHeadAttention(3, 2, attention_axes=axes), query, value)
    theirs = keras.layers.MultiHeadAttention(3, 2, attention_axes=axes)
    theirs(query, value)
    weights = zip(ours.get_weights(), theirs.get_weights(), strict=True)
    theirs.set_weights([mine.reshape(other.shape) for mine, other in weights])
    how = {"attention_mask": mask, "return_attention_scores": True}
    outputs, scores = ours(query, value, **how)
    expected, expected_scores = theirs(query, value, **how)
    np.testing.assert_allclose(to_numpy(outputs), to_numpy(expected), 1e-4, 1e-5)
    np.testing.assert_allclose(to_numpy(scores), to_numpy(expected_scores), 1e-4, 1e-6)
    alone = ours(query, value, attention_mask=mask)
    np.testing.assert_allclose(to_numpy(alone), to_numpy(expected), 1e-4, 1e-5)


def test_masks_have_the_axes_of_their_input():
    query = normal(2, 3, 4, WIDTH)
    layer = randomised(MultiHeadAttention(3, 2, attention_axes=2), query, query)
    mask = np.random.default_rng(2).random((2, 3, 4)) < 0.6
    mask[..., 0] = True
    outputs = to_numpy(layer(query, query, value_mask=mask))
    for row in range(3):  # each row of an image attends to itself
        alone = MultiHeadAttention(3, 2)
        alone.build(query[:, row].shape, query[:, row].shape)
        alone.set_weights(layer.get_weights())
        expected = to_numpy(
            alone(query[:, row], query[:, row], value_mask=mask[:, row])
        )
        np.testing.assert_allclose(outputs[:, row], expected, 1e-4, 1e-5)


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_variants_keep_the_contract_of_layers(options):
    settings = {"num_heads": HEADS, "key_dim": KEY_DIM, **options}
    shape = options.get("output_shape", (WIDTH,))
    inputs = {"query": QUERY, "value": VALUE}
    check_layer(MultiHeadAttention, settings, inputs, (BATCH, QUERIES, *shape))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_heads": 1.5}, "num_heads=1.5"),
        ({"num_key_value_heads": 4}, "num_key_value_heads=4, num_heads=6"),
        ({"sliding_window": 0}, "sliding_window=0"),
        ({"soft_cap": 0}, "`soft_cap` must be above 0, or None. Received: soft_cap=0"),
        ({"dropout": 10}, "`dropout` must be a number from 0 to 1"),
        ({"output_shape": (2, 1.5)}, "output_shape"),
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


@pytest.mark.parametrize("axis", [3, 5, -6])
def test_axes_that_are_none_are_refused(axis):
    image = normal(2, 3, 4, WIDTH)
    with pytest.raises(ValueError, match="`attention_axes` must be axes between"):
        MultiHeadAttention(2, 2, attention_axes=axis)(image, image)


def test_from_a_cache_the_mask_given_is_the_only_one():
    layer = MultiHeadAttention(
        HEADS, KEY_DIM, num_key_value_heads=GROUPS, sliding_window=4, use_gate=True
    )
    randomised(layer, QUERY, VALUE)
    keys, values = layer.project(ops.convert_to_tensor(VALUE))
    assert keys.shape == (BATCH, GROUPS, KEYS, KEY_DIM)
    near = np.abs(np.arange(QUERIES)[:, None] - np.arange(KEYS)) < 4
    expected = to_numpy(layer(QUERY, VALUE))
    for i in range(QUERIES):
        row = near[i][None, None, None]
        outputs, _ = layer.attend(QUERY[:, i : i + 1], keys, values, row)
        np.testing.assert_allclose(to_numpy(outputs)[:, 0], expected[:, i], 1e-4, 1e-4)
