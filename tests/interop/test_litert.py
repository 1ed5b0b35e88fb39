"""Searches exported to LiteRT find there what they find here."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from interop.random_translator import (
    GREEDY,
    TEXTS,
    make_model,
    make_translator,
    make_translator_of_bytes,
    make_translator_of_languages,
)
from serving.tiny_translator import SOURCES
from serving.tiny_translator import make_translator as make_trained

import keras_transformer as kt
from keras_transformer.interop.litert import export_search
from keras_transformer.translator.translator import in_dtype

pytestmark = pytest.mark.needs_tensorflow

MAX_LENGTH = 29
PROCESSORS = [kt.decoding.NoRepeatNgram(2), kt.decoding.MinimumLength(5)]
SIZES = {"num_layers": 1, "hidden_dim": 12, "num_heads": 2, "intermediate_dim": 23}
# Runs the program of a README.md for texts of its standard input.
ALONE = """
import json, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("keras", "keras_transformer", "tensorflow"):
            raise ImportError("The export is on its own here.")
sys.meta_path.insert(0, Blocked())
exec(sys.argv[1])
json.dump([translate(text) for text in json.load(sys.stdin)], sys.stdout)
"""


def language_model(**settings):
    return kt.models.LanguageModel(1100, seed=3, **SIZES, **settings)


CASES = {
    "greedy": (make_model, {}, kt.decoding.GreedySearch(PROCESSORS)),
    "sampled": (
        make_model,
        {"positions": "rotary", "hidden_dim": 20, "normalize_first": True},
        kt.decoding.Sampling(0.9, top_p=0.9, seed=3, num_hypotheses=3),
    ),
    "beam": (
        make_model,
        {"positions": "linear_bias", "activation": "gelu", "output_bias": True},
        kt.decoding.BeamSearch(3, num_hypotheses=2),
    ),
    "ensemble": (
        lambda size: kt.models.Ensemble([make_model(size), make_model(size)]),
        {},
        kt.decoding.GreedySearch(),
    ),
    "continued": (
        lambda _, **settings: language_model(**settings),
        {
            "positions": kt.layers.LearnedPositionalEncoding(max_length=64),
            "dtype": "mixed_bfloat16",
        },
        kt.decoding.GreedySearch(),
    ),
    "continued, sampled": (
        lambda _, **settings: language_model(**settings),
        {"positions": "rotary"},
        kt.decoding.Sampling(top_k=7, seed=5),
    ),
}


def runner(path):
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    return interpreter.Interpreter(str(path)).get_signature_runner()


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_file_finds_what_generate_finds(name, tmp_path):
    make, settings, search = CASES[name]
    model = make(61, **settings)
    path = export_search(model, tmp_path / "model.tflite", search, MAX_LENGTH)
    found_by, exact = runner(path), in_dtype(model, "float32")
    for batch, length in ((3, 7), (1, 1), (2, 13)):
        draw = np.random.default_rng(length)
        ids = draw.integers(4, 61, (batch, length), "int32")
        ids[1:, length // 2 :] = model.pad_id
        found = found_by(input_ids=ids)
        expected = exact.generate(ids, search, MAX_LENGTH)
        np.testing.assert_array_equal(found["ids"], expected.ids)
        np.testing.assert_allclose(found["scores"], expected.scores, 1e-4, 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda: (make_translator(is_shared=False), kt.decoding.BeamSearch(3)),
        make_translator_of_bytes,
        make_translator_of_languages,
    ],
    ids=["beam", "bytes", "languages"],
)
def test_a_translator_translates_without_tensorflow(make, tmp_path):
    pytest.importorskip("ai_edge_litert")
    translator, search = make()
    folder = tmp_path / "phone"
    assert translator.export(folder, search, format="litert") == folder
    readme = (folder / "README.md").read_text("utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", readme, re.S)
    command = [sys.executable, "-I", "-c", ALONE, program.rpartition("\nprint")[0]]
    given = json.dumps([*TEXTS, "", "ein 中é"])
    process = subprocess.run(
        command, cwd=tmp_path, input=given, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    with pytest.warns(UserWarning, match="were cut"):
        expected = translator.translate(json.loads(given), search)
    assert json.loads(process.stdout) == [text.strip() for text in expected]
    ids = np.array([[5, 99, -1, 7, 3]], "int32")
    found = runner(folder / "model.tflite")(input_ids=ids)["ids"]
    ids[0, 1:3] = translator.source_tokenizer.unknown_id
    expected = translator.model.generate(ids, search, found.shape[-1])
    np.testing.assert_array_equal(found, expected.ids)


@pytest.mark.slow
def test_integers_take_less_space_and_translate_alike(tmp_path):
    translator = make_trained(60, hidden_dim=64, intermediate_dim=128)
    sizes = {}
    for quantization in (None, "int8"):
        folder = tmp_path / str(quantization)
        translator.export(folder, GREEDY, format="litert", quantization=quantization)
        sizes[quantization] = (folder / "model.tflite").stat().st_size
    num_weights = translator.model.count_params()
    assert sizes[None] - sizes["int8"] > 2.5 * num_weights
    ids = translator.encode(SOURCES)[0].numpy()
    # One by one: in batches, LiteRT 2.3 reads memory that it has not written.
    search = runner(folder / "model.tflite")
    found = [search(input_ids=row[None])["ids"][0, 0] for row in ids]
    translations = translator.decode(np.array(found), GREEDY).numpy()
    expected = translator.translate(SOURCES, GREEDY)
    same = [x.decode() == y for x, y in zip(translations, expected, strict=True)]
    assert np.mean(same) > 0.9


@pytest.mark.slow
def test_the_examples_of_the_page_run(tmp_path, monkeypatch):
    pytest.importorskip("ai_edge_litert")
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[2] / "docs" / "exports.md"
    _, _, text = page.read_text("utf-8").partition("## Translators")
    text = re.sub(r"### CTranslate2.*?(?=### )", "", text, flags=re.S)
    text, names = text.partition("### transformers")[0], {"kt": kt}
    for example in re.findall(r"```python\n(.*?)```", text, re.S):
        exec(example, names)
    assert names["ids"].shape == (1, 1, 7)


@pytest.mark.slow
def test_what_litert_cannot_have_is_refused(tmp_path):
    path = tmp_path / "model.tflite"
    model = language_model()
    with pytest.raises(ValueError, match=r"`quantization` must be .*'int4'"):
        export_search(model, path, quantization="int4")
    with pytest.raises(ValueError, match=r"`search` must have a seed to be exported"):
        export_search(model, path, kt.decoding.Sampling())
    model.quantize("int8")
    with pytest.raises(ValueError, match=r"LiteRT has no products of int8 kernels"):
        export_search(model, path)
    path.touch()
    with pytest.raises(FileExistsError, match="never overwrites"):
        export_search(model, path)
