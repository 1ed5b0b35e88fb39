import asyncio
import json
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from service.served import Gated, ask_together, assert_error, client_of
from serving.tiny_translator import make_translator
from starlette.testclient import TestClient

from keras_transformer.service import Limits, make_app
from keras_transformer.service.batching import BatchingThread
from keras_transformer.translator import Terms

TEXTS = [f"{number} {noun}" for number in ("two", "five") for noun in ("dog", "bike")]
PREDICT = "/v1/models/en-de:predict"
TRANSLATE = {"source": "en", "target": "de"}


@pytest.fixture
def gated(engine):
    gated = Gated(engine)
    yield gated
    gated.gate.set()


def post(client, texts, path=PREDICT):
    return asyncio.ensure_future(client.post(path, json={"instances": texts}))


def test_many_clients_at_once_get_what_they_get_alone(engine, gated):
    texts = [
        f"{a} {b} plays" for a in ("a", "two", "five") for b in ("dog", "tree")
    ] * 11
    alone = {text: engine.translate_n_best([text])[0][0].text for text in texts}

    async def ask(client):
        asked = [post(client, [text]) for text in texts]
        await asyncio.to_thread(gated.has_begun.wait, 60)
        gated.gate.set()
        return await asyncio.gather(*asked)

    answers = ask_together(gated, ask)
    found = [x.json()["predictions"][0]["translation"] for x in answers]
    assert found == [alone[text] for text in texts]
    assert len(gated.batches) <= 4  # of 32 texts at most


def test_a_full_queue_refuses_and_says_when_to_come_again(gated):
    async def ask(client):
        running = post(client, TEXTS[:1])
        await asyncio.to_thread(gated.has_begun.wait, 60)
        waiting = post(client, TEXTS[1:])
        shown = ""
        while 'waiting_texts{model="en-de"} 3.0' not in shown and not waiting.done():
            await asyncio.sleep(0)  # a request in this process may never yield
            shown = (await client.get("/metrics")).text
        refused = await client.post(PREDICT, json={"instances": TEXTS[:1]})
        gated.gate.set()
        return refused, await running, await waiting

    refused, *others = ask_together(gated, ask, Limits(texts=3, waiting=3))
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    assert_error(refused, "At most 3 texts may wait for en-de")
    assert [other.status_code for other in others] == [200, 200]


def test_what_takes_too_long_is_given_up_and_not_translated_later(gated):
    service = client_of(gated, Limits(seconds=0.1))
    with service as client, ThreadPoolExecutor(1) as pool:
        running = pool.submit(client.post, PREDICT, json={"instances": TEXTS[:1]})
        assert gated.has_begun.wait(60)
        waiting = client.post(PREDICT, json={"instances": TEXTS[1:]})
        gated.gate.set()
    for response, count in ((running.result(), 1), (waiting, 3)):
        assert response.status_code == 504
        assert_error(response, f"{count} texts were not translated in 0.1 seconds")
    assert gated.batches == [TEXTS[:1]]


def test_a_body_is_refused_while_it_arrives(engine):
    num_read = 0

    async def large():
        nonlocal num_read
        for _ in range(100):
            num_read += 1
            yield b"[" * 1000

    async def ask(client):
        return await client.post(PREDICT, content=large())

    response = ask_together(engine, ask, Limits(body_bytes=5000))
    assert response.status_code == 413
    assert_error(response, "at most 5000 bytes")
    assert num_read == 6


def test_a_body_that_does_not_arrive_is_given_up(engine):
    async def stalling():
        yield b"["
        await asyncio.Event().wait()

    async def ask(client):
        return await client.post("/translate", content=stalling())

    response = ask_together(engine, ask, Limits(seconds=0.1))
    assert response.status_code == 408
    assert_error(response, "did not arrive in 0.1 seconds")


HOSTILE = {
    "nothing": b"",
    "no JSON": b"{'q': 'a'}",
    "half": b'{"q": "a',
    "no UTF-8": b"\xff\xfe\x00",
    "nested": b"[" * 100_000,
    "nested objects": b'{"q":' * 50_000,
    "nested in order": b'{"q": ' + b"[" * 500 + b"]" * 500 + b"}",
    "number": b"1" * 5000,
    "large number": b'{"instances": ' + b"9" * 4000 + b"}",
    "infinity": b'{"q": Infinity, "source": NaN}',
    "list": b"[]",
    "null": b"null",
    "surrogates": b'{"signature_name": "\\ud800", "q": "a", "source": "\\udc00"}',
    "line feeds": b'{"signature_name": "a\\nb", "q": "a", "target": "a\\nb"}',
    "zeros": b"\0" * 999,
}


@pytest.mark.parametrize("path", [PREDICT, "/translate"])
@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_hostile_bodies_are_answered_in_a_line(engine, path, body):
    response = client_of(engine).post(path, content=body)
    assert response.status_code == 400
    assert_error(response, "")


def test_hostile_texts_are_translated(engine):
    texts = ["\ud800", "\0", "a\u2028b", "\U0010ffff", "\u202e", "<script>", "%s{0}\\"]
    client = client_of(engine)
    response = client.post(PREDICT, json={"instances": texts[1:]})
    assert len(response.json()["predictions"]) == 6
    surrogate = client.post(PREDICT, content=b'{"instances": ["\\ud800 a"]}')
    assert surrogate.status_code == 200
    kept = b'{"q": "<b \\ud800>a", "source": "en", "target": "de", "format": "html"}'
    assert (
        client.post("/translate", content=kept).json()["translatedText"][:5] == "<b ?>"
    )


def test_a_fault_is_answered_without_its_traceback(engine, caplog):
    class Broken(Gated):
        def translate_n_best(self, texts):
            raise RuntimeError("secret")

    response = client_of(Broken(engine)).post(PREDICT, json={"instances": ["a"]})
    assert response.status_code == 500
    assert_error(response, "the log of the service says why")
    assert "secret" not in response.text
    assert response.headers["x-request-id"] in caplog.text


def test_metrics_count_requests_texts_and_batches(engine):
    with client_of(engine) as client:
        client.post(PREDICT, json={"instances": TEXTS})
        client.post("/translate", json={"q": "a", "source": "en", "target": "xx"})
        client.get("/no/such/path")
        text = client.get("/metrics").text
    found = dict(re.findall(r"^keras_transformer_(\S+) (\S+)$", text, re.MULTILINE))
    assert found['batch_texts_sum{model="en-de"}'] == "4.0"
    assert found['batch_texts_count{model="en-de"}'] == "1.0"
    assert found['waiting_texts{model="en-de"}'] == "0.0"
    assert float(found['characters_total{model="en-de"}']) == sum(map(len, TEXTS))
    buckets = re.findall(r'seconds_bucket{le="([^"]+)",model="en-de"', text)
    assert buckets[-2:] == ["60.0", "+Inf"]
    counts = {
        ("en-de", "predict", 200): "1.0",
        ("none", "translate", 400): "1.0",
        ("none", "none", 404): "1.0",
    }
    for (model, route, status), count in counts.items():
        labels = f'{{model="{model}",route="{route}",status="{status}"}}'
        assert found[f"request_seconds_count{labels}"] == count


def test_the_service_says_that_it_is_up(engine):
    assert client_of(engine).get("/healthz").json() == {"status": "ok"}


def test_a_service_that_drains_answers_and_closes_connections(engine):
    client = client_of(engine)
    ready = client.get("/readyz")
    assert ready.status_code == 200
    assert "connection" not in ready.headers
    client.app.state.is_draining = True
    statuses = {"/readyz": 503, "/healthz": 200, "/v1/models/en-de": 200, "/no": 404}
    for path, status in statuses.items():
        found = client.get(path)
        assert (found.status_code, found.headers["connection"]) == (status, "close")
    assert_error(client.get("/readyz"), "about to stop")
    assert client.post(PREDICT, json={"instances": ["a"]}).status_code == 200


def test_a_request_keeps_its_name_and_the_log_tells_of_it(engine, caplog):
    caplog.set_level("INFO", "keras_transformer.service.app")
    client = client_of(engine)
    named = client.get("/healthz?q=secret", headers={"X-Request-ID": "a-1"})
    assert named.headers["x-request-id"] == "a-1"
    others = [
        client.get("/no", headers={"X-Request-ID": x}) for x in ("", "a b", b"\xff")
    ]
    names = [one.headers["x-request-id"] for one in others]
    assert all(re.fullmatch("[0-9a-f]{32}", name) for name in names)
    assert len({*names}) == 3
    first, *rest = caplog.messages
    assert re.fullmatch(r"testclient GET '/healthz' 200 0\.\d+ s a-1", first)
    assert [line.split()[-1] for line in rest] == names
    assert "secret" not in caplog.text


def test_a_thread_that_died_is_told_and_starts_again(engine, monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda *_: None)
    client = client_of(engine)
    body = {"instances": ["a"]}
    with monkeypatch.context() as broken:
        broken.setattr(BatchingThread, "_compute", lambda *_: sys.exit())
        with client_of(engine, Limits(seconds=0.1)) as dying:
            assert dying.post(PREDICT, json=body).status_code == 504
            assert dying.post(PREDICT, json=body).status_code == 504
            refused = dying.get("/readyz")
    assert refused.status_code == 503
    assert_error(refused, "The translator of en-de has died, and is restarting")
    assert dying.get("/readyz").status_code == 200
    assert dying.post(PREDICT, json=body).status_code == 200
    assert client.get("/readyz").status_code == 200


def test_a_key_is_needed_if_there_are_keys(engine):
    app = make_app({("en", "de"): engine}, api_keys=["one", "two"])
    client = TestClient(app)
    body = {"q": "a", "source": "en", "target": "de"}
    wrong = [{}, {"api_key": "three"}, {"api_key": ["one"]}, {"api_key": "\ud800"}]
    for given in wrong:
        content = json.dumps({**body, **given})
        refused = client.post("/translate", content=content)
        assert refused.status_code == 403
        assert_error(refused, "A key is needed: `api_key`, or the header")
    assert client.post("/translate", json={**body, "api_key": "two"}).status_code == 200
    assert client.get("/languages").status_code == 200
    assert client.get("/readyz").status_code == 200
    assert client.post(PREDICT, json={"instances": ["a"]}).status_code == 403
    header = {"Authorization": "bearer one"}
    found = client.post(PREDICT, json={"instances": ["a"]}, headers=header)
    assert found.status_code == 200


def test_other_sites_and_other_hosts_are_refused_unless_they_are_allowed(engine):
    hosts, origins = ["localhost", "127.0.0.1", "[::1]"], ["https://a.example"]
    app = make_app({("en", "de"): engine}, None, None, (), origins, hosts)
    for host, status in (
        ("localhost:8501", 200),
        ("127.0.0.1", 200),
        ("b.example", 400),
    ):
        client = TestClient(app, base_url=f"http://{host}")
        assert client.get("/readyz").status_code == status
    client = TestClient(app, base_url="http://localhost")
    for origin, is_allowed in (
        ("https://a.example", True),
        ("https://b.example", False),
    ):
        asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        asked["Access-Control-Request-Headers"] = "content-type"
        found = client.options("/translate", headers=asked)
        assert ("access-control-allow-origin" in found.headers) == is_allowed


def test_terms_are_in_every_translation():
    terms = Terms({"dog": "Köter"}, keep=["number"])
    translator = make_translator()
    app = make_app({("en", "de"): translator}, terms=terms)
    with TestClient(app) as client:
        found = client.post(PREDICT, json={"instances": ["a dog 12", "a man"]})
    one, other = (row["translation"] for row in found.json()["predictions"])
    assert "Köter" in one
    assert "12" in one
    assert "Köter" not in other


def test_no_language_can_break_the_page(engine):
    app = make_app({("en", "</script><b>"): engine})
    page = TestClient(app).get("/").text
    assert page.count("</script>") == 2
    assert "\\u003c/script>" in page


@pytest.mark.parametrize("name", ["texts", "characters", "body_bytes", "batch"])
def test_limits_must_be_positive_integers(name):
    with pytest.raises(ValueError, match=f"`{name}` must be a positive integer"):
        Limits(**{name: 0})


def test_limits_must_allow_what_they_promise():
    with pytest.raises(ValueError, match="`waiting` must be at least `texts`"):
        Limits(texts=5, waiting=3)
    for seconds in (0, float("nan"), "5"):
        with pytest.raises(ValueError, match="`seconds` must be a positive number"):
            Limits(seconds=seconds)
    with pytest.raises(ValueError, match="`translators` must hold at least one"):
        make_app({})
