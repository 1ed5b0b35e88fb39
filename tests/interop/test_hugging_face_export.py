"""Translators exported as checkpoints of transformers are the same there."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from interop.random_translator import (
    MAX_LENGTH,
    TEXTS,
    make_translator,
    make_translator_of_bytes,
    searched,
)

import keras_transformer as kt
from keras_transformer.interop.checkpoint import read_weights
from keras_transformer.interop.hugging_face.weights import set_weights
from keras_transformer.layers import SinusoidalPositionalEncoding

pytestmark = pytest.mark.needs_tensorflow
pytest.importorskip("safetensors")

VARIABLE = "KERAS_TRANSFORMER_ORIGINALS"
BEAM = kt.decoding.BeamSearch(4, kt.decoding.PowerLengthPenalty(0.8), num_hypotheses=4)
LIMITS = kt.decoding.MinimumLength(4), kt.decoding.NoRepeatNgram(2)
SEARCHES = kt.decoding.GreedySearch(), BEAM, kt.decoding.GreedySearch(LIMITS)
HALVES = SinusoidalPositionalEncoding(layout="halves")
CASES = {
    "post-norm": {"epsilon": 1e-5},
    "post-norm, separate": {
        "is_shared": False,
        "activation": "silu",
        "num_decoder_layers": 1,
        "output_bias": True,
    },
    "pre-norm": {"normalize_first": True, "activation": "gelu"},
    "pre-norm, halves": {
        "normalize_first": True,
        "positions": HALVES,
        "scale_embeddings": False,
    },
}
each_case = pytest.mark.parametrize("name", CASES)


def read(folder, name):
    return json.loads((folder / name).read_text("utf-8"))


@pytest.mark.quick("post-norm, separate")
@each_case
def test_the_weights_are_those_of_a_model_with_sinusoids_in_halves(name, tmp_path):
    translator = make_translator(**CASES[name])
    model = translator.model
    folder = translator.export(tmp_path / "1", format="hugging_face")
    settings = {**model.settings, "positions": HALVES, "output_bias": True}
    copy = kt.models.Transformer(**settings)
    weights = read_weights(folder)
    for side in ("encoder", "decoder"):
        table = weights.pop(f"model.{side}.embed_positions.weight")
        expected = copy.encoder.positions(np.zeros((1, *table.shape), "float32"))[0]
        np.testing.assert_allclose(table, expected, atol=1e-5)
    set_weights(copy, weights)
    source_ids = translator.encode(TEXTS)[0].numpy()
    target_ids = np.arange(2, 2 + 7 * len(TEXTS)).reshape(-1, 7) % 41
    inputs = {"source_ids": source_ids, "target_ids": target_ids}
    np.testing.assert_allclose(copy(inputs), model(inputs), atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(x, marks=pytest.mark.slow) for x in CASES if "halves" not in x),
        "pre-norm, halves",
    ],
)
def test_an_export_is_read_back(name, tmp_path):
    # The families' own epsilon.
    translator = make_translator(**{**CASES[name], "epsilon": 1e-5})
    translator.search = BEAM
    folder = translator.export(tmp_path / "1", format="hugging_face")
    found = kt.Translator.from_preset(folder)
    assert found.max_source_length == translator.max_source_length
    assert found.search.num_hypotheses == BEAM.num_hypotheses
    texts = [text for text in TEXTS if len(text) < 40]
    for mine, theirs in zip(
        translator.translate_n_best(texts, max_length=MAX_LENGTH),
        found.translate_n_best(texts, found.search, max_length=MAX_LENGTH),
        strict=True,
    ):
        # The families leave unknown subwords out.
        assert theirs[0].text == mine[0].text.replace(" \u2047 ", "")
        np.testing.assert_allclose(theirs[0].score, mine[0].score, 1e-3)


def test_bytes_are_read_back(tmp_path):
    translator, _ = make_translator_of_bytes()
    folder = translator.export(tmp_path / "1", BEAM, format="hugging_face")
    found = kt.Translator.from_preset(folder)
    texts = ["a dog plays", "a 中é plays"]
    ids = translator.source_tokenizer(texts).to_list()
    assert found.source_tokenizer(texts).to_list() == ids
    texts_again = found.target_tokenizer.detokenize(ids).numpy().tolist()
    assert [text.decode() for text in texts_again] == texts


@pytest.mark.quick("post-norm", "post-norm, separate", "pre-norm")
@each_case
def test_config_and_files_describe_the_translator(name, tmp_path):
    translator = make_translator(**CASES[name])
    settings = translator.model.settings
    folder = translator.export(tmp_path / "1", BEAM, 11, format="hugging_face")
    is_separate = settings["target_vocabulary_size"] is not None
    assert {path.name for path in folder.iterdir()} == {
        *("config.json", "generation_config.json", "model.safetensors"),
        *("source.spm", "target.spm", "vocab.json", "tokenizer_config.json"),
        *(["target_vocab.json"] if is_separate else []),
    }
    config = read(folder, "config.json")
    assert config["model_type"] == (
        "pegasus" if settings["normalize_first"] else "marian"
    )
    assert config["decoder_layers"] == translator.model.decoder.num_layers
    assert config["encoder_ffn_dim"] == settings["intermediate_dim"]
    assert config["activation_function"] == settings["activation"]
    assert read(folder, "generation_config.json") == {
        "bad_words_ids": [[0]],
        "decoder_start_token_id": 2,
        "eos_token_id": 3,
        "forced_bos_token_id": None,
        "forced_eos_token_id": None,
        "length_penalty": 0.8,
        "max_length": 12,
        "min_length": 0,
        "no_repeat_ngram_size": 0,
        "num_beams": 4,
        "num_return_sequences": 4,
        "pad_token_id": 0,
    }
    for side, file in (("source", "vocab.json"), ("target", "target_vocab.json")):
        if is_separate or side == "source":
            tokenizer = getattr(translator, f"{side}_tokenizer")
            pieces = tokenizer.pieces(range(tokenizer.vocabulary_size))
            assert [*read(folder, file)] == pieces
            assert (folder / f"{side}.spm").read_bytes() == tokenizer.model_proto


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Folders by case and search, with what transformers answers."""
    if not (python := os.environ.get(VARIABLE)):
        pytest.skip(f"{VARIABLE} names no Python with PyTorch and transformers")
    folder = tmp_path_factory.mktemp("checkpoints")
    texts = folder / "texts.json"
    texts.write_text(json.dumps(TEXTS))
    folders = {
        (name, search): make_translator(**settings).export(
            folder / f"{place}{SEARCHES.index(search)}",
            search,
            MAX_LENGTH,
            format="hugging_face",
        )
        for place, (name, settings) in enumerate(CASES.items())
        for search in SEARCHES
    }
    program = Path(__file__).with_name("run_transformers.py")
    subprocess.run([python, program, texts, *folders.values()], check=True)
    return folders


@each_case
@pytest.mark.filterwarnings("ignore:1 of 7 texts are longer:UserWarning")
def test_transformers_translates_as_the_translator_does(name, exported):
    translator = make_translator(**CASES[name])
    for search in SEARCHES:
        answers = read(exported[name, search], "answers.json")
        is_pegasus = translator.model.settings["normalize_first"]
        family = "PegasusForConditionalGeneration" if is_pegasus else "MarianMTModel"
        assert answers["classes"] == [family, "MarianTokenizer"]
        assert answers["problems"] == []
        source_ids = translator.encode(TEXTS)[0].numpy()
        np.testing.assert_array_equal(answers["source_ids"], source_ids)
        target_ids = np.array(answers["target_ids"])
        inputs = {"source_ids": source_ids[:1], "target_ids": target_ids}
        logits = translator.model(inputs)
        np.testing.assert_allclose(answers["logits"], logits, atol=1e-3)
        expected, scores = searched(translator, search)
        number = search.num_hypotheses
        found = [
            [x for x in ids[1:] if x not in (0, 3)] for ids in answers["ids"][::number]
        ]
        assert found == [row[0] for row in expected]
        texts = translator.translate(TEXTS, search, max_length=MAX_LENGTH)
        # The tokenizer leaves out unknown subwords, which SentencePiece marks.
        assert answers["texts"][::number] == [
            text.replace(" \u2047 ", "").strip() for text in texts
        ]
        if answers["scores"]:
            np.testing.assert_allclose(
                answers["scores"][::number], scores[:, 0], atol=1e-3
            )


def test_what_ends_a_translation_is_read_again(tmp_path):
    for place, end_ids in enumerate([None, 5, [3, 5]]):
        search = kt.decoding.GreedySearch(end_ids=end_ids)
        folder = tmp_path / str(place)
        make_translator().export(folder, search, format="hugging_face")
        assert kt.Translator.from_preset(folder).search.end_ids == search.end_ids


def test_what_the_families_lack_is_refused_by_name(tmp_path):
    def refuses(match, search=None, **settings):
        with pytest.raises(ValueError, match=match) as caught:
            make_translator(**settings).export(
                tmp_path / "1", search, format="hugging_face"
            )
        assert "\n" not in str(caught.value)
        assert not list(tmp_path.iterdir())

    learned = kt.layers.LearnedPositionalEncoding(max_length=31)
    refuses("Marian cannot express positions=LearnedPos", positions=learned)
    refuses("Marian cannot express positions=None", positions=None)
    refuses("Marian .*RotaryEmb", positions="rotary", hidden_dim=20)
    second = SinusoidalPositionalEncoding(first_position=2)
    refuses("positions with first_position=2, only 0", positions=second)
    refuses("cannot express activation='elu'", activation="elu")
    refuses("cannot express epsilon=0.001, only", epsilon=1e-3)
    refuses("Pegasus .*two vocab", normalize_first=True, is_shared=False)
    processors = [kt.decoding.RepetitionPenalty(2)]
    refuses("search's RepetitionPenalty", kt.decoding.GreedySearch(processors))
    translator = make_translator()
    with pytest.raises(ValueError, match="`quantization` must be left out"):
        translator.export(tmp_path / "1", format="hugging_face", quantization="int8")
    (tmp_path / "kept").mkdir()
    with pytest.raises(FileExistsError, match="kept exists"):
        translator.export(tmp_path / "kept", format="hugging_face")
