import keras
import numpy as np
import pytest
from gradients import gradients
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from keras_transformer.models import LanguageModel, TextClassifier
from keras_transformer.training import Adam, Perplexity, TokenCrossentropy

BATCH, LENGTH, VOCABULARY = 3, 5, 7
RANDOM = np.random.default_rng(0)
LOGITS = RANDOM.normal(size=(BATCH, LENGTH, VOCABULARY), scale=3).astype("float32")
LABELS = np.array([[3, 1, 4, 0, 0], [5, 0, 0, 0, 0], [6, 5, 3, 2, 1]])
WEIGHTS = RANDOM.uniform(0.5, 2, (BATCH, LENGTH)).astype("float32")
SMOOTHINGS = [0.0, 0.1, 0.9]


def one_hot_losses(labels, logits, label_smoothing):
    """The definition at every position, in float64."""
    logits = logits.astype("float64")
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    aim = np.eye(logits.shape[-1])[labels] * (1 - label_smoothing)
    aim = aim + label_smoothing / logits.shape[-1]
    return -(aim * log_probabilities).sum(axis=-1)


def value_and_gradient(loss, labels, logits, sample_weight=None):
    [gradient] = gradients(lambda logits: loss(labels, logits, sample_weight), [logits])
    return float(loss(labels, logits, sample_weight)), gradient


@pytest.mark.parametrize("label_smoothing", SMOOTHINGS)
def test_equals_the_cross_entropy_with_smoothed_one_hot_vectors(label_smoothing):
    losses = one_hot_losses(LABELS, LOGITS, label_smoothing)
    loss = TokenCrossentropy(label_smoothing)
    np.testing.assert_allclose(
        loss(LABELS, LOGITS), losses[LABELS != 0].mean(), 1e-5, 1e-6
    )


@pytest.mark.parametrize("label_smoothing", SMOOTHINGS)
def test_its_gradient_is_that_of_the_one_hot_form(label_smoothing):
    _, gradient = value_and_gradient(TokenCrossentropy(label_smoothing), LABELS, LOGITS)
    shifted = np.exp(LOGITS.astype("float64"))
    aim = np.eye(VOCABULARY)[LABELS] * (1 - label_smoothing)
    aim = aim + label_smoothing / VOCABULARY
    expected = shifted / shifted.sum(axis=-1, keepdims=True) - aim
    real = LABELS != 0
    expected = expected * real[..., None] / real.sum()
    np.testing.assert_allclose(gradient, expected, 1e-4, 1e-7)


@settings(max_examples=25)
@given(
    label_smoothing=st.sampled_from(SMOOTHINGS),
    pad_id=st.integers(0, VOCABULARY - 1),
    fill=st.floats(-1e30, 1e30),
)
def test_padding_never_counts_whatever_its_logits(label_smoothing, pad_id, fill):
    loss = TokenCrossentropy(label_smoothing, pad_id)
    padding = np.equal(LABELS, pad_id)
    changed = np.where(padding[..., None], np.float32(fill), LOGITS)
    changed[padding, 2] = -fill
    before, gradient = value_and_gradient(loss, LABELS, LOGITS)
    after, changed_gradient = value_and_gradient(loss, LABELS, changed)
    assert after == before
    np.testing.assert_array_equal(changed_gradient, gradient)
    assert np.all(gradient[padding] == 0)
    expected = one_hot_losses(LABELS, LOGITS, label_smoothing)[~padding].mean()
    np.testing.assert_allclose(before, expected, 1e-5)


@pytest.mark.parametrize("label_smoothing", SMOOTHINGS)
def test_a_batch_of_nothing_but_padding_costs_nothing(label_smoothing):
    value, gradient = value_and_gradient(
        TokenCrossentropy(label_smoothing), np.zeros_like(LABELS), LOGITS
    )
    assert value == 0
    assert np.all(gradient == 0)


@pytest.mark.parametrize("label_smoothing", SMOOTHINGS)
@pytest.mark.parametrize(
    "weights",
    [WEIGHTS, WEIGHTS[:, 0], WEIGHTS[:, :1], (WEIGHTS > 1).astype("int32")],
    ids=["tokens", "sentences", "column", "integers"],
)
def test_sample_weights_weigh_tokens_and_sentences(weights, label_smoothing):
    every = np.broadcast_to(weights if weights.ndim == 2 else weights[:, None], (3, 5))
    losses = one_hot_losses(LABELS, LOGITS, label_smoothing)
    expected = np.average(losses, weights=every * (LABELS != 0))
    value = TokenCrossentropy(label_smoothing)(LABELS, LOGITS, weights)
    np.testing.assert_allclose(value, expected, 1e-5)


@pytest.mark.parametrize("labels_dtype", ["int32", "int64", "uint16"])
@pytest.mark.parametrize("logits_dtype", ["float16", "bfloat16"])
def test_half_precision_logits_are_summed_in_float32(logits_dtype, labels_dtype):
    logits = ops.cast(LOGITS, logits_dtype)
    loss = TokenCrossentropy(0.1)(LABELS.astype(labels_dtype), logits)
    assert keras.backend.standardize_dtype(loss.dtype) == "float32"
    rounded = ops.convert_to_numpy(ops.cast(logits, "float32"))
    expected = one_hot_losses(LABELS, rounded, 0.1)[LABELS != 0].mean()
    np.testing.assert_allclose(loss, expected, 1e-5)


@pytest.mark.parametrize("label_smoothing", SMOOTHINGS)
def test_a_label_of_no_share_leaves_the_others_as_they_were(label_smoothing):
    logits = LOGITS.copy()
    logits[0, 1, LABELS[0, 1]] = -300.0  # the exponential of that is no float
    losses, changed = (
        ops.convert_to_numpy(TokenCrossentropy(label_smoothing).call(LABELS, x))
        for x in (LOGITS, logits)
    )
    expected = one_hot_losses(LABELS, logits, label_smoothing)
    np.testing.assert_allclose(changed, expected, 1e-5, 1e-5)
    others = np.ones_like(losses, dtype=bool)
    others[0, 1] = False
    np.testing.assert_array_equal(changed[others], losses[others])


def test_huge_logits_give_finite_losses_and_gradients():
    value, gradient = value_and_gradient(TokenCrossentropy(0.1), LABELS, LOGITS * 1e4)
    assert np.isfinite(value)
    assert np.all(np.isfinite(gradient))


def makes_one_hot(function):
    """Whether an operation that tells labels apart gives as much as the logits."""
    import tensorflow as tf

    kinds = {"OneHot", "ScatterNd", "Eye", "MatrixDiagV3", "Equal", "NotEqual"}
    labels = tf.TensorSpec((BATCH, LENGTH), "int32")
    logits = tf.TensorSpec((BATCH, LENGTH, VOCABULARY))
    graph = tf.function(function).get_concrete_function(labels, logits).graph
    return any(
        operation.type in kinds
        and output.shape.num_elements() in (None, BATCH * LENGTH * VOCABULARY)
        for operation in graph.get_operations()
        for output in operation.outputs
    ) or any(
        node.op in kinds
        for called in graph.as_graph_def().library.function
        for node in called.node_def
    )


@pytest.mark.needs_tensorflow
def test_the_loss_builds_no_one_hot_vectors():
    import tensorflow as tf

    assert makes_one_hot(lambda labels, logits: tf.one_hot(labels, VOCABULARY) * logits)
    assert makes_one_hot(
        lambda labels, logits: labels[..., None] == tf.range(VOCABULARY)
    )
    assert makes_one_hot(
        lambda labels, logits: tf.cond(
            labels[0, 0] > 0, lambda: tf.one_hot(labels, VOCABULARY), lambda: logits
        )
    )
    assert not makes_one_hot(TokenCrossentropy(0.1))


def test_a_compiled_model_trains_on_it():
    loss = TokenCrossentropy(0.1)
    inputs = keras.Input((None,), dtype="int32")
    model = keras.Model(
        inputs, keras.layers.Embedding(VOCABULARY, VOCABULARY, mask_zero=True)(inputs)
    )
    model.compile("sgd", loss=loss)
    ids = np.roll(LABELS, 1, axis=1)
    expected = loss(LABELS, model(ids))
    np.testing.assert_allclose(
        model.evaluate(ids, LABELS, batch_size=BATCH, verbose=0), expected, 1e-5
    )
    weights = WEIGHTS[:, 0]
    np.testing.assert_allclose(
        model.evaluate(ids, LABELS, BATCH, verbose=0, sample_weight=weights),
        loss(LABELS, model(ids), weights),
        1e-5,
    )


def test_comes_back_from_its_config():
    loss = TokenCrossentropy(0.3, pad_id=5, name="cost")
    stored = keras.saving.serialize_keras_object(loss)
    restored = keras.saving.deserialize_keras_object(stored)
    assert type(restored) is TokenCrossentropy
    assert restored.get_config() == loss.get_config()
    assert restored.get_config() == {
        "label_smoothing": 0.3,
        "pad_id": 5,
        "name": "cost",
    }
    np.testing.assert_array_equal(restored(LABELS, LOGITS), loss(LABELS, LOGITS))


@pytest.mark.parametrize("label_smoothing", [-0.1, 1, 1.5])
def test_smoothing_must_be_a_share(label_smoothing):
    with pytest.raises(
        ValueError,
        match="`label_smoothing` must be at least 0 and below 1. "
        f"Received: label_smoothing={label_smoothing}",
    ):
        TokenCrossentropy(label_smoothing)


def test_lengths_may_be_unknown_in_a_graph():
    import tensorflow as tf

    loss = TokenCrossentropy()
    labels = tf.TensorSpec([None, None], "int32")
    logits = tf.TensorSpec([None, LENGTH, VOCABULARY])
    compiled = tf.function(loss, input_signature=[labels, logits])
    expected = loss(LABELS, LOGITS)
    np.testing.assert_allclose(compiled(LABELS.astype("int32"), LOGITS), expected, 1e-6)


def test_labels_of_another_length_are_refused():
    with pytest.raises(ValueError, match="`labels` must have the shape of `logits`"):
        TokenCrossentropy()(LABELS[:, :-1], LOGITS)


# What `fit` and `evaluate` log


def small_model(**compiled):
    sizes = {"num_layers": 1, "hidden_dim": 8, "num_heads": 2, "intermediate_dim": 11}
    model = LanguageModel(VOCABULARY, **sizes, dropout=0)
    model.compile(
        loss=TokenCrossentropy(), metrics=[Perplexity()], jit_compile=False, **compiled
    )
    return model


def uneven_batches():
    """Ids and labels of 2 rows with 14 real tokens, and of 5 with one."""
    long = np.random.default_rng(3).integers(1, VOCABULARY, (2, 7))
    short = np.zeros((5, 3), int)
    short[0, 0] = 5
    return [(np.roll(labels, 1, axis=1), labels) for labels in (long, short)]


def dataset(batches):
    import tensorflow as tf

    signature = tuple(tf.TensorSpec((None, None), x.dtype) for x in batches[0])
    data = tf.data.Dataset.from_generator(lambda: batches, output_signature=signature)
    return data.apply(tf.data.experimental.assert_cardinality(len(batches)))


@pytest.mark.quick("2")
@pytest.mark.needs_tensorflow
@pytest.mark.parametrize("batches_per_update", [1, 2])
def test_the_loss_of_an_epoch_is_the_mean_over_its_tokens(batches_per_update):
    data = dataset(uneven_batches())
    # A step of almost nothing.
    adam = Adam(1e-9, gradient_accumulation_steps=batches_per_update)
    model = small_model(optimizer=adam)
    fitted = model.fit(data, validation_data=data, shuffle=False, verbose=0)
    logs = {name: values[0] for name, values in fitted.history.items()}
    found = model.evaluate(data, return_dict=True, verbose=0)
    for loss, perplexity in (
        (logs["loss"], logs["perplexity"]),
        (logs["val_loss"], logs["val_perplexity"]),
        (found["loss"], found["perplexity"]),
    ):
        np.testing.assert_allclose(loss, np.log(perplexity), 1e-5)


@pytest.mark.needs_tensorflow
def test_weights_of_tokens_and_batches_count_in_the_loss_of_an_epoch():
    model, weigh = small_model(optimizer="sgd"), np.random.default_rng(4).uniform
    batches = [(*batch, weigh(0, 2, batch[1].shape)) for batch in uneven_batches()]
    found = model.evaluate(dataset(batches), return_dict=True, verbose=0)
    losses, weights = zip(
        *((model.loss.call(y, model(x)), w * (y != 0)) for x, y, w in batches),
        strict=True,
    )
    losses = np.concatenate([np.ravel(ops.convert_to_numpy(x)) for x in losses])
    weights = np.concatenate([x.ravel() for x in weights])
    np.testing.assert_allclose(found["loss"], np.average(losses, weights=weights), 1e-5)


def test_a_loss_of_rows_weighs_a_batch_by_its_rows():
    model = TextClassifier(
        VOCABULARY, 2, num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=11
    )
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    ids = np.random.default_rng(5).integers(1, VOCABULARY, (7, 3))
    labels = np.array([0, 1, 1, 0, 1, 0, 0])
    found = model.evaluate(ids, labels, batch_size=4, verbose=0)
    expected = model.evaluate(ids, labels, batch_size=7, verbose=0)
    np.testing.assert_allclose(found, expected, 1e-5)
