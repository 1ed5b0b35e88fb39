"""The REST dialect of TensorFlow Serving and KServe."""

import pytest
from service.served import Aligning, assert_error, client_of
from serving.tiny_translator import make_translator

TEXTS = ["two dog plays", "a", "", "five tree rides"]


@pytest.fixture(scope="module")
def client(engine):
    with client_of(Aligning(engine)) as client:
        yield client


@pytest.fixture(scope="module")
def best(engine):
    return [
        {"translation": row[0].text, "score": row[0].score}
        for text in TEXTS
        for row in engine.translate_n_best([text])
    ]


def predict(client, **body):
    response = client.post("/v1/models/en-de:predict", json=body)
    assert response.headers["content-type"] == "application/json"
    assert list(response.json()) != ["error"], response.text
    return response.json()


def nearly(rows):
    """Returns rows that equal those whose scores another batch has rounded."""
    return [{**row, "score": pytest.approx(row["score"], abs=1e-5)} for row in rows]


@pytest.mark.parametrize(
    "instances",
    [TEXTS, [{"text": text} for text in TEXTS], [{"text": TEXTS[0]}, *TEXTS[1:]]],
    ids=["texts", "objects", "both"],
)
def test_rows_become_rows(client, best, instances):
    found = predict(client, instances=instances)
    assert found == {"predictions": nearly(best)}


@pytest.mark.parametrize("inputs", [TEXTS, {"text": TEXTS}], ids=["list", "object"])
def test_columns_become_columns(client, best, inputs):
    found = predict(client, inputs=inputs, signature_name="serving_default")
    assert found["outputs"]["translation"] == [row["translation"] for row in best]
    scores = [row["score"] for row in best]
    assert found["outputs"]["score"] == pytest.approx(scores, abs=1e-5)


def test_every_hypothesis_comes_with_its_score(client, engine):
    found = predict(client, instances=TEXTS[:1], signature_name="translate_n_best")
    (row,) = engine.translate_n_best(TEXTS[:1])
    scores = [x.score for x in row]
    assert len(scores) == 4
    assert found["predictions"] == [
        {
            "translations": [x.text for x in row],
            "scores": pytest.approx(scores, abs=1e-5),
            "flags": [[*x.flags] for x in row],
        }
    ]


def test_alignments_are_offsets_into_both_texts(client):
    rows = [{"text": "a dog", "target": "ein Hund"}, {"text": "a", "target": ""}]
    found = predict(client, instances=rows, signature_name="align")
    aligned = {"spans": [[0, 1, 0, 3], [2, 5, 4, 8]], "weights": [0.5, 0.5]}
    assert found["predictions"] == [aligned, {"spans": [], "weights": []}]
    columns = {"text": ["a dog", "a"], "target": ["ein Hund", ""]}
    found = predict(client, inputs=columns, signature_name="align")
    assert found["outputs"]["weights"] == [[0.5, 0.5], []]


def test_versions_and_labels_are_those_of_tensorflow_serving(client, best):
    for path in ("versions/1", "labels/stable"):
        found = client.post(
            f"/v1/models/en-de/{path}:predict", json={"instances": ["a"]}
        )
        assert found.json() == {"predictions": nearly(best[1:2])}
        status = client.get(f"/v1/models/en-de/{path}").json()
        assert status["model_version_status"][0]["state"] == "AVAILABLE"


def test_given_translations_are_scored():
    translator = make_translator()
    rows = [{"text": "a dog", "target": "ein Hund"}, {"text": "a", "target": "ein"}]
    with client_of(translator) as client:
        found = predict(client, instances=rows, signature_name="score")["predictions"]
    scores = translator.score(["a dog", "a"], ["ein Hund", "ein"])
    assert [row["tokens"] for row in found] == [score.tokens for score in scores]
    expected = [score.log_probability for score in scores]
    found = [row["log_probability"] for row in found]
    assert found == pytest.approx(expected, abs=1e-5)


def test_ids_are_translated_without_a_tokenizer():
    translator = make_translator()
    texts = ["five tree rides", "", "a"]
    rows = [[x for x in row if x] for row in translator.encode(texts)[0].numpy()]
    rows = [list(map(int, row)) for row in rows]
    with client_of(translator) as client:

        def ask(**body):
            return predict(client, signature_name="translate_ids", **body)

        found = ask(inputs={"source_ids": rows})["outputs"]
        assert ask(instances=rows) == ask(instances=[{"source_ids": x} for x in rows])
        in_rows = ask(instances=rows)["predictions"]
        long = ask(instances=[rows[0] * 99, [5, 99999]])["predictions"]
    assert [row["ids"] for row in in_rows] == found["ids"]
    assert len(set(map(len, found["ids"]))) == 1
    assert found["ids"][1] == [0] * len(found["ids"][0])
    decoded = translator.target_tokenizer.detokenize(found["ids"]).numpy()
    best = [row[0] for row in translator.translate_n_best(texts)]
    assert [x.decode() for x in decoded] == [x.text for x in best]
    assert found["score"] == pytest.approx([x.score for x in best], abs=1e-5)
    limit, unknown = (
        translator.max_source_length,
        translator.source_tokenizer.unknown_id,
    )
    cut = [*(rows[0] * 99)[: limit - 1], translator.source_tokenizer.end_id]
    expected = translator.translate_ids([cut, [5, unknown]])
    assert translator.translate_ids([]) == []
    assert translator.translate_ids([[]]) == [([], 0.0)]
    for row, (ids, score) in zip(long, expected, strict=True):
        assert [x for x in row["ids"] if x] == ids
        assert row["score"] == pytest.approx(score, abs=1e-5)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"instances": ["a"]}, r"`instances\[0\]` must be .*, each a list of ids"),
        ({"instances": [[5], [True]]}, r"`instances\[1\]` must be .*: a list"),
        ({"inputs": [5]}, r"`source_ids\[0\]` must be a list of ids. Received: 5"),
        ({"inputs": []}, "`source_ids` must be a list of one or more lists of ids"),
        ({"inputs": [[1 << 31]]}, r"`source_ids\[0\]` must be a list of ids"),
        ({"inputs": [[5] * 5001]}, "must have at most 5000 ids. Received: 5001"),
    ],
)
def test_what_are_no_ids_is_refused_in_a_line(body, message):
    body = {**body, "signature_name": "translate_ids"}
    response = client_of(make_translator()).post("/v1/models/en-de:predict", json=body)
    assert response.status_code in (400, 413)
    assert_error(response, message)


def test_models_say_that_they_are_ready_in_both_protocols(client):
    assert client.get("/v1/models").json() == {"models": ["en-de", "de-en"]}
    found = client.get("/v1/models/de-en").json()
    assert (found["name"], found["ready"]) == ("de-en", True)
    (version,) = found["model_version_status"]
    assert version["state"] == "AVAILABLE"
    assert version["status"] == {"error_code": "OK", "error_message": ""}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "either `instances`, a list of rows, or `inputs`"),
        ({"instances": ["a"], "inputs": ["a"]}, "either `instances`"),
        ({"instances": []}, "`instances` must be a list of one or more rows. .*a list"),
        ({"instances": "a"}, '`instances` must be a list .* Received: "a"'),
        ({"instances": ["a", 5]}, r"`instances\[1\]` must be .*`text`.* Received: 5"),
        ({"instances": [{"b64": "YQ=="}]}, r"`instances\[0\]` must be .*: an object"),
        ({"instances": [{"text": ["a"]}]}, r"`instances\[0\]` must be"),
        ({"inputs": "a"}, "`inputs` must be an object of `text`, lists of texts"),
        ({"inputs": {"text": "a"}}, '`text` must be a list .* Received: "a"'),
        ({"inputs": {"text": []}}, "`text` must be a list of one or more texts"),
        ({"inputs": {"text": ["a", None]}}, r"`text\[1\]` must be a text.*: null"),
        ({"inputs": {"text": ["a"], "x": ["a"]}}, "`inputs` must be an object"),
        (
            {"instances": ["a"], "signature_name": "score"},
            '`signature_name` must be `serving_default`, .*Received: "score"',
        ),
        ({"instances": ["a"], "signature_name": ["score"]}, "Received: a list"),
        (
            {"inputs": {"text": ["a"], "target": []}, "signature_name": "align"},
            "`target` must be a list of one or more",
        ),
        (
            {
                "inputs": {"text": ["a"], "target": ["a", "b"]},
                "signature_name": "align",
            },
            "`inputs` must be an object of `text` and `target`, .* of one length",
        ),
        ({"instances": ["a"], "signature_name": "align"}, "`text` and `target`, each"),
    ],
)
def test_what_cannot_be_predicted_is_refused_in_a_line(client, body, message):
    response = client.post("/v1/models/en-de:predict", json=body)
    assert response.status_code == 400
    assert_error(response, message)


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("POST", "/v1/models/en-fr:predict", 404, 'must be `en-de` or .*"en-fr"'),
        ("GET", "/v1/models/en-fr", 404, 'must be `en-de` or .*"en-fr"'),
        ("GET", "/v1/models/en-de:predict", 405, "takes POST, not GET"),
        ("DELETE", "/v1/models/en-de:predict", 405, "takes POST, not DELETE"),
        ("POST", "/v1/models/en-de", 405, "takes GET or HEAD, not POST"),
        ("POST", "/v1/models/en-de:classify", 404, '"classify".*:predict'),
        ("GET", "/v1/models/en-de/versions/2", 404, 'The version must be 1.*: "2"'),
        ("POST", "/v1/models/en-de/labels/x:predict", 404, "The label must be stable"),
        ("GET", "/v1/models/en-de/versions/1/x", 404, "There is no"),
    ],
)
def test_other_models_methods_and_verbs_are_refused(
    client, method, path, status, message
):
    response = client.request(method, path, json={"instances": ["a"]})
    assert response.status_code == status
    assert_error(response, message)


def test_a_translator_without_alignments_does_not_offer_them(engine):
    body = {"instances": [{"text": "a", "target": "b"}], "signature_name": "align"}
    response = client_of(engine).post("/v1/models/en-de:predict", json=body)
    assert_error(response, "must be `serving_default` or `translate_n_best`")
