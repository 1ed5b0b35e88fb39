import warnings
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from serving.batching_parameters import read_batching_parameters
from serving.prediction_service import client, serve
from serving.tiny_translator import SOURCES, make_translator

import keras_transformer as kt

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("two_padded_lengths")]
NUM_CLIENTS = 64
LONG = "a dog rides two bike plays five tree falls"
HOSTILE = [
    b"\xff" * 2**14,
    b"\0" * 2**14,
    b"x" * 2**14,
    "\N{RIGHT-TO-LEFT OVERRIDE}שלום \N{COMBINING ACUTE ACCENT}".encode() * 1000,
]
TEXTS = [*(text.encode() for text in (*SOURCES, LONG, "", " \u3000")), *HOSTILE]
REFUSED = [
    ("no-such", {"text": ["a dog"]}, "not found"),
    ("serving_default", {"texts": ["a dog"]}, "input keys are"),
    ("serving_default", {"text": [5]}, "must be string"),
]


@pytest.fixture(scope="module")
def translator():
    return make_translator(updates=60, normalize_first=True)


@pytest.fixture(scope="module")
def exported(translator, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "en-de" / "1"
    return translator.export(path, kt.decoding.GreedySearch())


@pytest.fixture(scope="module")
def batching(exported):
    return read_batching_parameters(exported / "batching_params.pbtxt")


@pytest.fixture(scope="module")
def live(translator):
    """Returns the translation of each of `TEXTS` by the translator itself."""
    texts = [text.decode("utf-8", "replace") for text in TEXTS]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*were cut", UserWarning)
        found = translator.translate(texts, kt.decoding.GreedySearch())
    return dict(zip(TEXTS, (text.encode() for text in found), strict=True))


def ask(predict, live, first):
    """Sends requests of 1 to 5 texts, others that are refused; counts right answers."""
    num_right = 0
    for size in range(1, 6):
        texts = [TEXTS[(7 * first + size * i) % len(TEXTS)] for i in range(size)]
        found = predict("serving_default", text=texts)["translation"]
        num_right += sum(
            live[text] == one for text, one in zip(texts, found, strict=True)
        )
        signature, inputs, message = REFUSED[(first + size) % len(REFUSED)]
        with pytest.raises(grpc.RpcError, match=message) as refused:
            predict(signature, **inputs)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    return num_right


@pytest.mark.parametrize("is_batched", [True, False])
def test_many_clients_get_the_live_translations(exported, batching, live, is_batched):
    with (
        serve(exported, batching if is_batched else None) as address,
        client(address) as predict,
        ThreadPoolExecutor(NUM_CLIENTS) as clients,
    ):
        # As after the warm-up of a server.
        predict("serving_default", text=["a dog"])
        num_right = clients.map(
            lambda first: ask(predict, live, first), range(NUM_CLIENTS)
        )
        assert list(num_right) == [15] * NUM_CLIENTS
