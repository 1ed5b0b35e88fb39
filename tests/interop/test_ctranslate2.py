"""Translators exported to CTranslate2 say there what they say here."""

import json
import re
from pathlib import Path

import keras
import numpy as np
import pytest
import sentencepiece
from interop.random_translator import (
    MAX_LENGTH,
    TEXTS,
    make_adapted_translator,
    make_translator,
    make_translator_of_bytes,
    make_translator_of_languages,
    searched,
)
from serving.tiny_translator import SOURCES, TARGETS

import keras_transformer as kt
from keras_transformer.interop.expressible import limits_of
from keras_transformer.layers import (
    LearnedPositionalEncoding,
    RotaryEmbedding,
    SinusoidalPositionalEncoding,
)

ctranslate2 = pytest.importorskip("ctranslate2")
PAGE = Path(__file__).parents[2] / "docs" / "exports.md"
pytestmark = pytest.mark.needs_tensorflow

BEAM = kt.decoding.BeamSearch(4, kt.decoding.PowerLengthPenalty(0.8), num_hypotheses=4)
CASES = {
    "post-norm": {},
    "pre-norm, separate": {
        "normalize_first": True,
        "is_shared": False,
        "activation": "silu",
        "num_decoder_layers": 1,
    },
    "halves, bias": {
        "positions": SinusoidalPositionalEncoding(layout="halves", first_position=2),
        "output_bias": True,
        "epsilon": 0.1,
        "activation": "gelu",
        "scale_embeddings": False,
        "hidden_dim": 18,
        "is_shared": False,
    },
    "learned": {
        "positions": LearnedPositionalEncoding(max_length=31),
        "normalize_first": True,
        "activation": "tanh",
    },
    "rotary": {"positions": "rotary", "activation": "sigmoid", "hidden_dim": 20},
    "rotary, halves": {
        "positions": RotaryEmbedding(100, layout="halves"),
        "hidden_dim": 20,
        "normalize_first": True,
    },
    "concatenated": {
        "positions": SinusoidalPositionalEncoding(merge="concatenate", encoding_dim=5),
        "output_bias": True,
    },
    "none": {"positions": None, "is_shared": False, "normalize_first": True},
}


def some_slow(*quick):
    """Every case, only some of which `make test` tries."""
    slow = pytest.mark.slow
    params = (x if x in quick else pytest.param(x, marks=slow) for x in CASES)
    return pytest.mark.parametrize("name", [*params])


def engine_of(folder):
    return ctranslate2.Translator(str(folder), inter_threads=1, intra_threads=1)


def settings_of(folder):
    return json.loads((folder / "translator.json").read_text("utf-8"))


def translate(folder, **more):
    """Returns what `searched` does, by CTranslate2 with the folder's settings."""
    source, target = (
        kt.text.SubwordTokenizer.load(folder / f"{side}.model")
        for side in ("source", "target")
    )
    results = engine_of(folder).translate_batch(
        [source.pieces(ids) for ids in source(TEXTS).to_list()],
        return_scores=True,
        **{**settings_of(folder)["translate_batch"], **more},
    )
    pieces = target.pieces(range(target.vocabulary_size))
    ids = [[[*map(pieces.index, x)] for x in row.hypotheses] for row in results]
    return ids, np.array([row.scores for row in results])


@pytest.mark.quick("post-norm")
@some_slow("post-norm")
def test_translations_and_scores_are_those_of_the_translator(name, tmp_path):
    translator = make_translator(**CASES[name])
    greedy = [kt.decoding.GreedySearch()] if name in ("post-norm", "learned") else []
    for search in [*greedy, BEAM]:
        folder = tmp_path / type(search).__name__
        assert folder == translator.export(
            folder, search, MAX_LENGTH, format="ctranslate2"
        )
        expected, scores = searched(translator, search)
        # Else CTranslate2 stops when any four have ended, however good the others.
        found, found_scores = translate(folder, patience=MAX_LENGTH)
        assert [row[0] for row in found] == [row[0] for row in expected]
        np.testing.assert_allclose(found_scores[:, 0], scores[:, 0], atol=1e-4)


@pytest.mark.quick("learned")
@some_slow("learned")
def test_given_translations_have_the_log_probabilities_of_the_model(name, tmp_path):
    translator = make_translator(**CASES[name])
    folder = translator.export(tmp_path / "exported", BEAM, format="ctranslate2")
    source, target = translator.source_tokenizer, translator.target_tokenizer
    rows = target(TARGETS[: len(TEXTS)]).to_list()
    results = engine_of(folder).score_batch(
        [source.pieces(ids) for ids in source(TEXTS).to_list()],
        [target.pieces(ids) for ids in rows],
        max_input_length=translator.max_source_length,
    )
    source_ids = translator.encode(TEXTS)[0].numpy()
    for index, row in enumerate(rows):
        inputs = np.array([[target.start_id, *row]])
        logits = translator.model(
            {"source_ids": source_ids[index : index + 1], "target_ids": inputs}
        )
        logs = keras.ops.log_softmax(logits)[0].numpy()
        expected = logs[np.arange(len(row) + 1), [*row, target.end_id]]
        np.testing.assert_allclose(results[index].log_probs, expected, atol=1e-4)


def readme_function(folder):
    """Returns the function that the README.md of an export defines."""
    text = (folder / "README.md").read_text("utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names = {}
    exec(program.replace(f'"{folder.name}"', repr(str(folder))), names)
    return names["translate"]


@pytest.mark.slow
def test_the_readme_of_an_export_translates_as_the_translator_does(tmp_path):
    translator = make_translator(is_shared=False)
    search = kt.decoding.GreedySearch()
    folder = tmp_path / "en-de"
    translator.export(folder, search, MAX_LENGTH, format="ctranslate2")
    texts = [*SOURCES[::3], "", "a tree \u2603 plays"]
    # The program leaves out the spaces around unknown characters at the ends.
    expected = translator.translate(texts, search, max_length=MAX_LENGTH)
    assert readme_function(folder)(texts) == [text.strip() for text in expected]


def test_bytes_are_written_as_the_translator_writes_them(tmp_path):
    translator, search = make_translator_of_bytes()
    folder = tmp_path / "1"
    translator.export(folder, search, MAX_LENGTH, format="ctranslate2")
    texts = ["a dog plays", "a 中é plays"]
    expected = translator.translate(texts, search, max_length=MAX_LENGTH)
    assert all(text.startswith("中é") for text in expected)
    assert len({*expected}) == 2
    assert readme_function(folder)(texts) == expected


def test_languages_and_a_start_that_is_the_padding_are_expressed(tmp_path):
    translator, search = make_translator_of_languages()
    folder = tmp_path / "1"
    translator.export(folder, search, MAX_LENGTH, format="ctranslate2")
    settings = settings_of(folder)
    assert settings["source_prefix"] == ["__en__"]
    assert settings["target_prefix"] == ["__de__"]
    expected = translator.translate(SOURCES[::3], search, max_length=MAX_LENGTH)
    assert readme_function(folder)(SOURCES[::3]) == expected
    assert len({*expected}) > 1


def test_the_examples_of_the_page_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, _, text = PAGE.read_text("utf-8").partition("## Translators")
    text = re.sub(r"### LiteRT.*?(?=### )", "", text, flags=re.DOTALL)
    names = {"kt": kt}
    for example in re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.M):
        exec(example, names)
    (translation,) = names["translations"]
    assert isinstance(translation, str)
    assert Path("checkpoint/config.json").is_file()


@pytest.mark.quick("int8_float32", "float16")
@pytest.mark.parametrize("quantization", ["int8", "int8_float32", "int16", "float16"])
def test_weights_are_quantised(quantization, tmp_path):
    translator = make_translator(
        normalize_first=True, hidden_dim=64, intermediate_dim=256
    )
    sizes = []
    for value in (None, quantization):
        folder = tmp_path / str(value)
        translator.export(folder, BEAM, format="ctranslate2", quantization=value)
        sizes.append((folder / "model.bin").stat().st_size)
        ids, scores = translate(folder)
        assert len(ids) == len(TEXTS)
        assert np.isfinite(scores).all()
    assert sizes[1] < 0.7 * sizes[0]


def test_banned_and_forced_symbols_and_more_than_one_end_are_those_of_the_search(
    tmp_path,
):
    translator = make_translator()
    processors = [kt.decoding.BannedIds([45, 46]), kt.decoding.ForcedPrefix([9, 7])]
    search = kt.decoding.BeamSearch(
        2, kt.decoding.PowerLengthPenalty(), 1, processors, end_ids=[3, 30]
    )
    folder = translator.export(tmp_path / "1", search, 5, format="ctranslate2")
    settings = settings_of(folder)
    pieces = translator.target_tokenizer.pieces
    assert settings["target_prefix"] == pieces([9, 7])
    assert settings["translate_batch"]["end_token"] == pieces([3, 30])
    found, _ = translate(folder, target_prefix=[pieces([9, 7])] * len(TEXTS))
    for (ids,) in found:
        assert ids[:2] == [9, 7]
        assert not {45, 46} & {*ids}


@pytest.mark.parametrize(
    ("prefix", "forced"), [([9, 7], [9, 7]), ([9, 0], [9]), ([9, -1], [9]), ([[]], [])]
)
def test_free_tokens_at_the_end_of_a_prefix_are_not_forced(prefix, forced):
    search = kt.decoding.GreedySearch([kt.decoding.ForcedPrefix(prefix)])
    assert limits_of(search, 0, "CTranslate2").forced_ids == forced


@pytest.mark.slow
@pytest.mark.parametrize("name", ["none", "learned"])
def test_least_lengths_and_repeated_ngrams_are_those_of_the_search(name, tmp_path):
    translator = make_translator(**CASES[name])
    processors = [kt.decoding.MinimumLength(4), kt.decoding.NoRepeatNgram(2)]
    search = kt.decoding.GreedySearch(processors)
    folder = translator.export(tmp_path / "1", search, MAX_LENGTH, format="ctranslate2")
    expected, _ = searched(translator, search)
    assert translate(folder)[0] == expected
    plain, _ = searched(translator, kt.decoding.GreedySearch())
    assert expected != plain


def refused_searches():
    decoding = kt.decoding
    yield decoding.GreedySearch([decoding.RepetitionPenalty(2)]), "RepetitionPenalty"
    yield decoding.GreedySearch([decoding.ForcedPrefix([7, -1, 5])]), "ForcedPrefix"


def test_what_ctranslate2_lacks_is_refused_by_name(tmp_path):
    def refuses(match, search=None, quantization=None, **settings):
        translator = make_translator(**settings)
        options = {"format": "ctranslate2", "quantization": quantization}
        with pytest.raises(ValueError, match=match) as caught:
            translator.export(tmp_path / "1", search, **options)
        assert "\n" not in str(caught.value)
        assert not list(tmp_path.iterdir())

    refuses(
        "CTranslate2 cannot express positions=LinearPositionBias",
        positions="linear_bias",
    )
    refuses("cannot express activation='elu'", activation="elu")
    refuses("int3 is not a valid quantization type. .* int8", quantization="int3")
    for search, name in refused_searches():
        refuses(f"cannot express .*{name}", search)


def test_bfloat16_without_pytorch_says_what_is_missing(tmp_path, monkeypatch):
    where = "keras_transformer.interop.ctranslate2.find_spec"
    monkeypatch.setattr(where, lambda name: None)
    with pytest.raises(ImportError, match="'bfloat16' needs the package torch"):
        make_translator().export(
            tmp_path / "1", format="ctranslate2", quantization="bfloat16"
        )


@pytest.mark.usefixtures("few_objects_to_collect")
def test_quantised_layers_are_refused(tmp_path):
    translator = make_translator()
    translator.model.target_embedding.quantize("int8")
    with pytest.raises(ValueError, match="quantized layers .*'embedding/"):
        translator.export(tmp_path / "1", format="ctranslate2")
    assert not list(tmp_path.iterdir())


def test_options_of_other_formats_are_refused(tmp_path):
    translator = make_translator()
    with pytest.raises(
        ValueError, match="`jit_compile` must be left out for format='ctranslate2'"
    ):
        translator.export(tmp_path / "1", jit_compile=True, format="ctranslate2")
    with pytest.raises(
        ValueError, match="`quantization` must be left out for .*'int8'"
    ):
        translator.export(tmp_path / "1", quantization="int8")
    assert not list(tmp_path.iterdir())


def test_an_export_is_complete_or_absent(tmp_path, monkeypatch):
    translator = make_translator()
    (tmp_path / "kept").mkdir()
    with pytest.raises(FileExistsError, match="kept exists"):
        translator.export(tmp_path / "kept", format="ctranslate2")

    def fail(self, path):
        raise OSError("disk full")

    monkeypatch.setattr(kt.text.SubwordTokenizer, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        translator.export(tmp_path / "1", format="ctranslate2")
    assert [x.name for x in tmp_path.iterdir()] == ["kept"]


@pytest.mark.slow  # as test_lora.py shows of a merged model
def test_an_adaptation_is_in_the_kernels(tmp_path):
    translator, greedy = make_adapted_translator(), kt.decoding.GreedySearch()
    folder = translator.export(tmp_path / "1", greedy, MAX_LENGTH, format="ctranslate2")
    assert translate(folder)[0] == searched(translator, greedy)[0]


@pytest.mark.quick("marian")
@pytest.mark.parametrize(
    "name",
    [
        "marian",
        pytest.param("nllb", marks=pytest.mark.slow),
        pytest.param("pegasus", marks=pytest.mark.slow),
    ],
)
def test_a_pretrained_translator_goes_on_to_ctranslate2(name, originals, tmp_path):
    translator = kt.Translator.from_preset(originals / "models" / name)
    greedy = kt.decoding.GreedySearch(translator.search.processors)
    folder = translator.export(tmp_path / "1", greedy, 24, format="ctranslate2")
    settings = json.loads((folder / "translator.json").read_text("utf-8"))
    texts = ["All human beings are born free", "in dignity"]
    expected = translator.translate(texts, greedy, max_length=24)
    pieces = sentencepiece.SentencePieceProcessor(str(folder / "source.model"))
    target = sentencepiece.SentencePieceProcessor(str(folder / "target.model"))
    results = ctranslate2.Translator(str(folder)).translate_batch(
        [
            [*settings["source_prefix"], *row]
            for row in pieces.encode(texts, out_type=str)
        ],
        target_prefix=[settings["target_prefix"]] * len(texts),
        **settings["translate_batch"],
    )
    control = {*settings["control"]}
    found = [
        target.decode([x for x in result.hypotheses[0] if x not in control])
        for result in results
    ]
    assert [text.replace("\u2581", " ").strip() for text in found] == expected
