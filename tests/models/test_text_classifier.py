import functools
import random

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops
from phrase_ids import LANGUAGES, labelled, vocabulary_size, words

from keras_transformer.models import (
    MaskedLanguageModel,
    TextClassifier,
    TextEncoder,
)

VOCABULARY, CLASSES = 17, 5
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
    "another padding": {"pad_id": 7},
    "mixed_bfloat16": {"dtype": "mixed_bfloat16"},
}


@functools.cache
def variant(name):
    """A small model in which every weight matters."""
    model = TextClassifier(VOCABULARY, CLASSES, **{**SETTINGS, **VARIANTS[name]})
    draw = np.random.default_rng(1)
    for weight in model.weights:
        mean = float(weight.path.endswith("gamma"))
        weight.assign(draw.normal(mean, 0.3, weight.shape))
    return model


def ids_for(model):
    """The ids, whose padding is 0, as `model` would be given them."""
    swapped = np.where(model.pad_id == IDS, 14, IDS)
    return np.where(IDS == 0, model.pad_id, swapped)


def logits_of(model, ids, **kwargs):
    return ops.convert_to_numpy(model(ids, **kwargs))


@pytest.mark.quick("post-norm")
@pytest.mark.parametrize("name", VARIANTS)
@settings(max_examples=3)
@given(padding=st.integers(1, 5))
def test_padding_changes_nothing(name, padding):
    model = variant(name)
    ids = ids_for(model)
    padded = np.pad(ids, ((0, 0), (0, padding)), constant_values=model.pad_id)
    before, after = logits_of(model, ids), logits_of(model, padded)
    assert (before.shape, before.dtype) == ((3, CLASSES), "float32")
    tolerance = 0.1 if "mixed" in name else 1e-5
    np.testing.assert_allclose(after, before, 0, tolerance * np.abs(before).max())
    scores = ops.convert_to_numpy(ops.cast(model.pooling_scores(padded), "float32"))
    assert scores.shape == padded.shape
    assert np.all((scores > 0) == (padded != model.pad_id))
    np.testing.assert_allclose(scores.sum(axis=1), 1, 0, tolerance)


def test_every_token_and_its_place_matter():
    model = variant("post-norm")
    before = logits_of(model, IDS)
    for position in range(4):
        changed = IDS.copy()
        changed[0, position] = 6
        assert np.abs(logits_of(model, changed) - before)[0].max() > 1e-3
    turned = np.concatenate([IDS[:1, 4::-1], IDS[:1, 5:]], axis=1)
    assert np.abs(logits_of(model, turned) - before[:1]).max() > 1e-3


def test_a_text_of_nothing_but_padding_gives_finite_logits():
    assert np.all(np.isfinite(logits_of(variant("pre-norm"), np.zeros_like(IDS))))


def test_attention_scores_say_what_was_looked_at():
    scores = variant("post-norm").attention_scores(IDS)
    assert set(scores) == {"encoder"}
    scores = ops.convert_to_numpy(scores["encoder"])
    assert scores.shape == (2, 3, 2, 6, 6)
    real = IDS != 0
    may_attend = real[:, None, :] & real[:, :, None]
    rows = np.transpose(scores, (1, 3, 4, 0, 2))
    assert np.all((rows > 0) == may_attend[..., None, None])


@pytest.mark.quick("mixed_bfloat16")
@pytest.mark.parametrize("name", VARIANTS)
def test_a_reloaded_model_gives_the_live_logits(name, tmp_path):
    model = variant(name)
    model.save(tmp_path / "model.keras")
    reloaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(reloaded) is TextClassifier
    assert reloaded.get_config() == model.get_config()
    np.testing.assert_array_equal(logits_of(reloaded, IDS), logits_of(model, IDS))
    np.testing.assert_array_equal(
        reloaded.pooling_scores(IDS), model.pooling_scores(IDS)
    )


def test_a_classifier_shares_the_encoder_that_it_is_built_on(tmp_path):
    encoder = TextEncoder(VOCABULARY, **SETTINGS, normalize_first=True)
    model = TextClassifier.from_encoder(encoder, CLASSES, name="mine")
    assert model.encoder is encoder
    assert model.name == "mine"
    ids = {id(weight) for weight in model.weights}
    assert {id(weight) for weight in encoder.weights} < ids
    before = logits_of(model, IDS)
    encoder.set_weights([w + 0.1 for w in encoder.get_weights()])
    after = logits_of(model, IDS)
    assert np.abs(after - before).max() > 1e-3
    model.save(tmp_path / "model.keras")
    reloaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(logits_of(reloaded, IDS), after)


@pytest.mark.needs_tensorflow
@pytest.mark.parametrize(
    "settings", [{"num_layers": 5}, {"nonsense": 1}, {"vocabulary_size": 99}]
)
def test_settings_that_are_not_those_of_the_encoder_are_refused(settings):
    encoder = TextEncoder(VOCABULARY, **SETTINGS)
    settings = {"vocabulary_size": VOCABULARY, "encoder": encoder, **settings}
    with pytest.raises(ValueError, match="must be the `encoder`'s, or be left out"):
        TextClassifier(num_classes=CLASSES, **settings)
    with pytest.raises(ValueError, match="must be the `encoder`'s, or be left out"):
        MaskedLanguageModel(**settings)


@pytest.mark.needs_tensorflow
def test_frozen_word_vectors_stay_as_they_are_and_come_back_frozen(tmp_path):
    from keras_transformer.text import set_word_vectors

    model = TextClassifier(VOCABULARY, CLASSES, **SETTINGS)
    vectors = np.random.default_rng(2).normal(size=(VOCABULARY, 8))
    set_word_vectors(model.encoder.embedding, vectors, trainable=False)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, run_eagerly=True)
    before = model.get_weights()
    model.fit(IDS, np.arange(3), verbose=0)
    moved = [
        weight.path
        for weight, x, y in zip(model.weights, before, model.get_weights(), strict=True)
        if np.any(x != y)
    ]
    assert moved
    assert "embedding/embeddings" not in moved
    np.testing.assert_allclose(model.encoder.embedding(IDS), vectors[IDS], 1e-5)
    model.save(tmp_path / "model.keras")
    reloaded = keras.models.load_model(tmp_path / "model.keras")
    assert not reloaded.encoder.embedding.trainable
    trainable = [[w.path for w in x.trainable_weights] for x in (model, reloaded)]
    assert trainable[0] == trainable[1]
    assert reloaded.get_config() == model.get_config()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vocabulary_size": 0}, "`vocabulary_size` must be a positive integer"),
        ({"num_classes": 0}, "`num_classes` must be a positive integer"),
        ({"vocabulary_size": TextEncoder}, "`vocabulary_size` must be a positive"),
        ({"num_classes": 2.0}, "`num_classes` must be a positive integer. Rec.*=2.0"),
        ({"hidden_dim": 0}, "`hidden_dim` must be a positive .* hidden_dim=0"),
        ({"num_layers": 0}, "`num_layers` must be a positive .* num_layers=0"),
        ({"num_heads": 3}, "`num_heads` must divide .* num_heads=3, hidden_dim=8"),
        ({"pad_id": 17}, "`pad_id` must lie in the vocabulary of 17 .*=17"),
    ],
    ids=lambda x: "+".join(x) if isinstance(x, dict) else "",
)
def test_bad_settings_are_refused_in_one_line(arguments, message):
    settings = {"vocabulary_size": VOCABULARY, "num_classes": 3, **SETTINGS}
    with pytest.raises(ValueError, match=message) as caught:
        TextClassifier(**{**settings, **arguments})
    assert "\n" not in str(caught.value)


def test_ids_that_are_not_integers_are_refused():
    model = variant("post-norm")
    for call in (model, model.pooling_scores, model.attention_scores):
        with pytest.raises(ValueError, match="`ids` must be integers.* float32"):
            call(IDS.astype("float32"))


@pytest.mark.slow
def test_it_tells_languages_apart_by_their_words():
    random.seed(7)
    model = TextClassifier(
        vocabulary_size(words),
        len(LANGUAGES),
        num_layers=1,
        hidden_dim=32,
        num_heads=4,
        intermediate_dim=64,
        dropout=0.1,
        normalize_first=True,
    )
    model.compile(
        keras.optimizers.Adam(5e-3),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    ids, labels = labelled(part=0, length=11)
    model.fit(ids, labels, batch_size=32, epochs=2, shuffle=False, verbose=0)
    _, accuracy = model.evaluate(*labelled(part=1, length=11), verbose=0)
    assert accuracy > 0.95
