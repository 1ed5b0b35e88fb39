import base64
import itertools
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from serving.prediction_log import read_requests
from serving.tiny_translator import SOURCES, TARGETS, make_translator
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import saved_model_pb2

import keras_transformer as kt
from keras_transformer import kernels
from keras_transformer.kernels.projections import dense

pytestmark = pytest.mark.usefixtures("two_padded_lengths")
SEARCH = kt.decoding.BeamSearch(3, num_hypotheses=2)
# Some that were learnt and some that were not, blank ones, and of both lengths.
TEXTS = ["a dog", "", *SOURCES[::5], "five bike bike man a", " \u3000", "\0 tree"]
TOO_LONG = "two dog man " * 7
HOSTILE = {
    "invalid": b"\xff" * 2**20,
    "nul": b"\0" * 2**20,
    "word": b"x" * 2**20,
    "space": b" " * 2**20,
    "emoji": "\N{GRINNING FACE}".encode() * 10_000,
    "right-to-left": (
        "\N{RIGHT-TO-LEFT OVERRIDE}שלום \N{COMBINING ACUTE ACCENT}".encode() * 10_000
    ),
}
CONTROLS = (
    kt.decoding.MinimumLength(3),
    kt.decoding.MaximumLength(0.5, 2),
    kt.decoding.NoRepeatNgram(2),
    kt.decoding.RepetitionPenalty(1.2),
    kt.decoding.BannedIds([1]),
    kt.decoding.ForcedPrefix([7, 5]),
)
SERVING = Path(__file__).parent
# A server's TensorFlow may be older than what exports.
SERVING_PYTHON = os.environ.get("KERAS_TRANSFORMER_SERVING_PYTHON", sys.executable)
SENTENCEPIECE_OPS = {
    "SentencepieceOp",
    "SentencepieceTokenizeOp",
    "SentencepieceTokenizeWithOffsetsOp",
    "SentencepieceDetokenizeOp",
}


def settings_of(path):
    return json.loads((path / "assets.extra" / "translator.json").read_text())


@pytest.fixture(scope="module")
def translator():
    return make_translator(updates=60, normalize_first=True)


@pytest.fixture(scope="module")
def exported(translator, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "en-de" / "1"
    return translator.export(path, SEARCH, jit_compile=False)


@pytest.fixture(scope="module")
def compiled(translator, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "en-de" / "2"
    return translator.export(path, SEARCH, jit_compile=True)


@pytest.fixture(scope="module")
def served(exported):
    return tf.saved_model.load(exported).signatures


@pytest.fixture(scope="module")
def meta_graph(exported):
    saved_model = saved_model_pb2.SavedModel()
    saved_model.ParseFromString((exported / "saved_model.pb").read_bytes())
    (meta_graph,) = saved_model.meta_graphs
    return meta_graph


@pytest.fixture(scope="module")
def signatures(meta_graph):
    signatures = dict(meta_graph.signature_def)
    signatures.pop("__saved_model_init_op")
    return signatures


@pytest.fixture(scope="module")
def live(translator):
    """Returns what an export must answer to `TEXTS`."""
    found = translator.translate_n_best(TEXTS, SEARCH)
    return {
        "translations": [[one.text for one in best_first] for best_first in found],
        "scores": [[one.score for one in best_first] for best_first in found],
    }


@pytest.fixture(scope="module", params=["graph", "eager"])
def fresh_responses(request, exported):
    """Returns the answers of a process that knows nothing of this package."""
    ids = [[5, 7, 11, 3], [5, 3, 0, 0], [0, 0, 0, 0]]
    text = {"text": in_base64(TEXTS)}
    hostile = in_base64(HOSTILE.values())
    requests = {
        "serving_default": ("serving_default", text),
        "translate_n_best": ("translate_n_best", text),
        "translate_ids": ("translate_ids", {"source_ids": ids}),
        "score": ("score", {**text, "target": in_base64(reversed(TEXTS))}),
        "no text": ("serving_default", {"text": []}),
        "hostile text": ("serving_default", {"text": hostile}),
        "hostile target": ("score", {"text": hostile, "target": hostile}),
        "text after it": ("serving_default", text),
    }
    answer = run_alone(
        SERVING / "fresh_process.py",
        *(request.param, exported),
        stdin=json.dumps(list(requests.values())),
    )
    return dict(zip(requests, json.loads(answer), strict=True))


def run_alone(*arguments, stdin=None):
    """Runs Python without this package on its path, and returns what it prints."""
    process = subprocess.run(
        [SERVING_PYTHON, "-I", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def in_base64(texts):
    encoded = [text.encode() if isinstance(text, str) else text for text in texts]
    return [base64.b64encode(text).decode() for text in encoded]


def decoded(texts):
    if isinstance(texts, (list, np.ndarray)):
        return [decoded(text) for text in texts]
    return texts.decode()


def test_an_export_gives_the_live_translations(served, live):
    best = served["serving_default"](text=tf.constant(TEXTS))
    n_best = served["translate_n_best"](text=tf.constant(TEXTS))
    assert decoded(n_best["translations"].numpy()) == live["translations"]
    np.testing.assert_allclose(n_best["scores"], live["scores"], atol=1e-5)
    assert decoded(best["translation"].numpy()) == [
        row[0] for row in live["translations"]
    ]


@pytest.mark.slow
def test_a_fresh_process_gives_the_live_translations(fresh_responses, live):
    best, n_best = (
        fresh_responses[name] for name in ("serving_default", "translate_n_best")
    )
    assert best["translation"] == in_base64(row[0] for row in live["translations"])
    assert n_best["translations"] == list(map(in_base64, live["translations"]))
    scores = np.array(live["scores"])
    np.testing.assert_allclose(best["score"], scores[:, 0], atol=1e-5)
    np.testing.assert_allclose(n_best["scores"], scores, atol=1e-5)


@pytest.mark.slow
def test_a_fresh_process_searches_and_scores_as_this_one(fresh_responses, served):
    ids = tf.constant([[5, 7, 11, 3], [5, 3, 0, 0], [0, 0, 0, 0]])
    here = served["translate_ids"](source_ids=ids)
    there = fresh_responses["translate_ids"]
    assert there["ids"] == here["ids"].numpy().tolist()
    np.testing.assert_allclose(there["score"], here["score"], atol=1e-5)
    texts = tf.constant(TEXTS)
    here = served["score"](text=texts, target=texts[::-1])
    there = fresh_responses["score"]
    assert there["tokens"] == here["tokens"].numpy().tolist()
    np.testing.assert_allclose(
        there["log_probability"], here["log_probability"], atol=1e-4
    )


@pytest.mark.slow
def test_a_fresh_process_outlives_hostile_text(fresh_responses):
    assert fresh_responses["no text"]["translation"] == []
    hostile = fresh_responses["hostile text"]
    assert len(hostile["translation"]) == len(HOSTILE)
    assert np.isfinite(hostile["score"]).all()
    assert np.isfinite(fresh_responses["hostile target"]["log_probability"]).all()
    # Two copies of all texts would be 10 MB, and what XLA compiles for their length is
    # some 300 to 450 MB; SentencePiece alone would want gigabytes.
    peaks = [response["peak_memory"] for response in fresh_responses.values()]
    assert peaks[-1] - peaks[3] < 700e6
    before, after = (
        fresh_responses[name] for name in ("serving_default", "text after it")
    )
    assert after["translation"] == before["translation"]


@pytest.mark.slow
def test_a_compiled_export_gives_the_live_translations(compiled, live):
    # More than one compiled batch, the last one not full.
    texts = [TEXTS[i % 5] for i in range(37)]
    requests = [("translate_n_best", {"text": in_base64(texts)})]
    answer = run_alone(
        SERVING / "fresh_process.py", "graph", compiled, stdin=json.dumps(requests)
    )
    (response,) = json.loads(answer)
    expected = list(map(in_base64, live["translations"][:5]))
    assert response["translations"] == [expected[i % 5] for i in range(37)]
    scores = np.resize(live["scores"][:5], (37, len(live["scores"][0])))
    np.testing.assert_allclose(response["scores"], scores, atol=1e-4)


@pytest.mark.slow
def test_xla_compiles_the_search_of_a_compiled_export(translator, exported, tmp_path):
    search = kt.decoding.GreedySearch()
    compiled = translator.export(tmp_path / "1", search, 2, jit_compile=True)

    def is_compiled(path):
        saved_model = saved_model_pb2.SavedModel()
        saved_model.ParseFromString((path / "saved_model.pb").read_bytes())
        functions = saved_model.meta_graphs[0].graph_def.library.function
        return any(one.attr["_XlaMustCompile"].b for one in functions)

    assert is_compiled(compiled)
    assert not is_compiled(exported)


def test_a_compiled_search_parts_the_products_of_one_row(monkeypatch):
    layer = keras.layers.Dense(5)
    layer.build((None, None, 8))
    kernel = layer.kernel.numpy()
    monkeypatch.setattr(keras.layers.Dense, "call", None)
    find = tf.function(lambda states: [dense(layer, states)], jit_compile=True)
    (outputs,) = find(tf.ones([1, 1, 8]))
    np.testing.assert_allclose(outputs[0, 0], kernel.sum(axis=0), 1e-5, 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("export", ["exported", "compiled"])
def test_the_c_interface_gives_the_live_translations(export, signatures, live, request):
    exported = request.getfixturevalue(export)
    signature = signatures["serving_default"]
    packages = Path(tf.__file__).parent, Path(tensorflow_text.__file__).parent
    answer = run_alone(
        SERVING / "c_interface.py",
        *(*packages, exported),
        *(signature.inputs["text"].name, signature.outputs["translation"].name),
        stdin=json.dumps(TEXTS),
    )
    assert json.loads(answer) == [row[0] for row in live["translations"]]


def test_signatures_have_the_names_types_and_ranks_that_are_promised(signatures):
    text, score = ("DT_STRING", 1), ("DT_FLOAT", 1)
    aligned = {"spans": ("DT_INT32", 3), "weights": ("DT_FLOAT", 2)}
    assert {name: specs_of(one) for name, one in signatures.items()} == {
        "serving_default": [{"text": text}, {"translation": text, "score": score}],
        "translate_n_best": [
            {"text": text},
            {"translations": ("DT_STRING", 2), "scores": ("DT_FLOAT", 2)},
        ],
        "translate_ids": [
            {"source_ids": ("DT_INT32", 2)},
            {"ids": ("DT_INT32", 2), "score": score},
        ],
        "score": [
            {"text": text, "target": text},
            {"log_probability": score, "tokens": ("DT_INT32", 1)},
        ],
        "align": [{"text": text, "target": text}, aligned],
        "translate_aligned": [
            {"text": text},
            {"translation": text, "score": score, **aligned},
        ],
    }


@pytest.mark.parametrize("name", ["serving_default", "score"])
def test_texts_of_another_rank_are_refused_by_name(served, name):
    texts = tf.constant([["a dog", "a cat"]])
    arguments = {"text": texts, **({"target": texts} if name == "score" else {})}
    message = (
        r"Shape of tensor (text|target) \[1,2\] is not compatible with expected shape"
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        served[name](**arguments)


def specs_of(signature):
    return [
        {
            name: (types_pb2.DataType.Name(one.dtype), len(one.tensor_shape.dim))
            for name, one in side.items()
        }
        for side in (signature.inputs, signature.outputs)
    ]


def test_only_ops_of_the_stock_server_are_exported(meta_graph):
    functions = meta_graph.graph_def.library.function
    nodes = list(meta_graph.graph_def.node)
    nodes += itertools.chain.from_iterable(one.node_def for one in functions)
    ops = {node.op for node in nodes}
    assert ops >= SENTENCEPIECE_OPS
    # `tf.raw_ops` are TensorFlow's own.
    assert {op for op in ops if not hasattr(tf.raw_ops, op)} == SENTENCEPIECE_OPS
    assert not [op for op in ops if "PyFunc" in op or op.startswith("Xla")]
    attributes = {name for one in functions for name in one.attr}
    attributes |= {name for node in nodes for name in node.attr}
    assert "_XlaMustCompile" not in attributes
    # Loading would warn that their gradients are not there.
    assert "_gradient_op_type" not in attributes


def test_gradients_are_left_behind(meta_graph):
    functions = meta_graph.graph_def.library.function
    names = [function.signature.name for function in functions]
    assert names
    assert not [name for name in names if "gradient" in name]


def test_the_optimizer_is_left_behind(translator, exported):
    saved = dict(tf.train.list_variables(str(exported / "variables" / "variables")))
    saved.pop("_CHECKPOINTABLE_OBJECT_GRAPH")
    shapes = [tuple(weight.shape) for weight in translator.model.weights]
    assert sorted(map(tuple, saved.values())) == sorted(shapes)
    assert len(translator.model.optimizer.variables) > len(shapes)


@pytest.mark.quick("1", "7")
@pytest.mark.parametrize("batch_size", [0, 1, 7])
def test_batches_are_of_any_size(served, live, batch_size):
    texts = tf.constant(TEXTS[:batch_size], tf.string)
    best = served["serving_default"](text=texts)
    translations = decoded(best["translation"].numpy())
    assert translations == [row[0] for row in live["translations"][:batch_size]]
    assert best["score"].shape == (batch_size,)
    n_best = served["translate_n_best"](text=texts)
    assert n_best["translations"].shape == n_best["scores"].shape == (batch_size, 2)
    scored = served["score"](text=texts, target=texts)
    assert scored["tokens"].shape == scored["log_probability"].shape == (batch_size,)
    found = served["translate_ids"](source_ids=tf.ones((batch_size, 5), tf.int32))
    assert found["ids"].shape[0] == batch_size


def test_nothing_is_translated_to_nothing(served):
    outputs = served["translate_n_best"](
        text=tf.constant(["", SOURCES[0], "\t \u3000"])
    )
    translations = decoded(outputs["translations"].numpy())
    assert translations[0] == translations[2] == ["", ""]
    assert translations[1][0] == TARGETS[0]
    assert outputs["scores"].numpy()[[0, 2]].tolist() == [[0, 0], [0, 0]]


def test_ids_are_translated_as_their_texts_are(translator, served):
    texts = [*TEXTS, TOO_LONG]
    ids, _ = kt.text.encode(texts, translator.source_tokenizer, 1000)
    found = served["translate_ids"](source_ids=ids)
    expected = served["serving_default"](text=tf.constant(texts))
    translations = translator.target_tokenizer.detokenize(found["ids"])
    assert translations.numpy().tolist() == expected["translation"].numpy().tolist()
    np.testing.assert_allclose(found["score"], expected["score"], atol=1e-5)


def test_ids_of_no_subword_are_unknown_ones(served):
    ids = np.array([[5, -1, 7, 3], [5, 41, 7, 3], [5, 1 << 30, 7, 3], [5, 1, 7, 3]])
    outputs = served["translate_ids"](source_ids=tf.constant(ids, tf.int32))
    assert len(np.unique(outputs["ids"].numpy(), axis=0)) == 1


def test_log_probabilities_are_those_of_the_model(translator, served):
    texts, targets = SOURCES[:3], [TARGETS[1], "Hund", ""]
    outputs = served["score"](text=tf.constant(texts), target=tf.constant(targets))
    found, tokens = outputs["log_probability"].numpy(), outputs["tokens"].numpy()
    source_ids = translator.encode(texts)[0].numpy()
    for row, target in enumerate(targets):
        labels = [*translator.target_tokenizer([target]).to_list()[0], 3]
        target_ids = np.array([[2, *labels]])
        inputs = {"source_ids": source_ids[row][None], "target_ids": target_ids}
        log_probabilities = keras.ops.log_softmax(translator.model(inputs))[0].numpy()
        expected = sum(log_probabilities[i, label] for i, label in enumerate(labels))
        assert found[row] == pytest.approx(expected, abs=1e-4)
        assert tokens[row] == len(labels)


@pytest.mark.slow
def test_alignments_are_those_of_the_translator(translator, served):
    # With characters that SentencePiece normalises, and of several bytes.
    texts = [*TEXTS, "a \u00addo\u00adg  rides", "\uff54wo bike 😀", TOO_LONG]
    texts = [text.replace("\0", "") for text in texts]
    found = served["translate_aligned"](text=tf.constant(texts))
    targets = decoded(found["translation"].numpy())
    again = served["align"](text=tf.constant(texts), target=tf.constant(targets))
    live = translator.align(texts, targets)
    assert sum(map(len, live)) > len(texts)
    for answer in (found, again):
        spans, weights = answer["spans"].numpy(), answer["weights"].numpy()
        for row, pairs in enumerate(live):
            expected = np.array([(*one.source, *one.target) for one in pairs])
            rest = spans[row, len(pairs) :], weights[row, len(pairs) :]
            np.testing.assert_array_equal(
                spans[row, : len(pairs)], expected.reshape(-1, 4)
            )
            np.testing.assert_allclose(
                weights[row, : len(pairs)], [one.weight for one in pairs], 1e-5, 1e-6
            )
            assert not any(x.any() for x in rest)


def test_every_text_has_the_target_that_it_is_scored_with(served):
    with pytest.raises(tf.errors.InvalidArgumentError, match="the same length"):
        served["score"](text=tf.constant(["a", "b"]), target=tf.constant(["c"]))


def test_what_is_too_long_is_cut_as_it_is_live(translator, served):
    with pytest.warns(UserWarning, match="were cut"):
        expected = translator.translate([TOO_LONG], SEARCH)
    outputs = served["serving_default"](text=tf.constant([TOO_LONG]))
    assert decoded(outputs["translation"].numpy()) == expected


@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.binary(max_size=99) | st.text().map(str.encode), max_size=5))
def test_any_bytes_have_an_answer(served, texts):
    texts = tf.constant(texts, tf.string)
    best = served["serving_default"](text=texts)
    assert best["translation"].shape == texts.shape
    n_best = served["translate_n_best"](text=texts)
    np.testing.assert_array_equal(n_best["translations"][:, 0], best["translation"])
    scored = served["score"](text=texts, target=texts[::-1])
    assert (scored["tokens"] > 0).numpy().all()
    aligned = served["align"](text=texts, target=texts[::-1])
    assert aligned["spans"].shape[:2] == aligned["weights"].shape
    for scores in (best["score"], n_best["scores"], scored["log_probability"]):
        assert np.isfinite(scores).all()
        assert (scores <= 0).numpy().all()


@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@given(arrays("int32", st.tuples(st.integers(0, 3), st.integers(0, 31))))
def test_any_ids_have_an_answer(served, source_ids):
    found = served["translate_ids"](source_ids=tf.constant(source_ids))
    assert found["ids"].shape[0] == found["score"].shape[0] == len(source_ids)
    assert np.isfinite(found["score"]).all()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_huge_text_takes_no_longer_than_a_sentence(served, name):
    start = time.process_time()
    text = HOSTILE[name]
    outputs = served["serving_default"](text=tf.constant([text, b"a dog rides"]))
    served["score"](text=tf.constant([b"a"]), target=tf.constant([text]))
    assert decoded(outputs["translation"].numpy()[1]) == "ein Hund fährt"
    # SentencePiece alone would take half a minute for a run of unknown characters.
    assert time.process_time() - start < 10


@pytest.mark.slow
def test_versions_stand_side_by_side_with_vocabularies_and_controls_of_their_own(
    translator, exported, live, tmp_path
):
    swapped = kt.Translator(
        kt.models.Transformer(
            43, 41, num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16
        ),
        translator.target_tokenizer,
        translator.source_tokenizer,
        max_source_length=16,
    )
    search = kt.decoding.BeamSearch(2, processors=CONTROLS)
    shutil.copytree(exported, tmp_path / "1")
    swapped.export(tmp_path / "2", search, max_length=7)
    assert {path.name for path in tmp_path.iterdir()} == {"1", "2"}
    first, second = (
        tf.saved_model.load(tmp_path / version).signatures["serving_default"]
        for version in ("1", "2")
    )
    keras.utils.set_random_seed(7)  # a known way to lose a tokenizer
    expected = swapped.translate(TARGETS[:5], search, max_length=7)
    found = second(text=tf.constant(TARGETS[:5]))["translation"].numpy()
    assert decoded(found) == expected
    prefix = swapped.target_tokenizer.detokenize([[7, 5]]).numpy()[0].decode()
    assert all(text.startswith(prefix) for text in expected)
    found = first(text=tf.constant(TEXTS))["translation"].numpy()
    assert decoded(found) == [row[0] for row in live["translations"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype",
    ["mixed_bfloat16", "mixed_float16"],
)
def test_half_precision_is_exported_as_it_is_live(dtype, tmp_path):
    # Untrained, it goes on to the longest translation that a text may have.
    translator = make_translator(dtype=dtype)
    search = kt.decoding.GreedySearch()
    path = translator.export(tmp_path / "1", search, dtype=dtype)
    assert not settings_of(path)["jit_compile"], "it would round differently"
    serve = tf.saved_model.load(path).signatures["serving_default"]
    outputs = serve(text=tf.constant(TEXTS))
    found = [best for (best,) in translator.translate_n_best(TEXTS, search)]
    assert decoded(outputs["translation"].numpy()) == [one.text for one in found]
    scores = [one.score for one in found]
    assert np.isfinite(scores).all()
    np.testing.assert_allclose(outputs["score"], scores, rtol=1e-2)


@pytest.mark.slow
def test_a_translation_is_one_line_and_no_longer_than_the_positions(tmp_path):
    tokenizer = kt.text.SubwordTokenizer.train(SOURCES, 290, byte_fallback=True)
    sizes = {"num_layers": 1, "hidden_dim": 8, "num_heads": 2, "intermediate_dim": 16}
    positions = kt.layers.LearnedPositionalEncoding(11)
    model = kt.models.Transformer(290, positions=positions, **sizes)
    translator = kt.Translator(model, tokenizer, max_source_length=16)
    pieces = tokenizer.pieces(range(290))
    line_ends = [pieces.index(f"<0x{x:02X}>") for x in "\n\u2028".encode()]
    forced = [kt.decoding.ForcedPrefix([*line_ends, *tokenizer(["dog"])[0].numpy()])]
    search = kt.decoding.BeamSearch(2, num_hypotheses=2, processors=forced)
    texts = ["a dog", "a man rides a bike"]
    path = translator.export(tmp_path / "1", search)
    serve = tf.saved_model.load(path).signatures["translate_n_best"]
    served = serve(text=tf.constant(texts))
    assert np.isfinite(served["scores"]).all()
    found = translator.translate_n_best(texts, search)
    found = [[one.text for one in best_first] for best_first in found]
    assert decoded(served["translations"].numpy()) == found
    for text in (*found[0], *found[1]):
        assert "dog" in text
        assert len(text.splitlines()) == 1


@pytest.mark.slow
def test_an_export_computes_in_what_the_processor_has(tmp_path, monkeypatch):
    translator = make_translator(dtype="mixed_bfloat16", max_source_length=16)
    search, texts = kt.decoding.GreedySearch(), SOURCES[:5]
    monkeypatch.setattr(
        kernels.target, "has_instructions_for", lambda x: x == "float32"
    )
    with pytest.warns(UserWarning, match="decodes in float32"):
        path = translator.export(tmp_path / "1", search, max_length=2)
    serve = tf.saved_model.load(path).signatures["serving_default"]
    exact = translator.in_dtype("float32")
    found = serve(text=tf.constant(texts))["score"]
    expected = exact.translate_n_best(texts, search, max_length=2)
    np.testing.assert_allclose(found, [best.score for (best,) in expected], 1e-5)


@pytest.mark.slow
def test_a_drawn_translation_is_exported_with_its_seed(tmp_path):
    translator = make_translator(max_source_length=16)
    search = kt.decoding.Sampling(temperature=2.0, seed=11)
    path = translator.export(tmp_path / "1", search)
    assert settings_of(path)["jit_compile"], "the default in float32"
    serve = tf.saved_model.load(path).signatures["serving_default"]
    found = serve(text=tf.constant(SOURCES[:7]))["translation"].numpy()
    assert decoded(found) == translator.translate(SOURCES[:7], search, batch_size=3)
    unseeded = kt.decoding.Sampling()
    with pytest.raises(ValueError, match=r"must have a seed .* Received: .*seed=None"):
        translator.export(tmp_path / "2", unseeded)
    assert not (tmp_path / "2").exists()
    without_draws = kt.decoding.Sampling(temperature=0)
    assert translator.export(tmp_path / "2", without_draws).exists()


def test_what_is_no_search_is_not_exported(translator, tmp_path):
    with pytest.raises(ValueError, match="`search` must be a search .* search='beam'"):
        translator.export(tmp_path / "1", "beam")


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_an_export_ends_before_end_ids_as_the_translator(
    translator, jit_compile, tmp_path
):
    search = kt.decoding.BeamSearch(2, end_ids=(3, 7))
    path = translator.export(tmp_path / "1", search, jit_compile=jit_compile)
    serve = tf.saved_model.load(path).signatures["serving_default"]
    outputs = serve(text=tf.constant(TEXTS))
    found = [best for (best,) in translator.translate_n_best(TEXTS, search)]
    assert decoded(outputs["translation"].numpy()) == [one.text for one in found]
    np.testing.assert_allclose(
        outputs["score"], [one.score for one in found], rtol=1e-4, atol=1e-5
    )
    assert [one.text for one in found] != translator.translate(TEXTS, SEARCH)
    made = settings_of(path)
    made["search"].pop("name")
    assert kt.decoding.BeamSearch.from_config(made["search"]) == search


def test_warmup_requests_are_answered_by_every_signature(exported, served):
    requests = list(read_requests(exported))
    names = [request.model_spec.signature_name for request in requests]
    assert set(names) == set(served)
    for name, request in zip(names, requests, strict=True):
        inputs = {
            name: tf.constant(tf.make_ndarray(value))
            for name, value in request.inputs.items()
        }
        outputs = served[name](**inputs)
        assert all(len(value) == 1 for value in outputs.values())


def test_an_export_tells_how_it_was_made(exported):
    made = settings_of(exported)
    assert made["keras_transformer"] == kt.__version__
    assert (made["max_source_length"], made["max_target_length"]) == (20, 40)
    assert made["search"]["name"] == "BeamSearch"
    assert made["search"]["beam_width"] == 3


def test_a_version_is_never_overwritten(translator, exported):
    before = {path: path.stat().st_mtime_ns for path in exported.rglob("*")}
    expected = f"{exported} exists, .*next version would be {exported.parent / '2'}"
    with pytest.raises(FileExistsError, match=expected):
        translator.export(exported)
    with pytest.raises(FileExistsError, match=f"{exported.parent / '2'}"):
        translator.export(exported.parent)
    assert {path: path.stat().st_mtime_ns for path in exported.rglob("*")} == before


@pytest.mark.slow
def test_a_full_disk_leaves_no_export(translator, tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises((OSError, tf.errors.OpError), match="too large"):
            translator.export(tmp_path / "1", kt.decoding.GreedySearch(), max_length=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_command_line_of_tensorflow_runs_an_export(exported, tmp_path):
    # It loads no ops but TensorFlow's own, so TensorFlow Text is imported first.
    program = (
        "import tensorflow_text; from tensorflow.python.tools import saved_model_cli; "
        "saved_model_cli.main()"
    )
    run_alone(
        *("-c", program, "run", "--dir", exported, "--outdir", tmp_path),
        *("--tag_set", "serve", "--signature_def", "serving_default"),
        *("--input_exprs", f"text={SOURCES[:1]}"),
    )
    translation = np.load(tmp_path / "translation.npy", allow_pickle=True)
    assert decoded(translation) == TARGETS[:1]


@pytest.mark.slow  # as test_terms.py shows of the ops that both consist of
@pytest.mark.parametrize("jit_compile", [False, True])
def test_terms_are_served_as_they_are_live(translator, jit_compile, tmp_path):
    emoji = "\N{SLICE OF PIZZA}"
    terms = kt.translator.Terms({"dog": "Rad", "C/.+": "x"}, keep=["url", "emoji"])
    texts = [*TEXTS, "dog " * 8, f"a man {emoji} http://x.org/{emoji}", "Dog dog"]
    settings = {"jit_compile": jit_compile, "terms": terms}
    path = translator.export(tmp_path / "1", SEARCH, **settings)
    signatures = tf.saved_model.load(path).signatures
    live = translator.translate_n_best(texts, SEARCH, terms=terms)
    found = signatures["translate_n_best"](tf.constant(texts))
    assert [[one.text for one in row] for row in live] == [
        [text.decode() for text in row] for row in found["translations"].numpy()
    ]
    scores = [[one.score for one in row] for row in live]
    np.testing.assert_allclose(found["scores"], scores, 1e-4, 1e-5)
    best = signatures["serving_default"](tf.constant(texts[-2:]))["translation"]
    assert f"http://x.org/{emoji}" in best.numpy()[0].decode()
    # Ids have no text to find terms in.
    ids, _ = translator.encode(texts)
    found = signatures["translate_ids"](source_ids=ids)
    plain = translator.translate_n_best(texts, SEARCH)
    scores = [best.score for best, _ in plain]
    np.testing.assert_allclose(found["score"], scores, 1e-4, 1e-5)
