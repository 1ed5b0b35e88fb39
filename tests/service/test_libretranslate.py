"""LibreTranslate's API."""

import html
import json
import re
import urllib.parse

import pytest
from service.served import Aligning, Echo, assert_error, client_of

TEXT = "two dog plays"
PAIR = {"source": "en", "target": "de"}


@pytest.fixture(scope="module")
def client(engine):
    with client_of(engine) as client:
        yield client


@pytest.fixture(scope="module")
def texts_of(engine):
    """Function from a text to its translations, alone."""
    return lambda text: [x.text for x in engine.translate_n_best([text])[0]]


def translate(client, **body):
    response = client.post("/translate", json={**PAIR, **body})
    assert response.status_code == 200, response.text
    return response.json()


def test_a_text_becomes_a_text_and_a_list_a_list(client, texts_of):
    best = texts_of(TEXT)[0]
    assert translate(client, q=TEXT, api_key="") == {"translatedText": best}
    assert translate(client, q=[TEXT]) == {"translatedText": [best]}
    several = translate(
        client, q=[TEXT, "", "a"], format="text", source="de", target="en"
    )
    assert several == {"translatedText": [best, "", texts_of("a")[0]]}


@pytest.mark.parametrize("kind", ["", "; charset=UTF-8"])
def test_a_form_is_read_too(client, texts_of, kind):
    response = client.post(
        "/translate",
        content=urllib.parse.urlencode({"q": "äß & +", **PAIR, "alternatives": "1"}),
        headers={"content-type": f"application/x-www-form-urlencoded{kind}"},
    )
    best, second, *_ = texts_of("äß & +")
    assert response.json() == {"translatedText": best, "alternatives": [second]}


def test_json_is_read_whatever_it_is_called(client, texts_of):
    response = client.post(
        "/translate",
        content=json.dumps({"q": TEXT, **PAIR}),
        headers={"content-type": "application/x-www-form-urlencoded"},
    )
    assert response.json() == {"translatedText": texts_of(TEXT)[0]}


def test_alternatives_differ_and_are_as_many_as_there_are(client, texts_of):
    texts = list(dict.fromkeys(texts_of(TEXT)))
    found = translate(client, q=TEXT, alternatives=2)
    assert found == {"translatedText": texts[0], "alternatives": texts[1:3]}
    found = translate(client, q=[TEXT, " "], alternatives=100)
    assert found["alternatives"] == [texts[1:], []]


def test_lines_are_translated_one_by_one_and_what_is_between_them_stays(
    client, texts_of
):
    found = translate(client, q=f"\n  {TEXT} \r\n\n\ta\n", alternatives=1)
    first, second = texts_of(TEXT), texts_of("a")
    assert found["translatedText"] == f"\n  {first[0]} \r\n\n\t{second[0]}\n"
    assert found["alternatives"] == [f"\n  {first[1]} \r\n\n\t{second[1]}\n"]


@pytest.mark.parametrize(
    ("q", "expected"),
    [
        (f"<p>{TEXT}</p>", "<p>{0}</p>"),
        (f'<a href="x>y"> {TEXT}\n</a>a<br/>', '<a href="x>y"> {0}\n</a>{1}<br/>'),
        (
            f"<!-- {TEXT} --><script>a < b</script>a",
            "<!-- two dog plays --><script>a < b</script>{1}",
        ),
        ("<b></b>\n", "<b></b>\n"),
        ("a <!-- <b>", "{1} <!-- <b>"),
        ("a<style> b", "{1}<style> b"),
    ],
)
def test_tags_of_html_stay_as_they_are(client, texts_of, q, expected):
    found = translate(client, q=q, format="html")
    assert found["translatedText"] == expected.format(
        texts_of(TEXT)[0], texts_of("a")[0]
    )


def test_entities_of_html_are_read_and_written(client, texts_of):
    found = translate(client, q="<i>two&#32;dog&nbsp;plays</i>", format="html")
    best = texts_of("two dog\xa0plays")[0]
    assert found["translatedText"] == f"<i>{best}</i>"
    q = "<i>1 &lt; 2 &amp; &quot;3&quot; > 2</i> <2"
    found = translate(client_of(Echo()), q=q, format="html")
    assert found["translatedText"] == '<i>1 &lt; 2 &amp; "3" &gt; 2</i> &lt;2'


def test_languages_and_settings_are_those_that_clients_read(client):
    english = {"code": "en", "name": "English", "targets": ["de"]}
    german = {"code": "de", "name": "German", "targets": ["en"]}
    assert client.get("/languages").json() == [english, german]
    settings = client.get("/frontend/settings").json()
    assert settings["charLimit"] == 5000
    assert settings["language"]["target"] == {"code": "de", "name": "German"}
    assert not settings["keyRequired"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "Invalid request: missing q parameter"),
        ({"q": ""}, "missing q parameter"),
        ({"q": TEXT}, "missing source parameter"),
        ({"q": TEXT, "source": "en"}, "missing target parameter"),
        ({"q": TEXT, "source": "auto", "target": "de"}, '"auto" is not supported'),
        ({"q": TEXT, "source": "en", "target": "xx"}, '"xx" is not supported.* en, de'),
        ({"q": TEXT, "source": ["en"], "target": "de"}, "a list is not supported"),
        (
            {"q": TEXT, "source": "en", "target": "en"},
            "English .* is not available",
        ),
        ({"q": 5, **PAIR}, "neither a text nor a list"),
        ({"q": [TEXT, None], **PAIR}, "neither a text nor a list"),
        ({"q": {"a": TEXT}, **PAIR}, "neither a text nor a list"),
        ({"q": TEXT, **PAIR, "format": "pdf"}, '"pdf" format is not supported'),
        ({"q": TEXT, **PAIR, "format": ["html"]}, "a list format is not supported"),
        ({"q": TEXT, **PAIR, "alternatives": "x"}, "alternatives .*is not a number"),
        ({"q": TEXT, **PAIR, "alternatives": []}, "alternatives .*is not a number"),
        ({"q": "a" * 5001, **PAIR}, r"`q\[0\]` .* at most 5000 characters.*: 5001"),
        ({"q": ["a"] * 257, **PAIR}, "`q` must hold at most 256 texts. Received: 257"),
        ({"q": "a\n" * 257, **PAIR}, "`lines` must hold at most 256 texts"),
        ({"q": "a\n" + "five tree " * 30, **PAIR}, r"`lines\[1\]` .* 20 subwords"),
    ],
)
def test_what_cannot_be_translated_is_refused_in_a_line(client, body, message):
    response = client.post("/translate", content=json.dumps(body))
    assert response.status_code == 400
    assert_error(response, message)


def test_there_is_no_detection(client):
    assert client.post("/detect", json={"q": TEXT}).status_code == 404


def test_inline_tags_are_placed_by_alignments(engine, texts_of):
    body = {**PAIR, "q": f"<p>two <b>dog</b> plays &amp;</p>\n{TEXT}", "format": "html"}
    with client_of(Aligning(engine)) as client:
        found = client.post("/translate", json=body).json()["translatedText"]
        body["q"] = "<b>five</b> tree " * 30
        cut = client.post("/translate", json=body)
    paragraph, rest = re.fullmatch("<p>(.*)</p>\n(.*)", found).groups()
    assert re.fullmatch(".*<b>.*</b>.*", paragraph)
    text = html.unescape(re.sub("</?b>", "", paragraph))
    assert [text, rest] == [texts_of("two dog plays &")[0], texts_of(TEXT)[0]]
    assert_error(cut, r"`lines\[0\]` is longer than the 20 subwords")
