"""Exports of KerasHub's language models."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("keras_hub")

import tensorflow as tf
from hub_models import bart, gpt2, moonshine
from serving.prediction_service import client, serve
from serving.server_messages import read_batching_parameters

import keras_transformer as kt
from keras_transformer.interop.keras_hub import generate

SEARCH = kt.decoding.BeamSearch(3, num_hypotheses=2)
TEXTS = ["a b", "c", "d d a"]
PROMPTS = ["d", "", "a b"]


@pytest.fixture(scope="module", params=[gpt2, bart])
def lm(request):
    return request.param()


@pytest.fixture(scope="module")
def exported(lm, tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "1"
    return kt.serving.export_language_model(lm, path, SEARCH, max_length=9)


def decoded(texts):
    return [[text.decode() for text in row] for row in np.asarray(texts)]


@pytest.mark.slow
def test_an_export_gives_the_live_texts_and_scores(lm, exported):
    texts, scores = generate(lm, TEXTS, SEARCH, max_length=9)
    served = tf.saved_model.load(exported).signatures
    found = served["serving_default"](text=tf.constant(TEXTS))
    assert decoded(found["texts"]) == texts
    np.testing.assert_allclose(found["scores"], scores, rtol=1e-4)
    assert set(served) == {"serving_default", "with_prompt"}.intersection(served)
    assert ("with_prompt" in served) == ("BART" in type(lm).__name__.upper())
    if "with_prompt" in served:
        inputs = {"encoder_text": TEXTS, "decoder_text": PROMPTS}
        texts, scores = generate(lm, inputs, SEARCH, max_length=9)
        both = {"text": tf.constant(TEXTS), "prompt": tf.constant(PROMPTS)}
        found = served["with_prompt"](**both)
        assert decoded(found["texts"]) == texts
        np.testing.assert_allclose(found["scores"], scores, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_an_export_drops_prompts_and_compiles_if_asked_to(jit_compile, tmp_path):
    lm = gpt2()
    settings = {"strip_prompt": True, "jit_compile": jit_compile}
    path = kt.serving.export_language_model(lm, tmp_path / "1", SEARCH, **settings)
    texts, _ = generate(lm, TEXTS, SEARCH, strip_prompt=True)
    found = tf.saved_model.load(path).signatures["serving_default"]
    assert decoded(found(text=tf.constant(TEXTS))["texts"]) == texts
    kept = json.loads((path / "assets.extra" / "language_model.json").read_text())
    assert kept["strip_prompt"]
    assert kept["search"]["beam_width"] == 3
    assert kept["search"]["end_ids"] == [lm.preprocessor.tokenizer.end_token_id]


@pytest.mark.slow
def test_a_process_without_keras_hub_and_a_server_give_the_live_texts(lm, exported):
    texts, _ = generate(lm, TEXTS, SEARCH, max_length=9)
    program = (
        "import sys, json, tensorflow as tf, tensorflow_text\n"
        f"model = tf.saved_model.load({str(exported)!r})\n"
        f"found = model.signatures['serving_default'](text=tf.constant({TEXTS}))\n"
        "assert not {'keras_hub', 'keras_transformer'} & set(sys.modules)\n"
        "print(json.dumps([[x.decode() for x in y] for y in found['texts'].numpy()]))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True)
    assert json.loads(done.stdout.splitlines()[-1]) == texts, done.stderr.decode()
    batching = read_batching_parameters(Path(exported) / "batching_params.pbtxt")
    with serve(exported, batching) as address, client(address) as predict:
        found = predict("serving_default", text=TEXTS)
    assert decoded(found["texts"]) == texts


def test_what_cannot_be_exported_is_said_before_anything_is_written(tmp_path):
    path = tmp_path / "2"
    with pytest.raises(ValueError, match="`search` must have a seed"):
        kt.serving.export_language_model(gpt2(), path, kt.decoding.Sampling())
    with pytest.raises(ValueError, match="`lm` must be a KerasHub model"):
        kt.serving.export_language_model(None, path, SEARCH)
    with pytest.raises(FileExistsError, match="The next version would be"):
        kt.serving.export_language_model(gpt2(), tmp_path, SEARCH)
    lm = gpt2()
    in_python = type("InPython", (type(lm.preprocessor.tokenizer),), {})
    in_python.tokenize = lambda self, texts: [list(text) for text in texts.numpy()]
    lm.preprocessor.tokenizer.__class__ = in_python
    with pytest.raises(ValueError, match="TensorFlow operations.* a InPython, which"):
        kt.serving.export_language_model(lm, path, SEARCH)
    with pytest.raises(ValueError, match="must read texts, .*a MoonshineAudioToText"):
        kt.serving.export_language_model(moonshine(), path, SEARCH)
    assert not path.exists()
