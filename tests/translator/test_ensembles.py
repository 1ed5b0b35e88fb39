import keras
import numpy as np
import pytest
import tensorflow as tf
from serving.tiny_translator import SOURCES, make_translator

import keras_transformer as kt


def trained(seed):
    keras.utils.set_random_seed(seed)
    return make_translator(updates=20)


@pytest.fixture(scope="module")
def parts():
    return [trained(1), trained(2)]


@pytest.fixture(scope="module")
def both(parts):
    return kt.translator.ensemble(parts)


@pytest.mark.slow
def test_it_is_saved_and_loaded_as_any_other(both, tmp_path):
    both.save(tmp_path / "saved")
    loaded = kt.Translator.load(tmp_path / "saved")
    assert loaded.translate(SOURCES[:9]) == both.translate(SOURCES[:9])


@pytest.mark.slow
def test_it_is_served_as_any_other(both, tmp_path):
    expected = both.translate(SOURCES[:9])
    both.export(tmp_path / "served")
    served = tf.saved_model.load(tmp_path / "served").signatures["serving_default"]
    texts = served(text=tf.constant(SOURCES[:9]))["translation"].numpy()
    assert [text.decode() for text in texts] == expected


@pytest.mark.slow
def test_its_scores_lie_between_those_of_its_parts(both, parts):
    texts, targets = SOURCES[:9], SOURCES[9:18]
    one, other, mean = (
        np.array([x.log_probability for x in translator.score(texts, targets)])
        for translator in (*parts, both)
    )
    assert (mean > np.minimum(one, other)).all()
    assert not np.allclose(mean, one)


@pytest.mark.slow
def test_what_needs_one_transformer_says_so(both, tmp_path):
    for use in (
        lambda: both.export(tmp_path / "x", format="ctranslate2"),
        lambda: both.export(tmp_path / "x", format="hugging_face"),
        lambda: kt.plots.translate_with_attention(both, SOURCES[0]),
    ):
        with pytest.raises(ValueError, match="Received: an ensemble of 2"):
            use()
    assert not (tmp_path / "x").exists()


def test_other_tokenizers_are_refused():
    tokenizer = kt.text.SubwordTokenizer.train(SOURCES, vocabulary_size=39)
    settings = {"num_layers": 1, "hidden_dim": 8, "num_heads": 2}
    model = kt.models.Transformer(39, intermediate_dim=16, **settings)
    others = [make_translator(), kt.Translator(model, tokenizer)]
    with pytest.raises(ValueError, match=r"source_tokenizer in translators\[1\]"):
        kt.translator.ensemble(others)
    with pytest.raises(ValueError, match="one translator or more"):
        kt.translator.ensemble([])
