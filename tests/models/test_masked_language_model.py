import functools
import random

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops
from phrase_ids import LANGUAGES, MASK, labelled, vocabulary_size, words

from keras_transformer.models import MaskedLanguageModel, TextClassifier, TextEncoder
from keras_transformer.training import TokenAccuracy, TokenCrossentropy

VOCABULARY = 17
SETTINGS = {
    "num_layers": 2,
    "hidden_dim": 8,
    "num_heads": 2,
    "intermediate_dim": 11,
    "dropout": 0.1,
}
IDS = np.array([[5, 7, 11, 13, 3, 0], [4, 6, 0, 0, 0, 0], [9, 9, 8, 3, 0, 0]], "int32")
VARIANTS = {
    "post-norm": {},
    "pre-norm": {"normalize_first": True, "activation": "relu"},
    "mixed_bfloat16": {"dtype": "mixed_bfloat16"},
}


@functools.cache
def variant(name):
    """A small model in which every weight matters."""
    model = MaskedLanguageModel(VOCABULARY, **{**SETTINGS, **VARIANTS[name]})
    draw = np.random.default_rng(1)
    for weight in model.weights:
        mean = float(weight.path.endswith("gamma"))
        weight.assign(draw.normal(mean, 0.3, weight.shape))
    return model


def logits_of(model, ids, **kwargs):
    return ops.convert_to_numpy(model(ids, **kwargs))


@pytest.mark.quick("pre-norm")
@pytest.mark.parametrize("name", VARIANTS)
@settings(max_examples=3)
@given(padding=st.integers(1, 5))
def test_padding_changes_nothing(name, padding):
    model, real = variant(name), IDS != 0
    before = logits_of(model, IDS)
    assert (before.shape, before.dtype) == ((3, 6, VOCABULARY), "float32")
    padded = np.pad(IDS, ((0, 0), (0, padding)))
    after = logits_of(model, padded)[:, :6]
    tolerance = (0.1 if "mixed" in name else 1e-5) * np.abs(before).max()
    np.testing.assert_allclose(after[real], before[real], 0, tolerance)


def test_every_position_reads_both_sides():
    model, real = variant("post-norm"), IDS[0] != 0
    before = logits_of(model, IDS[:1])[0]
    for position in range(4):
        changed = IDS[:1].copy()
        changed[0, position] = 6
        difference = np.abs(logits_of(model, changed)[0] - before)[real]
        assert np.all(difference.max(axis=-1) > 1e-4)


def test_tokens_are_scored_with_the_table_that_embeds_them():
    model = variant("post-norm")
    tables = [w for w in model.weights if w.shape == (VOCABULARY, 8)]
    assert len(tables) == 1
    before = logits_of(model, IDS)
    table = np.array(tables[0])
    tables[0].assign(np.where(np.arange(VOCABULARY) == 10, 2, 1)[:, None] * table)
    after = logits_of(model, IDS)
    tables[0].assign(table)
    np.testing.assert_allclose(after[..., 10], 2 * before[..., 10], 1e-4, 1e-4)


@pytest.mark.quick("pre-norm")
@pytest.mark.parametrize("name", VARIANTS)
def test_a_reloaded_model_gives_the_live_logits(name, tmp_path):
    model = variant(name)
    model.save(tmp_path / "model.keras")
    reloaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(reloaded) is MaskedLanguageModel
    assert reloaded.get_config() == model.get_config()
    np.testing.assert_array_equal(logits_of(reloaded, IDS), logits_of(model, IDS))


def test_encoders_alone_reload_too(tmp_path):
    encoder = variant("pre-norm").encoder
    encoder.save(tmp_path / "encoder.keras")
    reloaded = keras.models.load_model(tmp_path / "encoder.keras")
    assert type(reloaded) is TextEncoder
    np.testing.assert_array_equal(reloaded(IDS), encoder(IDS))
    model = MaskedLanguageModel.from_encoder(reloaded, name="mine")
    assert model.encoder is reloaded
    assert model.name == "mine"
    assert model.get_config() == {**variant("pre-norm").get_config(), "name": "mine"}


def test_attention_scores_are_those_of_the_encoder():
    model = variant("post-norm")
    np.testing.assert_array_equal(
        model.attention_scores(IDS)["encoder"],
        model.encoder.attention_scores(IDS)["encoder"],
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vocabulary_size": 0}, "`vocabulary_size` must be a positive integer"),
        ({"num_heads": 3}, "`num_heads` must divide .* num_heads=3, hidden_dim=8"),
        ({"pad_id": -1}, "`pad_id` must lie in the vocabulary of 17 .*=-1"),
    ],
    ids=lambda x: "+".join(x) if isinstance(x, dict) else "",
)
def test_bad_settings_are_refused_in_one_line(arguments, message):
    with pytest.raises(ValueError, match=message) as caught:
        MaskedLanguageModel(**{"vocabulary_size": VOCABULARY, **SETTINGS, **arguments})
    assert "\n" not in str(caught.value)


def test_ids_that_are_not_integers_are_refused():
    model = variant("post-norm")
    for call in (model, model.encoder, model.attention_scores):
        with pytest.raises(ValueError, match="`ids` must be integers.* float32"):
            call(IDS.astype("float32"))


SIZES = {
    "num_layers": 1,
    "hidden_dim": 32,
    "num_heads": 4,
    "intermediate_dim": 64,
    "dropout": 0.0,
    "normalize_first": True,
}
LENGTH = 11


@pytest.fixture(scope="module")
def pretrained():
    """A model that has read phrases of several languages, without any label."""
    import tensorflow as tf

    from keras_transformer.text import masked_dataset

    random.seed(7)
    vocabulary = vocabulary_size(words)
    model = MaskedLanguageModel(vocabulary, **SIZES)
    model.compile(
        keras.optimizers.Adam(1e-2), TokenCrossentropy(), metrics=[TokenAccuracy()]
    )
    texts = tf.data.Dataset.from_tensor_slices(labelled(0, LENGTH)[0]).batch(32, True)
    dataset = masked_dataset(texts, vocabulary, MASK, probability=0.3, seed=3)
    model.fit(dataset, epochs=8, shuffle=False, verbose=0)
    return model


@pytest.mark.slow
@pytest.mark.needs_tensorflow
def test_it_learns_what_stood_where_a_word_is_hidden(pretrained):
    from keras_transformer.text import mask_tokens

    ids = labelled(1, LENGTH)[0]
    inputs, labels = mask_tokens(ids, (1, 2), vocabulary_size(words), MASK)
    _, accuracy = pretrained.evaluate(inputs, labels, verbose=0)
    commonest = np.bincount(ids[ids > MASK]).max() / np.sum(ids > MASK)
    assert accuracy > 2 * commonest, (accuracy, commonest)


def accuracy_after_sixty_labels(encoder, epochs):
    """What a classifier of languages makes of the encoder."""
    random.seed(11)
    model = TextClassifier.from_encoder(encoder, len(LANGUAGES))
    model.compile(
        keras.optimizers.Adam(5e-3),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    ids, labels = labelled(0, LENGTH, limit=60)
    model.fit(ids, labels, batch_size=20, epochs=epochs, shuffle=False, verbose=0)
    return model.evaluate(*labelled(1, LENGTH), verbose=0)[1]


@pytest.mark.slow
@pytest.mark.needs_tensorflow
def test_what_was_read_without_labels_helps_to_classify(pretrained):
    fresh = TextEncoder(vocabulary_size(words), **SIZES)
    fresh.trainable = pretrained.encoder.trainable = False
    without, with_it = (
        accuracy_after_sixty_labels(encoder, epochs=20)
        for encoder in (fresh, pretrained.encoder)
    )
    pretrained.encoder.trainable = True
    assert with_it > without + 0.05, (with_it, without)


@pytest.mark.slow
@pytest.mark.needs_tensorflow
def test_fine_tuning_goes_on_with_the_same_weights(pretrained):
    before = pretrained.get_weights()
    assert accuracy_after_sixty_labels(pretrained.encoder, epochs=12) > 0.6
    moved = [
        np.any(x != y) for x, y in zip(before, pretrained.get_weights(), strict=True)
    ]
    assert any(moved)
    pretrained.set_weights(before)


def test_a_clone_has_one_embedding_too():
    model = variant("post-norm")
    clone = keras.models.clone_model(model)
    assert len(clone.weights) == len(model.weights)
    clone.set_weights(model.get_weights())
    np.testing.assert_allclose(logits_of(clone, IDS), logits_of(model, IDS), 1e-5, 1e-6)
