"""Exports of translators that were adapted or quantized."""

import numpy as np
import pytest
import tensorflow as tf
from interop.random_translator import (
    GREEDY,
    MAX_LENGTH,
    TEXTS,
    make_adapted_translator,
    make_translator,
    searched,
)

import keras_transformer as kt

pytestmark = pytest.mark.needs_tensorflow


@pytest.fixture(scope="module")
def adapted():
    return make_adapted_translator()


@pytest.mark.slow
def test_a_saved_model_holds_an_adaptation(adapted, tmp_path):
    adapted.export(tmp_path / "1", GREEDY, MAX_LENGTH)
    served = tf.saved_model.load(tmp_path / "1").signatures["serving_default"]
    expected = adapted.translate(TEXTS[:-1], GREEDY, max_length=MAX_LENGTH)
    found = served(text=tf.constant(TEXTS[:-1]))["translation"].numpy()
    assert [text.decode() for text in found] == expected
    names = [
        name
        for name, _ in tf.train.list_variables(str(tmp_path / "1/variables/variables"))
    ]
    plain = len(make_translator().model.weights)
    assert sum(name.startswith("weights/") for name in names) == plain


@pytest.mark.slow
def test_transformers_gets_an_adaptation(adapted, tmp_path):
    pytest.importorskip("safetensors")
    adapted.export(tmp_path / "1", format="hugging_face")
    twin = kt.Translator.from_preset(tmp_path / "1")
    assert searched(twin, GREEDY)[0] == searched(adapted, GREEDY)[0]


@pytest.mark.slow
def test_an_adaptation_is_saved_to_go_on_from(adapted, tmp_path):
    adapted.save(tmp_path)
    twin = kt.Translator.from_preset(tmp_path)
    for mine, theirs in zip(adapted.model.weights, twin.model.weights, strict=True):
        assert mine.path == theirs.path
        np.testing.assert_array_equal(np.asarray(mine), np.asarray(theirs))


@pytest.mark.slow
@pytest.mark.usefixtures("few_objects_to_collect")
def test_a_quantised_translator_is_saved_and_served(tmp_path):
    translator = make_translator()
    before = translator.translate_n_best(TEXTS[:3], GREEDY, max_length=MAX_LENGTH)
    translator.model.quantize("int8")
    expected = translator.translate_n_best(TEXTS[:3], GREEDY, max_length=MAX_LENGTH)
    assert before != expected
    translator.save(tmp_path / "saved")
    twin = kt.Translator.load(tmp_path / "saved")
    assert twin.translate_n_best(TEXTS[:3], GREEDY, max_length=MAX_LENGTH) == expected
    translator.export(tmp_path / "1", GREEDY, MAX_LENGTH)
    served = tf.saved_model.load(tmp_path / "1").signatures["serving_default"]
    found = served(text=tf.constant(TEXTS[:3]))
    texts = [text.decode() for text in found["translation"].numpy()]
    assert texts == [best.text for (best,) in expected]
    scores = [best.score for (best,) in expected]
    np.testing.assert_allclose(found["score"], scores, rtol=1e-4)
