"""Checkpoints of other systems give the originals' numbers and texts."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

import keras_transformer as kt
from keras_transformer.decoding import (
    BannedIds,
    BeamSearch,
    ForcedPrefix,
    GreedySearch,
    NoRepeatNgram,
    PowerLengthPenalty,
    Sampling,
)
from keras_transformer.layers import SinusoidalPositionalEncoding

FAMILIES = ["marian", "marian_separate", "m2m_100", "nllb", "pegasus"]


def some_slow(*quick):
    """Every family, only some of which `make test` tries."""
    slow = pytest.mark.slow
    params = (x if x in quick else pytest.param(x, marks=slow) for x in FAMILIES)
    return pytest.mark.parametrize("name", [*params])


LENGTH = 24


@pytest.fixture(scope="module")
def read(originals):
    """Function from a name to the translator of a checkpoint, its folder, answers."""
    found = {}

    def read_once(name):
        if name not in found:
            folder = originals / "models" / name
            answers = dict(np.load(folder / "answers.npz"))
            answers |= json.loads((folder / "answers.json").read_text("utf-8"))
            found[name] = kt.Translator.from_preset(folder), folder, answers
        return found[name]

    return read_once


@pytest.fixture
def marian(originals, tmp_path):
    """A copy of a checkpoint, to change."""
    shutil.copytree(originals / "models" / "marian", tmp_path / "marian")
    return tmp_path / "marian"


def change(path, **values):
    settings = json.loads(path.read_text("utf-8")) | values
    path.write_text(json.dumps(settings), "utf-8")


@pytest.mark.quick("marian", "m2m_100")
@pytest.mark.parametrize("name", FAMILIES)
def test_logits_are_those_of_the_original(read, name):
    translator, _, answers = read(name)
    inputs = {key: answers[key].astype("int32") for key in ("source_ids", "target_ids")}
    logits = np.array(translator.model(inputs))[:, : answers["logits"].shape[1]]
    if name == "marian_separate":  # "renormalize_logits": without the padding
        pad_id = translator.model.pad_id
        assert (logits[..., pad_id] < -9000).all()
        logits[..., pad_id] = answers["logits"][..., pad_id]
    np.testing.assert_allclose(logits, answers["logits"], 0, 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_greedy_ids_are_those_of_the_original(read, name):
    translator, _, answers = read(name)
    search = GreedySearch(processors=translator.search.processors)
    found = translator.model.generate(answers["source_ids"], search, LENGTH).ids[:, 0]
    expected = answers["target_ids"][:, 1:]  # without the start token
    np.testing.assert_array_equal(found[:, : expected.shape[1]], expected)


@pytest.mark.quick("marian")
@some_slow("marian", "nllb", "pegasus")
def test_beams_are_those_of_the_original(read, name):
    """In texts and in scores, all four of them.

    The original goes on as long as ours with `early_stopping="never"`; with its default
    it may end before it has found the best.
    """
    translator, _, answers = read(name)
    penalty, processors = translator.search.length_penalty, translator.search.processors
    search = BeamSearch(4, penalty, num_hypotheses=4, processors=processors)
    found = translator.model.generate(answers["source_ids"], search, LENGTH)
    np.testing.assert_allclose(found.scores.ravel(), answers["beam_scores"], 0, 1e-4)
    texts = translator.decode(found.ids, search).numpy().ravel()
    assert [text.decode() for text in texts] == answers["beam"]


@pytest.mark.quick("marian-greedy")
@pytest.mark.parametrize("kind", ["beam", "greedy"])
@pytest.mark.parametrize("name", FAMILIES)
def test_texts_are_translated_as_by_the_original(read, name, kind):
    translator, _, answers = read(name)
    search, expected = translator.search, answers["beam"][::4]
    if kind == "greedy":
        search = GreedySearch(processors=translator.search.processors)
        expected = answers["greedy"]
    found = translator.translate(answers["texts"], search, max_length=LENGTH)
    assert found == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nllb", "marian_separate"])
def test_a_checkpoint_is_saved_and_served(read, name, tmp_path):
    translator, _, answers = read(name)
    texts = [*answers["texts"], "", "ꙮ and more " * 99]
    with pytest.warns(UserWarning, match="are longer than max_source_length=64"):
        expected = translator.translate(texts, max_length=LENGTH)
    translator.save(tmp_path / "saved")
    loaded = kt.Translator.from_preset(tmp_path / "saved")
    assert repr(loaded.search) == repr(translator.search)
    with pytest.warns(UserWarning, match="are longer"):
        assert loaded.translate(texts, max_length=LENGTH) == expected
    loaded.export(tmp_path / "served", max_length=LENGTH)
    served = tf.saved_model.load(tmp_path / "served").signatures["serving_default"]
    found = served(text=tf.constant(texts))["translation"].numpy()
    assert [text.decode() for text in found] == expected


@pytest.mark.slow
def test_training_goes_on_with_a_frozen_encoder(marian, tmp_path):
    translator = kt.Translator.from_preset(marian, dropout=0.0)
    model = translator.model
    for name, lines in (("a", ["All human beings", "free"]), ("b", ["Alle", "frei"])):
        (tmp_path / name).write_text("\n".join(lines) + "\n", "utf-8")
    dataset = kt.text.parallel_dataset(
        tmp_path / "a",
        tmp_path / "b",
        translator.source_tokenizer,
        translator.target_tokenizer,
        tokens_per_batch=64,
        max_length=16,
        buckets=[16],
    )
    (inputs, labels) = next(iter(dataset))
    # What the original reads: the padding before the first token of the target.
    assert inputs["target_ids"][:2, 0].numpy().tolist() == [model.pad_id] * 2
    assert set(labels[2:].numpy().ravel()) <= {model.pad_id}
    model.encoder.trainable = False
    encoder = [np.asarray(weight) for weight in model.encoder.weights]
    loss = kt.training.TokenCrossentropy(pad_id=model.pad_id)
    model.compile(kt.training.Adam(0.01), loss, jit_compile=False)
    losses = model.fit(dataset, epochs=20, shuffle=False, verbose=0).history["loss"]
    assert losses[-1] < 0.6 * losses[0]
    for before, after in zip(encoder, model.encoder.weights, strict=True):
        np.testing.assert_array_equal(before, after)


def test_a_model_is_read_without_its_tokenizers(originals, tmp_path, read):
    translator, folder, _ = read("marian")
    shutil.copytree(folder, tmp_path / "model")
    for path in (*(tmp_path / "model").glob("*.spm"), tmp_path / "model/vocab.json"):
        path.unlink()
    model = kt.models.Transformer.from_preset(tmp_path / "model", dropout=0.5)
    assert model.get_config()["dropout"] == 0.5
    for found, expected in zip(model.weights, translator.model.weights, strict=True):
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(FileNotFoundError, match=r"vocab\.json is missing"):
        kt.Translator.from_preset(tmp_path / "model")


def test_a_target_language_is_put_before_texts_or_forced(read):
    _, folder, _ = read("marian")
    chosen = kt.Translator.from_preset(folder, target_language="fra")
    plain = kt.Translator.from_preset(folder)
    ids, _ = plain.encode([">>fra<< All human beings"])
    assert (
        chosen.encode(["All human beings"])[0].numpy().tolist() == ids.numpy().tolist()
    )
    with pytest.raises(ValueError, match=r"must be one of \['deu', 'fra'\].*'xyz'"):
        kt.Translator.from_preset(folder, target_language="xyz")
    with pytest.raises(ValueError, match="reads its source language from the text"):
        kt.Translator.from_preset(folder, source_language="eng")
    _, folder, _ = read("nllb")
    russian = kt.Translator.from_preset(folder, target_language="rus_Cyrl")
    (forced, *_) = russian.search.processors
    assert isinstance(forced, ForcedPrefix)
    assert russian.target_tokenizer.pieces(forced.ids) == ["rus_Cyrl"]
    with pytest.raises(ValueError, match="`source_language` must be one of"):
        kt.Translator.from_preset(folder, source_language="eng_Latn")


def test_the_search_is_that_of_the_checkpoint(marian):
    search = kt.Translator.from_preset(marian).search
    assert isinstance(search, BeamSearch)
    assert search.beam_width == 4
    assert search.length_penalty.get_config() == PowerLengthPenalty(0.8).get_config()
    assert [repr(x) for x in search.processors] == [repr(NoRepeatNgram(2))]
    change(marian / "generation_config.json", num_return_sequences=3)
    assert kt.Translator.from_preset(marian).search.num_hypotheses == 3
    change(marian / "generation_config.json", num_return_sequences=1)
    change(marian / "generation_config.json", bad_words_ids=[[131], [7]], num_beams=1)
    search = kt.Translator.from_preset(marian).search
    assert isinstance(search, GreedySearch)
    assert repr(search.processors[0]) == repr(BannedIds([7]))
    change(marian / "generation_config.json", do_sample=True, temperature=0.5, top_k=0)
    search = kt.Translator.from_preset(marian).search
    assert isinstance(search, Sampling)
    assert (search.temperature, search.top_k, search.top_p) == (0.5, None, None)
    assert search.end_ids is None
    change(marian / "generation_config.json", eos_token_id=[0, 7])
    assert kt.Translator.from_preset(marian).search.end_ids == (0, 7)


def test_older_files_say_how_to_search_in_config_json(marian):
    (marian / "generation_config.json").unlink()
    change(marian / "config.json", num_beams=6, bad_words_ids=[[131]], max_length=512)
    search = kt.Translator.from_preset(marian).search
    assert search.beam_width == 6
    assert search.length_penalty.exponent == 1


def first_of(folder, language):
    """The id that begins every translation into a language."""
    search = kt.Translator.from_preset(folder, target_language=language).search
    [ids] = [x.ids for x in search.processors if isinstance(x, ForcedPrefix)]
    return int(np.ravel(ids)[0])


def test_a_language_that_is_given_comes_before_that_of_the_files(originals, tmp_path):
    shutil.copytree(originals / "models" / "nllb", tmp_path / "nllb")
    german, french = (first_of(tmp_path / "nllb", x) for x in ("deu_Latn", "fra_Latn"))
    assert german != french
    change(tmp_path / "nllb" / "generation_config.json", forced_bos_token_id=french)
    assert first_of(tmp_path / "nllb", "deu_Latn") == german
    assert first_of(tmp_path / "nllb", None) == french


@pytest.mark.quick(
    "config.json-values0-model_type='ba",
    "config.json-values1-model_type=\\\\[",
    "config.json-values2-config.json mu",
)
@pytest.mark.parametrize(
    ("file", "values", "message"),
    [
        ("config.json", {"model_type": "bart"}, "model_type='bart'"),
        ("config.json", {"model_type": ["marian"]}, r"model_type=\['marian'\]"),
        ("config.json", {"eos_token_id": [0]}, r"config.json must have an integer as"),
        ("config.json", {"new_option": 7}, r"not understood: \{'new_option': 7\}"),
        ("config.json", {"normalize_before": True}, "normalize_before=True"),
        ("config.json", {"decoder_ffn_dim": 7}, "decoder_ffn_dim=7"),
        ("config.json", {"activation_function": "mish"}, "activation_function='mish'"),
        ("config.json", {"d_model": 12}, r"must have the shape .*12.*Received: \(.*8"),
        ("config.json", {"encoder_layers": 3}, "has no weight 'model.encoder.layers.2"),
        ("generation_config.json", {"renormalize_logits": True}, "must be false where"),
        ("config.json", {"encoder_layers": 1}, "not understood: .'model.encoder.layer"),
        ("generation_config.json", {"penalty_alpha": 0.6}, "'penalty_alpha': 0.6"),
        ("generation_config.json", {"bad_words_ids": [[5, 7]]}, r"\[\[5, 7\]\]"),
        ("generation_config.json", {"bad_words_ids": [131]}, r"bad_words_ids=\[131\]"),
        ("generation_config.json", {"bad_words_ids": [[]]}, r"bad_words_ids=\[\[\]\]"),
        ("generation_config.json", {"num_beams": "4"}, "config.json .* num_beams='4'"),
        ("generation_config.json", {"top_p": "1"}, "config.json must have a number"),
        ("generation_config.json", {"num_return_sequences": 5}, "num_hypotheses=5"),
        ("generation_config.json", {"diversity_penalty": 0.5}, "_penalty': 0.5"),
        ("vocab.json", {"zzz": -5}, "Received: -5 for 'zzz'"),
        ("vocab.json", {"zzz": 5}, "Received: 5 for 'zzz' and for"),
        ("generation_config.json", {"pad_token_id": 7}, "pad_token_id=7"),
        (
            "generation_config.json",
            {"do_sample": True},
            "do_sample=True, num_beams=4",
        ),
    ],
)
def test_what_is_not_understood_is_named(marian, file, values, message):
    change(marian / file, **values)
    with pytest.raises(ValueError, match=message) as error:
        kt.Translator.from_preset(marian)
    assert len(str(error.value).splitlines()) == 1


def test_values_that_switch_something_off_are_read(marian):
    off = {"pruned_heads": {}, "torchscript": False, "num_labels": 3}
    change(marian / "config.json", **off)
    off = {"diversity_penalty": 0.0, "num_beam_groups": 1, "typical_p": 1.0}
    change(marian / "generation_config.json", **off)
    assert kt.Translator.from_preset(marian).search.beam_width == 4


def test_a_special_token_may_be_wrapped(marian):
    settings = {"unk_token": {"__type": "AddedToken", "content": "<unk>"}}
    (marian / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = kt.Translator.from_preset(marian).target_tokenizer
    assert tokenizer.pieces([tokenizer.unknown_id]) == ["<unk>"]


def test_a_truncated_file_is_told(marian):
    path = marian / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged"):
        kt.Translator.from_preset(marian)


@pytest.mark.quick("marian-source.spm")
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("marian", "source.spm"),
        ("m2m_100", "sentencepiece.bpe.model"),
        ("nllb", "sentencepiece.bpe.model"),
        ("pegasus", "spiece.model"),
    ],
)
def test_a_truncated_tokenizer_is_named(originals, tmp_path, name, file):
    shutil.copytree(originals / "models" / name, tmp_path / "model")
    path = tmp_path / "model" / file
    for size in (-100, 0):
        path.write_bytes(path.read_bytes()[:size])
        with pytest.raises(ValueError, match=f"{file} is not a SentencePiece model"):
            kt.Translator.from_preset(path.parent)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("config.json", "config.json is missing"),
        ("source.spm", "source.spm is missing"),
        ("model.safetensors", "holds no weights"),
    ],
)
def test_a_missing_file_is_named(marian, name, message):
    (marian / name).unlink()
    with pytest.raises(FileNotFoundError, match=message):
        kt.Translator.from_preset(marian)


def test_a_model_in_marians_own_format_must_be_converted(tmp_path):
    (tmp_path / "decoder.yml").write_text("models: [model.npz]\n")
    with pytest.raises(FileNotFoundError, match="with convert_marian_to_pytorch of"):
        kt.models.Transformer.from_preset(tmp_path)


@pytest.mark.quick("bfloat16")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_positions_may_be_rounded_but_not_others(marian, dtype):
    path, name = marian / "model.safetensors", "model.encoder.embed_positions.weight"
    positions = kt.models.Transformer.from_preset(marian).encoder.positions
    weights = load_file(path)
    weights[name] = np.asarray(positions.encoding(64))
    save_file({k: x.astype(dtype) for k, x in weights.items()}, path)
    kt.models.Transformer.from_preset(marian)
    other = SinusoidalPositionalEncoding(9000, layout="halves")
    other.build((1, 64, 8))
    save_file({**weights, name: np.asarray(other.encoding(64))}, path)
    with pytest.raises(ValueError, match=r"positions of its family by up to 0\.\d+"):
        kt.models.Transformer.from_preset(marian)


def test_a_table_that_differs_from_what_it_is_tied_to_is_told(marian):
    weights = load_file(marian / "model.safetensors")
    weights["lm_head.weight"] = weights["model.shared.weight"] + 1
    save_file(weights, marian / "model.safetensors")
    with pytest.raises(ValueError, match=r"'lm_head\.weight' differs .* up to 1,"):
        kt.models.Transformer.from_preset(marian)


def test_a_size_and_a_folder_take_different_arguments(tmp_path):
    with pytest.raises(ValueError, match="`source_vocabulary_size` must be given"):
        kt.models.Transformer.from_preset("tiny")
    with pytest.raises(ValueError, match="source_vocabulary_size=7"):
        kt.models.Transformer.from_preset(tmp_path, 7)
    with pytest.raises(ValueError, match="preset='huge'"):
        kt.models.Transformer.from_preset("huge", 7)


def test_arguments_must_fit_what_was_saved(tmp_path):
    sizes = {"num_layers": 1, "hidden_dim": 8, "num_heads": 2, "intermediate_dim": 8}
    model = kt.models.Transformer(25, **sizes)
    lines = ["a man rides a bike", "a dog rides a man", "a bike"]
    tokenizer = kt.text.SubwordTokenizer.train(lines, vocabulary_size=25)
    kt.Translator(model, tokenizer).save(tmp_path / "one")
    kt.Translator(kt.models.Ensemble([model]), tokenizer).save(tmp_path / "two")
    with pytest.raises(ValueError, match=r"must fit .*one.*Received: hidden_dim=16\."):
        kt.Translator.from_preset(tmp_path / "one", hidden_dim=16)
    with pytest.raises(ValueError, match=r"two holds an Ensemble.*: dropout=0\.3\."):
        kt.Translator.from_preset(tmp_path / "two", dropout=0.3)


@pytest.mark.slow
def test_the_program_of_the_page_on_migrating_runs(originals):
    page = Path(__file__).parents[2] / "docs" / "migrating" / "hugging_face.md"
    text = page.read_text("utf-8")
    programs = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    here = str(originals / "models" / "marian")
    names = {}
    for program in programs:
        exec(program.replace("hf://Helsinki-NLP/opus-mt-en-de", here), names)
    assert names["translator"].model is names["model"]
    assert names["model"].loss.pad_id == names["model"].pad_id
