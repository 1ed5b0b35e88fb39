import random
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import grpc
import numpy as np
import pytest
from serving.prediction_service import PREPARATIONS, client, serve
from serving.server_messages import read_batching_parameters
from serving.tiny_translator import SOURCES, make_translator

import keras_transformer as kt

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("two_padded_lengths")]
SEARCH = kt.decoding.BeamSearch(2, num_hypotheses=2)
NUM_CLIENTS = 64
MAX_BATCH_SIZE = 4
LENGTHS = ["a dog", "a dog rides two bike plays five tree falls"]  # 16 and 20
HOSTILE = [
    b"",
    b" \xe3\x80\x80",
    b"<s> </s> <pad> <unk> \xe2\x96\x81",
    b"\0 tree",
    b"\xff\xfe a dog \xc3(",
    b"\xff" * 2**20,
    b"\0" * 2**20,
    b"x" * 2**20,
    "\N{GRINNING FACE}".encode() * 10_000,
    "\N{RIGHT-TO-LEFT OVERRIDE}שלום \N{COMBINING ACUTE ACCENT}".encode() * 10_000,
]
TEXTS = [*(text.encode() for text in (*SOURCES[::5], *LENGTHS)), *HOSTILE]
REFUSED = [
    ("no-such", {"text": ["a dog"]}, "not found"),
    ("serving_default", {"texts": ["a dog"]}, "input keys are"),
    ("serving_default", {"text": [5]}, "must be string"),
    ("serving_default", {"text": "a dog"}, "at least one dimension|[Ss]hape"),
    ("score", {"text": ["a", "b"], "target": ["c"]}, "0th-dim|the same length"),
]


class Server(NamedTuple):
    """A server that is warm, and its answers to requests of one text."""

    predict: Callable
    log: Path
    prepared: list
    alone: dict


def preparations(log):
    """Returns how many graphs were optimized, and how many programs compiled."""
    text = log.read_text("utf-8", "replace")
    return [text.count(line) for line in PREPARATIONS]


def rows_of(inputs, chosen):
    """Returns some rows of the inputs of a signature."""
    return {name: values[chosen] for name, values in inputs.items()}


@pytest.fixture(scope="module")
def translator():
    return make_translator(updates=60, normalize_first=True)


@pytest.fixture(scope="module")
def inputs(translator):
    """Returns the inputs of each signature, with a row for each of `TEXTS`."""
    source_ids = translator.encode(TEXTS)[0].numpy()
    # All of one length, since a server puts them into a batch as they are.
    missing = translator.max_source_length - source_ids.shape[1]
    source_ids = np.pad(source_ids, [(0, 0), (0, missing)])
    texts = np.array(TEXTS, dtype=object)
    return {
        "serving_default": {"text": texts},
        "translate_n_best": {"text": texts},
        "translate_ids": {"source_ids": source_ids},
        "score": {"text": texts, "target": texts[::-1]},
        "align": {"text": texts, "target": texts[::-1]},
        "translate_aligned": {"text": texts},
    }


@pytest.fixture(scope="module", params=["graph", "graph-batched", "xla-batched"])
def server(request, translator, inputs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    with pytest.MonkeyPatch.context() as patch:
        module = "keras_transformer.serving.server_files"
        patch.setattr(f"{module}.MAX_BATCH_SIZE", MAX_BATCH_SIZE)
        patch.setattr(f"{module}.COMPILED_SIZES", (1, 2, MAX_BATCH_SIZE))
        jit_compile = request.param.startswith("xla")
        path = translator.export(folder / "1", SEARCH, jit_compile=jit_compile)
    batching = None
    if request.param.endswith("batched"):
        batching = read_batching_parameters(path / "batching_params.pbtxt")
    log = folder / "log"
    with (
        log.open("w") as file,
        serve(path, batching, file) as address,
        client(address) as predict,
    ):
        prepared = preparations(log)
        alone = {
            signature: [
                predict(signature, **rows_of(values, [row]))
                for row in range(len(TEXTS))
            ]
            for signature, values in inputs.items()
        }
        yield Server(predict, log, prepared, alone)


def assert_is_as_alone(found, alone):
    """Compares the rows of an answer with those of requests of one text each."""
    for name, values in found.items():
        for value, one in zip(values, alone, strict=True):
            (expected,) = one[name]
            if name in ("ids", "weights"):  # padded to the longest in its batch
                value, expected = np.trim_zeros(value), np.trim_zeros(expected)
            if name == "spans":
                value, expected = (x[x.any(axis=1)] for x in (value, expected))
            if values.dtype == np.float32:
                np.testing.assert_allclose(value, expected, 1e-4, 1e-5)
            else:
                np.testing.assert_array_equal(value, expected)


def ask(server, inputs, seed):
    """Sends requests of a client and checks the answers; some have to be refused."""
    draw = random.Random(seed)
    for _ in range(5):
        signature = draw.choice(list(inputs))
        chosen = draw.choices(range(len(TEXTS)), k=draw.randint(1, MAX_BATCH_SIZE))
        found = server.predict(signature, **rows_of(inputs[signature], chosen))
        assert_is_as_alone(found, [server.alone[signature][row] for row in chosen])
        signature, wrong, message = draw.choice(REFUSED)
        with pytest.raises(grpc.RpcError, match=message) as refused:
            server.predict(signature, **wrong)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.slow
def test_a_server_gives_the_live_translations(server, translator):
    # A translator reads str, which cannot hold bytes that are no UTF-8.
    texts = {
        row: text.decode()
        for row, text in enumerate(TEXTS)
        if text.decode("utf-8", "replace").encode() == text
    }
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*were cut", UserWarning)
        live = translator.translate_n_best(list(texts.values()), SEARCH)
    for row, best_first in zip(texts, live, strict=True):
        (served,) = server.alone["translate_n_best"][row]["translations"]
        assert [one.text.encode() for one in best_first] == served.tolist()


@pytest.mark.slow
def test_no_request_is_compiled_for_after_the_warm_up(server, inputs):
    lengths = [TEXTS.index(text.encode()) for text in LENGTHS]
    for signature, values in inputs.items():
        for size in range(1, MAX_BATCH_SIZE + 1):
            for chosen in (*([row] * size for row in lengths), range(size)):
                server.predict(signature, **rows_of(values, list(chosen)))
    num_optimized, num_compiled = server.prepared
    assert num_optimized
    assert preparations(server.log) == [num_optimized, num_compiled]


@pytest.mark.slow
def test_many_clients_get_what_each_text_gets_alone(server, inputs):
    with ThreadPoolExecutor(NUM_CLIENTS) as clients:
        list(clients.map(lambda seed: ask(server, inputs, seed), range(NUM_CLIENTS)))
    assert preparations(server.log) == server.prepared
