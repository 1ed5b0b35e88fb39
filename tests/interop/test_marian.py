"""Models as Marian writes them, compared with CTranslate2's own reading of them."""

import json
import re
import shutil

import ctranslate2
import keras
import numpy as np
import pytest
import sentencepiece
import yaml
from ctranslate2.converters import OpusMTConverter
from typer.testing import CliRunner

import keras_transformer as kt
from keras_transformer.cli import app
from keras_transformer.decoding import (
    BannedIds,
    BeamSearch,
    GreedySearch,
    PowerLengthPenalty,
)
from keras_transformer.interop import marian
from keras_transformer.interop.marian import _read_vocabulary

WIDTH, INNER, HEADS, ENCODER, DECODER = 12, 20, 3, 2, 1
LONGEST = 11
TEXTS = [
    "All human beings are born free",
    ">>fra<< in dignity",
    "Ils sont dou\u00e9s de raison et de conscience",
]
# As marian 1.10 writes them.
CONFIG = {
    "bert-train-type-embeddings": True,
    "bert-type-vocab-size": 2,
    "dec-cell": "gru",
    "dec-cell-base-depth": 2,
    "dec-cell-high-depth": 1,
    "dec-depth": DECODER,
    "dim-emb": WIDTH,
    "dim-rnn": 1024,
    "enc-cell": "gru",
    "enc-cell-depth": 1,
    "enc-depth": ENCODER,
    "enc-type": "bidirectional",
    "factors-combine": "sum",
    "factors-dim-emb": 0,
    "input-types": [],
    "layer-normalization": False,
    "lemma-dim-emb": 0,
    "output-omit-bias": False,
    "right-left": False,
    "skip": False,
    "tied-embeddings": False,
    "tied-embeddings-all": True,
    "tied-embeddings-src": False,
    "transformer-aan-activation": "swish",
    "transformer-aan-depth": 2,
    "transformer-decoder-autoreg": "self-attention",
    "transformer-depth-scaling": True,
    "transformer-dim-aan": 2048,
    "transformer-dim-ffn": INNER,
    "transformer-ffn-activation": "swish",
    "transformer-ffn-depth": 2,
    "transformer-guided-alignment-layer": "last",
    "transformer-heads": HEADS,
    "transformer-no-projection": False,
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-postprocess-top": "",
    "transformer-preprocess": "",
    "transformer-tied-layers": [],
    "transformer-train-position-embeddings": False,
    "type": "transformer",
    "ulr": False,
    "ulr-dim-emb": 0,
    "version": "v1.10.0",
}
PRE_NORM = {
    "transformer-preprocess": "n",
    "transformer-postprocess": "da",
    "transformer-postprocess-top": "n",
    "transformer-ffn-activation": "relu",
}
SEPARATE = {"tied-embeddings": True, "tied-embeddings-all": False}
MODELS = {"post": {}, "pre": PRE_NORM, "separate": SEPARATE}


def random_weights(config):
    """Weights by Marian's names."""
    draw = np.random.default_rng(7)
    weights = {}

    # Peaked distributions, of sentences that end.
    def add(name, *shape, scale=0.8, mean=0.0):
        weights[name] = draw.normal(mean, scale, shape).astype("float32")

    def add_norm(name, suffix):
        add(f"{name}_ln_scale{suffix}", 1, WIDTH, scale=0.2, mean=1.0)
        add(f"{name}_ln_bias{suffix}", 1, WIDTH, scale=0.2)

    source, target = config["dim-vocabs"]
    if config["tied-embeddings-all"]:
        add("Wemb", source, WIDTH, scale=0.4)
    else:
        add("encoder_Wemb", source, WIDTH, scale=0.4)
        add("decoder_Wemb", target, WIDTH, scale=0.4)
    add("decoder_ff_logit_out_b", 1, target)
    weights["decoder_ff_logit_out_b"][0, 0] += 6
    is_pre = config["transformer-preprocess"] == "n"
    suffix = "_pre" if is_pre else ""
    attentions = {"encoder": ["self"], "decoder": ["self", "context"]}
    for side, depth in (("encoder", ENCODER), ("decoder", DECODER)):
        for layer in range(1, depth + 1):
            start = f"{side}_l{layer}"
            for attention in attentions[side]:
                for letter in "qkvo":
                    add(f"{start}_{attention}_W{letter}", WIDTH, WIDTH)
                    add(f"{start}_{attention}_b{letter}", 1, WIDTH)
                add_norm(f"{start}_{attention}_Wo", suffix)
            for number, shape in ((1, (WIDTH, INNER)), (2, (INNER, WIDTH))):
                add(f"{start}_ffn_W{number}", *shape)
                add(f"{start}_ffn_b{number}", 1, shape[1])
            add_norm(f"{start}_ffn_ffn", suffix)
        if is_pre:
            add_norm(f"{side}_top", "")
    return weights


def write_weights(folder, config, **changes):
    text = yaml.safe_dump(config).encode() + b"\0"
    weights = {**random_weights(config), **changes}
    weights = {name: array for name, array in weights.items() if array is not None}
    weights["special:model.yml"] = np.frombuffer(text, "int8")
    np.savez(folder / "model.npz", **weights)


def write_settings(folder, **changes):
    settings = {
        "relative-paths": True,
        "models": ["model.npz"],
        "vocabs": ["source.yml", "target.yml"],
        "beam-size": 4,
        "normalize": 1,
        "word-penalty": 0,
        "mini-batch": 1,
        "maxi-batch": 1,
        "maxi-batch-sort": "src",
        "max-length-factor": 3,
        **changes,
    }
    settings = {name: value for name, value in settings.items() if value is not None}
    (folder / "decoder.yml").write_text(yaml.safe_dump(settings))


@pytest.fixture
def write(originals, tmp_path):
    """Function that writes a folder of Marian's, with changes to its config."""

    def write_model(**changes):
        is_shared = changes.get("tied-embeddings-all", True)
        name = "marian" if is_shared else "marian_separate"
        tokenizers, sizes = originals / "tokenizers" / name, []
        for side, file in (("source", "vocab"), ("target", "target_vocab")):
            (tmp_path / f"{side}.spm").write_bytes(
                (tokenizers / f"{side}.spm").read_bytes()
            )
            if not (tokenizers / f"{file}.json").is_file():
                file = "vocab"
            table = json.loads((tokenizers / f"{file}.json").read_text("utf-8"))
            del table["<pad>"]
            lines = [
                f"{json.dumps(piece, ensure_ascii=False)}: {i}\n"
                for piece, i in table.items()
            ]
            (tmp_path / f"{side}.yml").write_text("".join(lines), "utf-8")
            sizes.append(len(table))
        config = {**CONFIG, "dim-vocabs": sizes, **changes}
        (tmp_path / "config.yml").write_text(yaml.safe_dump(config))
        write_weights(tmp_path, config)
        write_settings(tmp_path)
        return tmp_path

    return write_model


def positions_of_marian(length):
    """As `sinusoidalEmbeddingsFreq_` in Marian's transformer.h."""
    scales = WIDTH // 2
    table = np.zeros((length, WIDTH))
    for position in range(length):
        for i in range(WIDTH):
            angle = position * 1e-4 ** ((i % scales) / (scales - 1.0))
            table[position, i] = np.sin(angle + i // scales * np.pi / 2)
    return table.astype("float32")


def original(folder, out):
    """CTranslate2's translator, with Marian's positions and epsilon.

    It would take those of transformers, and 1e-5. The epsilon is 1e-6 in Marian.
    """
    copied = shutil.copytree(folder, out.with_name("for_ctranslate2"))
    with np.load(folder / "model.npz") as weights:
        np.savez(copied / "model.npz", **weights, Wpos=positions_of_marian(50))
    OpusMTConverter(str(copied)).convert(str(out))
    config = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps({**config, "layer_norm_epsilon": 1e-6}))
    return ctranslate2.Translator(str(out))


def encoded(tokenizer, texts, pad, end):
    """Rows of ids with the end token and padding."""
    rows = [[*row, end] for row in tokenizer(texts).to_list()]
    width = max(map(len, rows))
    return np.array([row + [pad] * (width - len(row)) for row in rows])


# The original


@pytest.mark.quick("post")
@pytest.mark.parametrize(
    "name",
    [x if x == "post" else pytest.param(x, marks=pytest.mark.slow) for x in MODELS],
)
def test_numbers_and_searches_are_those_of_ctranslate2(write, name, tmp_path):
    """CTranslate2 forbids the end token first, before the softmax, unless told not to.

    Unknown subwords may be chosen here: neither search is told to forbid them.
    """
    folder = write(**MODELS[name])
    translator = original(folder, tmp_path / "converted")
    arguments = marian.read_translator(folder)
    model = arguments["model"]
    source, target = (arguments[f"{x}_tokenizer"] for x in ("source", "target"))
    end, pad = model.end_id, model.pad_id
    ids = encoded(source, TEXTS, pad, end)
    sources = [source.pieces(row[row != pad][:-1]) for row in ids]
    search = BeamSearch(4, PowerLengthPenalty(1.0))

    found = model.generate(ids, search, LONGEST)
    expected = translator.translate_batch(
        sources,
        beam_size=4,
        length_penalty=1,
        patience=4,  # else it stops sooner
        min_decoding_length=0,
        max_decoding_length=LONGEST,
        return_scores=True,
    )
    scores = [result.scores[0] for result in expected]
    np.testing.assert_allclose(np.asarray(found.scores)[:, 0], scores, atol=1e-4)
    outputs = [result.hypotheses[0] for result in expected]
    assert [*map(len, outputs)] != [LONGEST] * len(outputs)  # some have ended
    for row, output in zip(np.asarray(found.ids)[:, 0], outputs, strict=True):
        assert target.pieces(i for i in row if i not in (pad, end)) == output

    # The scores of the same translations, subword by subword.
    index_of = {target.pieces([i])[0]: i for i in range(target.vocabulary_size)}
    expected = translator.score_batch(sources, outputs)
    for row, output, score in zip(ids, outputs, expected, strict=True):
        output = [index_of[piece] for piece in output]
        inputs = {"source_ids": row[None], "target_ids": [[model.start_id, *output]]}
        inputs = {key: np.array(rows) for key, rows in inputs.items()}
        logs = keras.ops.log_softmax(model(inputs)[0])
        logs = np.asarray(logs)[range(len(output) + 1), [*output, end]]
        np.testing.assert_allclose(logs, score.log_probs, atol=1e-4)


# What the original has no word for


def test_ids_that_marian_does_not_have_have_no_probability(write):
    folder = write(**SEPARATE)
    config = yaml.safe_load((folder / "config.yml").read_text())
    sizes = config["dim-vocabs"]
    wider = [sizes[0] + 5, sizes[1]]  # vectors without a subword
    write_weights(folder, {**config, "dim-vocabs": wider})
    arguments = marian.read_translator(folder, dropout=0.3)
    model = arguments["model"]
    assert model.pad_id == model.start_id == wider[0]
    assert model.get_config()["dropout"] == 0.3
    ids = encoded(arguments["source_tokenizer"], TEXTS, model.pad_id, model.end_id)
    starts = np.full((len(TEXTS), 1), model.start_id)
    logits = model({"source_ids": ids, "target_ids": starts})
    probabilities = np.asarray(keras.ops.softmax(logits))[:, 0]
    assert probabilities.shape[-1] == wider[0] + 1
    assert not probabilities[:, sizes[1] :].any()
    np.testing.assert_allclose(probabilities[:, : sizes[1]].sum(-1), 1, rtol=1e-5)
    for side in ("source", "target"):
        table = arguments[f"{side}_tokenizer"]
        assert (table.pad_id, table.end_id) == (model.pad_id, model.end_id)


def test_a_target_language_is_put_before_texts(write):
    folder = write()
    tokenizer = marian.read_translator(folder)["source_tokenizer"]
    french = marian.read_translator(folder, target_language="fra")
    french = french["source_tokenizer"]
    texts = ["in dignity"]
    assert french(texts).to_list() == tokenizer([">>fra<<" + texts[0]]).to_list()
    message = r"`target_language` must be one of \['deu', 'fra'\].*'xyz'"
    with pytest.raises(ValueError, match=message):
        marian.read_translator(folder, target_language="xyz")
    with pytest.raises(ValueError, match="leave out `source_language`"):
        marian.read_translator(folder, source_language="eng")


@pytest.mark.slow
def test_the_shell_reads_a_folder_of_marians(write):
    folder = write()
    done = CliRunner().invoke(app, ["translate", str(folder)], input=TEXTS[0])
    assert done.exit_code == 0, done.output
    expected = kt.Translator.from_preset(folder).translate(TEXTS[:1])
    assert done.stdout.splitlines() == expected


@pytest.mark.parametrize(
    ("settings", "search"),
    [
        ({}, lambda banned: BeamSearch(4, PowerLengthPenalty(1.0), processors=banned)),
        (
            {"beam-size": None, "normalize": 0.6},
            lambda banned: BeamSearch(12, PowerLengthPenalty(0.6), processors=banned),
        ),
        ({"beam-size": 1}, lambda banned: GreedySearch(processors=banned)),
        ({"beam-size": 1, "allow-unk": True}, lambda _: GreedySearch()),
    ],
)
def test_the_search_is_that_of_decoder_yml(write, settings, search):
    folder = write()
    write_settings(folder, **settings)
    arguments = marian.read_translator(folder)
    banned = [BannedIds([arguments["target_tokenizer"].unknown_id])]
    assert arguments["search"] == search(banned)


def test_a_vocabulary_may_be_a_sentencepiece_model(write, originals):
    folder = write()
    path = originals / "tokenizers" / "marian" / "source.spm"
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    (folder / "vocab.spm").write_bytes(path.read_bytes())
    write_settings(folder, vocabs=["vocab.spm", "vocab.spm"])
    sizes = [model.vocab_size()] * 2
    write_weights(folder, {**CONFIG, "dim-vocabs": sizes})
    arguments = marian.read_translator(folder)
    for side in ("source", "target"):
        ids = arguments[f"{side}_tokenizer"](TEXTS[:1]).to_list()
        assert ids == model.encode(TEXTS[:1])
    assert arguments["model"].end_id == model.eos_id()


def test_vocabularies_are_read_line_by_line(tmp_path):
    path = tmp_path / "vocab.yml"
    text = """</s>: 0
"<unk>": 1
no: 2
~: 3
":": 4
"\\"": 5
"\\xa0\\u00e9": 6
'it''s': 7
? "%s"
: 8
\u2581a: 9\r
12: 10
"""
    path.write_text(text % ("x" * 200), "utf-8")
    pieces = ["</s>", "<unk>", "no", "~", ":", '"', "\xa0\xe9", "it's", "x" * 200]
    pieces += ["\u2581a", "12"]
    assert _read_vocabulary(path) == {piece: i for i, piece in enumerate(pieces)}


# Bad input


@pytest.mark.parametrize(
    "changes",
    [
        {"type": "s2s"},
        {"right-left": True},
        {"transformer-decoder-autoreg": "rnn"},
        {"transformer-ffn-depth": 3},
        {"transformer-ffn-activation": "gelu"},
        {"transformer-preprocess": "n"},
        {"transformer-postprocess-emb": "nd"},
        {"transformer-decoder-dim-ffn": INNER + 1},
        {"transformer-train-position-embeddings": True},
        {"transformer-tied-layers": [1, 1]},
        {"output-omit-bias": True},
        {"an-option-of-tomorrow": "on"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_setting_that_is_not_understood_is_named(write, changes):
    folder = write(**changes)
    (name,) = changes
    with pytest.raises(ValueError, match=re.escape(name)) as error:
        marian.read_transformer(folder)
    assert "model.npz" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"word-penalty": 0.5}, r"decoder\.yml has values .*'word-penalty': 0\.5"),
        ({"shortlist": ["lex.s2t", 50]}, r"decoder\.yml has values .*'shortlist'"),
        ({"models": ["a.npz", "b.npz"]}, r"must name 1 of 'models'\. Received"),
        ({"vocabs": None}, r"must name 2 of 'vocabs'\. Received: None"),
        ({"models": ["other.npz"]}, r"other\.npz is missing"),
    ],
)
def test_a_setting_of_the_search_that_is_not_understood_is_named(
    write, changes, message
):
    folder = write()
    write_settings(folder, **changes)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        marian.read_translator(folder)


WEIGHT = "encoder_l1_self_Wq"


@pytest.mark.quick(
    "weights0-has no weight 'encoder_l1",
    "weights1-'encoder_l1_self_Wq' must",
    "weights2-weights that are not unde",
)
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({WEIGHT: None}, f"has no weight '{WEIGHT}'"),
        ({WEIGHT: np.ones((3, 5))}, rf"'{WEIGHT}' must have the shape \({WIDTH}, "),
        ({"Wpos": np.ones((3, 5))}, r"weights that are not understood: \['Wpos'\]"),
        ({"Wemb": np.ones((3, WIDTH))}, r"'Wemb' must have the shape"),
    ],
)
def test_a_weight_that_does_not_fit_is_named(write, weights, message):
    folder = write()
    config = yaml.safe_load((folder / "config.yml").read_text())
    write_weights(folder, config, **weights)
    with pytest.raises(ValueError, match=message):
        marian.read_transformer(folder)


@pytest.mark.parametrize("size", [0, 100, -1000])
def test_truncated_weights_are_told(write, size):
    path = write() / "model.npz"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match=r"model\.npz is damaged .* again") as error:
        marian.read_transformer(path.parent)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["decoder.yml", "source.yml", "target.spm"])
def test_a_missing_file_is_named(write, name):
    folder = write()
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=rf"{re.escape(name)} is missing"):
        marian.read_translator(folder)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("decoder.yml", b"models: [", "is not YAML"),
        ("decoder.yml", b"- models", "must hold names and values"),
        ("source.yml", b"a: 0\nb\n", "line 2, is not a subword and its id: 'b'"),
        ("source.yml", b"a: 0\n", "must have '<unk>', and '</s>' with the same id"),
        ("source.yml", b"</s>: 0\n<unk>: 1\n<pad>: 2", "but not '<pad>': Marian"),
        ("source.yml", b"\xff: 0\n", "is not UTF-8"),
        ("target.spm", b"other", "target.spm is not a SentencePiece model"),
    ],
)
def test_a_damaged_file_is_told(write, name, data, message):
    folder = write()
    (folder / name).write_bytes(data)
    with pytest.raises(ValueError, match=message) as error:
        marian.read_translator(folder)
    assert "\n" not in str(error.value)
