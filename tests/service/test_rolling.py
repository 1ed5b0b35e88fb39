"""Rolling from one version to another and back, under load.

The test does what Kubernetes does to the containers of a Deployment: it starts the new
one, sends it requests once it is ready, and then ends the old one, which clients go on
asking until they learn that it ends.
"""

import http.client
import json
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from interop.random_translator import make_translator
from service.process import Service

import keras_transformer as kt

pytest.importorskip("ctranslate2")

from keras_transformer.interop.ctranslate2_translator import CTranslate2Translator

TEXTS = [f"{a} {b}" for a in ("a", "two", "five", "one") for b in ("dog", "tree")]
PATH = "/v1/models/en-de:predict"
CLIENTS = range(6)
TIMEOUT = 60  # seconds
DRAIN_SECONDS = 5


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """Folders of two translators, each with what it says of each text."""
    found = []
    for length in (5, 8):
        translator = make_translator()
        processors = [kt.decoding.NoRepeatNgram(1), kt.decoding.MinimumLength(length)]
        translator.search = kt.decoding.BeamSearch(2, processors=processors)
        folder = tmp_path_factory.mktemp("rolling") / "saved"
        translator.save(folder)
        translator.export(folder.parent / "alone", None, format="ctranslate2")
        alone = CTranslate2Translator(folder.parent / "alone")
        said = {text: alone.translate_n_best([text])[0][0].text for text in TEXTS}
        found.append((folder, said))
    (_, old), (_, new) = found
    assert all(old[text] != new[text] for text in TEXTS)
    return found


def start(folder, drain_seconds=DRAIN_SECONDS):
    """Returns a service that is ready."""
    options = "--engine", "ctranslate2", "--drain-seconds", drain_seconds
    service = Service(f"en:de={folder}", *options)
    assert is_ready(service)
    return service


def is_ready(service):
    """Asks as a readiness probe does."""
    connection = connect(service)
    connection.request("GET", "/readyz")
    status = connection.getresponse().status
    connection.close()
    assert status in (200, 503)
    return status == 200


def connect(service):
    address = urlsplit(service.address).netloc
    return http.client.HTTPConnection(address, timeout=TIMEOUT)


def wait_until(is_true):
    deadline = time.monotonic() + TIMEOUT
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Answer(NamedTuple):
    begin: float
    client: int
    service: Service
    text: str
    translation: str


class Load:
    """Clients that send requests without pause.

    Every other client opens a connection for each request. The rest keep theirs, as
    programs with a pool of connections do, until the service closes it.

    Attributes:
        services: Where connections go, as behind a Service of Kubernetes.
        answers: What the clients have got.
        failures: What they have got instead.
    """

    def __init__(self, service):
        self.services, self.answers, self.failures = [service], [], []
        self._is_over = threading.Event()

    def run(self, client):
        connection = None
        while not self._is_over.is_set():
            if connection is None:
                service = random.choice(self.services)
                connection = connect(service)
            text, begin = random.choice(TEXTS), time.monotonic()
            try:
                translation = _ask(connection, text, keep=client % 2)
                answer = Answer(begin, client, service, text, translation)
                self.answers.append(answer)
            except (OSError, http.client.HTTPException) as error:
                self.failures.append((client, repr(error)))
                connection.close()
            if connection.sock is None:
                connection = None
        if connection is not None:
            connection.close()

    def stop(self):
        self._is_over.set()

    def since(self, begin):
        """Returns the answers to requests that began later than this."""
        return [answer for answer in self.answers[:] if answer.begin > begin]

    def wait_for(self, service):
        """Waits until a service answers a request that begins now or later."""
        now = time.monotonic()
        wait_until(lambda: any(x.service is service for x in self.since(now)))

    def next_of_each(self):
        """Returns answers to requests that begin now or later, some of each client."""
        now = time.monotonic()
        wait_until(lambda: {x.client for x in self.since(now)} == {*CLIENTS})
        return self.since(now)


def _ask(connection, text, keep):
    headers = {} if keep else {"Connection": "close"}
    connection.request("POST", PATH, json.dumps({"instances": [text]}), headers)
    response = connection.getresponse()
    body = response.read()
    if response.status != 200:
        raise http.client.HTTPException(response.status, body)
    return json.loads(body)["predictions"][0]["translation"]


@contextmanager
def loaded(service):
    """Context manager that yields the load of a service."""
    load = Load(service)
    with ThreadPoolExecutor(len(CLIENTS)) as pool:
        running = [pool.submit(load.run, client) for client in CLIENTS]
        try:
            yield load
        finally:
            load.stop()
    for each in running:
        each.result()


def roll(load, old, folder):
    """Returns the service that is started in place of another, under load."""
    new = start(folder)
    load.services.append(new)
    load.wait_for(new)
    old.process.send_signal(signal.SIGTERM)
    wait_until(lambda: not is_ready(old))
    load.wait_for(old)  # clients have not learned it yet
    load.services.remove(old)
    assert old.wait() == (0, "")
    return new


@pytest.mark.slow
def test_rolling_forward_and_back_under_load_fails_no_request(versions):
    (old_folder, said_by_old), (new_folder, said_by_new) = versions
    first = start(old_folder)
    with loaded(first) as load:
        load.next_of_each()
        second = roll(load, first, new_folder)
        assert {x.service for x in load.next_of_each()} == {second}
        third = roll(load, second, old_folder)
        assert {x.service for x in load.next_of_each()} == {third}
    assert third.stop() == (0, "")
    assert not load.failures
    said = {first: said_by_old, second: said_by_new, third: said_by_old}
    assert all(x.translation == said[x.service][x.text] for x in load.answers)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_another_signal_ends_the_draining(versions, number):
    (folder, _), _ = versions
    service = start(folder, drain_seconds=10 * TIMEOUT)
    service.process.send_signal(signal.SIGTERM)
    wait_until(lambda: not is_ready(service))
    assert service.stop(number) == (0, "")
