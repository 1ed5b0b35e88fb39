"""`keras-transformer serve`: what is typed, and the service as others see it."""

import json
import os
import re
import signal
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from interop.random_translator import make_translator
from libretranslatepy import LibreTranslateAPI
from service.process import Service
from typer.testing import CliRunner

import keras_transformer as kt
from keras_transformer.cli import app

pytest.importorskip("ctranslate2")

from keras_transformer.interop.ctranslate2_translator import CTranslate2Translator

VARIABLE = "KERAS_TRANSFORMER_KSERVE"
TEXTS = [f"{a} {b}" for a in ("a", "two", "five", "one") for b in ("dog", "tree")]


def one_line(*arguments):
    result = CliRunner().invoke(app, ["serve", *map(str, arguments)])
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    return line


@pytest.fixture
def run(tmp_path):
    """Folder of a run that is no more than its languages."""
    settings = "data:\n  source: en\n  target: de\n"
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "settings.yaml").write_text(settings)
    return tmp_path / "run"


def test_what_cannot_be_served_is_refused_before_anything_is_loaded(run, tmp_path):
    saved = tmp_path / "saved"
    saved.mkdir()
    assert re.search("saved has no recipe .* en:de=.*saved", one_line(saved))
    assert "no-such does not exist" in one_line("en:de=no-such")
    assert "both translate from en to de" in one_line(run, f"en:de={saved}")
    assert "`waiting` must be at least" in one_line(run, "--max-waiting", 5)


def test_terms_need_tensorflow(run):
    for option in ("--keep", "--glossary"):
        arguments = ["serve", str(run), option, "url", "--engine", "ctranslate2"]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 2
        assert f"{option}: needs TensorFlow" in " ".join(result.stderr.split())


def test_an_address_that_is_taken_is_refused(run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = one_line(run, "--port", port)
    assert re.search(f"Cannot listen on --host 127.0.0.1 --port {port}: .*in use", line)
    assert "--host no/such" in one_line(run, "--host", "no/such", "--port", 0)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Folder of a translator whose texts are not empty."""
    translator = make_translator()
    processors = [kt.decoding.NoRepeatNgram(1), kt.decoding.MinimumLength(5)]
    translator.search = kt.decoding.BeamSearch(4, processors=processors)
    folder = tmp_path_factory.mktemp("serve") / "saved"
    translator.save(folder)
    return folder


@pytest.fixture(scope="module")
def service(saved):
    """A service of two directions, of one translator."""
    models = f"en:de={saved}", f"de:en={saved}"
    service = Service(*models, "--engine", "ctranslate2", "--max-seconds", "20")
    yield service
    assert service.stop()[0] == 0


@pytest.fixture(scope="module")
def alone(saved, service):
    """The translation of each text, without the service."""
    (folder,) = (x for x in (saved / "ctranslate2").iterdir() if x.is_dir())
    found = CTranslate2Translator(folder)
    return {text: found.translate_n_best([text])[0][0].text for text in TEXTS}


@pytest.mark.slow
def test_libretranslates_client_translates(service, alone):
    client = LibreTranslateAPI(service.address)
    assert client.translate(TEXTS[0], "en", "de") == alone[TEXTS[0]]
    text = "\n".join(TEXTS[:3])
    expected = "\n".join(alone[each] for each in TEXTS[:3])
    assert client.translate(text, "de", "en") == expected
    assert [each["code"] for each in client.languages()] == ["en", "de"]


@pytest.mark.slow
def test_keys_hosts_and_the_access_log_are_as_asked_for(saved, alone, monkeypatch):
    monkeypatch.setenv("KERAS_TRANSFORMER_API_KEY", "one two")
    service = Service(f"en:de={saved}", "--engine", "ctranslate2", "--access-log")
    body = {"q": TEXTS[0], "source": "en", "target": "de"}
    found = service.post("translate?api_key=two", body)
    assert found["translatedText"] == alone[TEXTS[0]]
    with pytest.raises(urllib.error.HTTPError, match="403"):
        service.post("translate", body)
    request = urllib.request.Request(service.address, headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError, match="400"):
        urllib.request.urlopen(request)
    status, log = service.stop()
    assert status == 0
    assert re.findall(r"POST '/translate' (\d+) 0\.\d+ s \w{32}\n", log) == [
        "200",
        "403",
    ]
    assert "two" not in log


@pytest.mark.slow
def test_64_clients_at_once_get_what_they_get_alone(service, alone):
    texts = TEXTS * 8
    begin = threading.Barrier(64)

    def ask(text):
        begin.wait()
        answer = service.post("v1/models/en-de:predict", {"instances": [text]})
        return answer["predictions"][0]["translation"]

    with ThreadPoolExecutor(64) as pool:
        assert list(pool.map(ask, texts)) == [alone[text] for text in texts]


@pytest.mark.slow
@pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} is not set")
def test_kserves_client_predicts(service, alone):
    program = """
import asyncio, json, sys
from kserve import InferenceRESTClient, RESTConfig

async def main(address, texts):
    client = InferenceRESTClient(RESTConfig(protocol="v1"))
    found = await client.infer(address, {"instances": texts}, model_name="en-de")
    print(json.dumps(found["predictions"]))
    ready = await client.is_model_ready(address, "en-de")
    assert ready is True
    try:
        await client.infer(address, {"instances": 5}, model_name="en-de")
    except Exception as error:
        print(error)

asyncio.run(main(sys.argv[1], sys.argv[2:]))
"""
    command = [os.environ[VARIABLE], "-c", program, service.address, *TEXTS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found, error = done.stdout.splitlines()
    translations = [row["translation"] for row in json.loads(found)]
    assert translations == [alone[text] for text in TEXTS]
    assert "`instances` must be a list of one or more rows. Received: 5" in error


HEAD = "POST /translate HTTP/1.1\r\nHost: localhost\r\n"
HOSTILE = {
    "no HTTP": "\0\xff" * 999,
    "a long header": HEAD + "a: " + "b" * 100_000,
    "a wrong length": HEAD + "Content-Length: -5\r\n\r\n{}",
    "two lengths": HEAD + "Content-Length: 5\r\nContent-Length: 7\r\n\r\n{}",
    "a length that is too large": HEAD
    + "Content-Length: 99999999999\r\n\r\n{"
    + "a" * 2**21,
    "a wrong chunk": HEAD + "Transfer-Encoding: chunked\r\n\r\nx\r\n",
    "a cut chunk": HEAD + "Transfer-Encoding: chunked\r\n\r\nff\r\n{",
    "half a request": HEAD + "Content-Length: 5\r\n\r\n{",
    "half a head": HEAD,
}


@pytest.mark.slow
def test_hostile_connections_leave_the_service_as_it_was(service, alone):
    host, port = re.search(r"//(.+):(\d+)/", service.address).groups()
    for name, data in HOSTILE.items():
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            try:
                connection.sendall(data.encode("latin-1"))
                connection.shutdown(socket.SHUT_WR)
                answer = b"".join(iter(lambda c=connection: c.recv(65536), b""))
            except (BrokenPipeError, ConnectionResetError):
                answer = b""
        assert b"Traceback" not in answer, name
        assert not answer or answer.startswith(b"HTTP/1.1 4"), (name, answer)
    found = service.post("translate", {"q": TEXTS[0], "source": "en", "target": "de"})
    assert found["translatedText"] == alone[TEXTS[0]]
    assert set(service.lines) <= {"WARNING:  Invalid HTTP request received.\n"}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_requests_in_work_are_answered_before_the_service_stops(saved, alone, number):
    options = ("--engine", "ctranslate2", "--max-texts", 1024)
    service = Service(f"en:de={saved}", *options)
    assert not service.before  # it is exported already
    libraries = Path(f"/proc/{service.process.pid}/maps").read_text()
    assert "/ctranslate2" in libraries
    assert "/tensorflow" not in libraries
    with ThreadPoolExecutor(1) as pool:
        body = {"instances": TEXTS * 100}
        asked = pool.submit(service.post, "v1/models/en-de:predict", body)
        while not asked.done() and not service.num_waiting():
            pass
        stopped = service.stop(number)
    found = [row["translation"] for row in asked.result()["predictions"]]
    assert found == [alone[text] for text in TEXTS] * 100
    assert stopped == (0, "")


@pytest.mark.slow
def test_a_run_is_served_by_its_recipes_languages_on_tensorflow(trained_by_the_shell):
    run = trained_by_the_shell / "run"
    service = Service(run, "--engine", "tensorflow")
    texts = ["ba ko", "ri sa to", "", "ze"] * 5
    found = service.post("v1/models/aa-bb:predict", {"instances": texts})
    assert service.stop() == (0, "")
    translator = kt.runs.Run(run).translator()
    assert [row["translation"] for row in found["predictions"]] == translator.translate(
        texts
    )
