"""Exports of an adapted translator hold its adaptation in their kernels."""

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


def test_a_saved_model_holds_it(adapted, tmp_path):
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


def test_transformers_gets_it(adapted, tmp_path):
    pytest.importorskip("safetensors")
    adapted.export(tmp_path / "1", format="hugging_face")
    twin = kt.Translator.from_preset(tmp_path / "1")
    assert searched(twin, GREEDY)[0] == searched(adapted, GREEDY)[0]


def test_training_may_go_on_from_a_saved_one(adapted, tmp_path):
    adapted.save_to_preset(tmp_path)
    twin = kt.Translator.from_preset(tmp_path)
    for mine, theirs in zip(adapted.model.weights, twin.model.weights, strict=True):
        assert mine.path == theirs.path
        np.testing.assert_array_equal(np.asarray(mine), np.asarray(theirs))
