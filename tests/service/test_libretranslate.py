"""LibreTranslate's API."""

import html
import json
import re
import urllib.parse

import pytest
from service.served import Aligning, Shouting, assert_error, client_of

from keras_transformer.service import Limits

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
        (f'<a id="x>y"> {TEXT}\n</a><p>a<br/>', '<a id="x>y"> {0}\n</a><p>{1}<br/>'),
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
    best = best.replace("\xa0", "&nbsp;")
    assert found["translatedText"] == f"<i>{best}</i>"
    q = "<i>1 &lt; 2 &amp; &quot;3&quot; > 2</i> <2"
    client = client_of(Shouting())
    assert translate(client, q=q, format="html")["translatedText"] == q
    found = translate(client, q=f"a {q}", format="html")["translatedText"]
    assert found == "A <i>1 &lt; 2 &amp; &quot;3&quot; > 2</i> &lt;2"


def test_languages_are_those_that_clients_read(client):
    english = {"code": "en", "name": "English", "targets": ["de"]}
    german = {"code": "de", "name": "German", "targets": ["en"]}
    assert client.get("/languages").json() == [english, german]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "Invalid request: missing q parameter"),
        ({"q": ""}, "missing q parameter"),
        ({"q": TEXT}, "missing source parameter"),
        ({"q": TEXT, "source": "en"}, "missing target parameter"),
        ({"q": TEXT, "source": "en", "target": "auto"}, '"auto" is not supported'),
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
        ({"q": "a\n" * 1025, **PAIR}, "at most 1024 sentences. Received: 1025"),
    ],
)
def test_what_cannot_be_translated_is_refused_in_a_line(client, body, message):
    response = client.post("/translate", content=json.dumps(body))
    assert response.status_code == 400
    assert_error(response, message)


@pytest.mark.parametrize("aligns", [True, False])
def test_texts_are_split_into_sentences_that_the_model_can_read(engine, aligns):
    client = client_of(Aligning(Shouting()) if aligns else Shouting())
    q = "One dog. Two dogs.\nDr. Ho sings!  Yes, 5. <b>a</b>\n"
    assert translate(client, q=q)["translatedText"] == q.upper()
    read = {one for texts in Shouting.read for one in texts}
    assert {"One dog.", "Two dogs.", "Dr. Ho sings!", "Yes, 5."} <= read
    long = "five tree " * 30
    found = translate(client_of(engine), q=long)["translatedText"]
    assert len(found) > 3 * len(
        translate(client_of(engine), q="five tree")["translatedText"]
    )


def test_without_alignments_tags_are_placed_by_guess():
    Shouting.read.clear()
    q = "A <b>dog</b> <i>5</i>. <br>Two"
    found = translate(client_of(Shouting()), q=q, format="html")["translatedText"]
    assert found == "A <b>DOG</b> <i>5</i>. <br>TWO"
    assert sorted(one for texts in Shouting.read for one in texts) == [
        "A dog 5.",
        "Two",
    ]


def test_fields_come_in_the_address_in_forms_and_several_times(client, texts_of):
    best = [texts_of(text)[0] for text in (TEXT, "a")]
    fields = [("q", TEXT), ("q", "a"), *PAIR.items()]
    address = f"/translate?{urllib.parse.urlencode(fields)}"
    found = [
        client.post(address),
        client.post("/translate", data={"q": [TEXT, "a"], **PAIR}),
        client.post("/translate", files=[(name, (None, x)) for name, x in fields]),
        client.post("/translate?source=en", json={"q": [TEXT, "a"], "target": "de"}),
    ]
    for response in found:
        assert response.json() == {"translatedText": best}
    kind = {"content-type": "multipart/form-data"}
    for content in (b"", b"--x"):
        broken = client.post("/translate", content=content, headers=kind)
        assert broken.status_code == 400
        assert_error(broken, "The form cannot be read")


def test_the_language_is_detected(client):
    found = client.post("/detect", json={"q": "Zwei Hunde spielen im Schnee."}).json()
    assert [each["language"] for each in found] == ["de", "en"]
    assert found[0]["confidence"] > 90
    both = client.post("/detect", json={"q": ["A man.", "Ein Mann."]}).json()
    assert [rows[0]["language"] for rows in both] == ["en", "de"]
    text = "A man rides a bike in the snow."
    answer = client.post(
        "/translate", json={"q": text, "source": "auto", "target": "de"}
    )
    assert answer.json()["detectedLanguage"]["language"] == "en"
    assert client.post("/detect", json={}).status_code == 400


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.txt", "One dog. Two\n\n12\n", "ONE DOG. TWO\n\n12\n"),
        ("a.html", "<p title='a'>a &amp; b</p>", "<p title='a'>A &amp; B</p>"),
        ("a.srt", "1\n0:01 --> 0:02\na\n", "1\n0:01 --> 0:02\nA\n"),
        ("a.json", '{"a": "b"}', '{"a": "B"}'),
        ("a.po", 'msgid "a"\nmsgstr ""\n', 'msgid "a"\nmsgstr "A"\n'),
    ],
)
def test_files_are_translated_in_their_formats(name, content, expected):
    with client_of(Shouting()) as client:
        answer = client.post(
            "/translate_file", data=PAIR, files={"file": (name, content)}
        )
        url = answer.json()["translatedFileUrl"]
        assert url.endswith(name[1:])
        assert client.get(url).text == expected
        assert client.get(f"{url}x").status_code == 404


def test_a_file_may_have_more_sentences_than_may_wait():
    film = "".join(f"{n}\n0:{n} --> 0:{n}\na {n}\n" for n in range(100))
    with client_of(Shouting(), Limits(texts=7, waiting=7)) as client:
        files = {"file": ("a.srt", film)}
        answer = client.post("/translate_file", data=PAIR, files=files).json()
        assert client.get(answer["translatedFileUrl"]).text == film.upper()


def test_files_that_cannot_be_read_are_refused_in_a_line(client):
    for name, content, message in (
        ("../b.json", "{", "^b.json cannot be read as json"),
        ("a.docx", "a", "a.docx cannot be translated: .docx is not supported"),
        ("a.po", b"\xff", "a.po cannot be read as po: line 1 is not UTF-8"),
    ):
        files = {"file": (name, content)}
        found = client.post("/translate_file", data=PAIR, files=files)
        assert found.status_code == 400
        assert_error(found, message)
    assert_error(client.post("/translate_file", data=PAIR), "missing file parameter")
    name = {"file": ("a.txt", "a"), "source": ("en", b"\xff")}
    found = client.post("/translate_file", data={"target": "de"}, files=name)
    assert_error(found, "a list is not supported")
    text = client.post("/translate_file", data={**PAIR, "file": "a"})
    assert_error(text, "file parameter is not a file")


def test_a_page_with_many_tags_does_not_keep_others_waiting():
    q = "<b translate=no " * 40_000
    with client_of(Shouting(), Limits(characters=10**6)) as shouting:
        assert translate(shouting, q=q, format="html")["translatedText"] == q


def test_inline_tags_are_placed_by_alignments(engine, texts_of):
    body = {**PAIR, "q": f"<p>two <b>dog</b> plays &amp;</p>\n{TEXT}", "format": "html"}
    with client_of(Aligning(engine)) as client:
        found = client.post("/translate", json=body).json()["translatedText"]
    paragraph, rest = re.fullmatch("<p>(.*)</p>\n(.*)", found).groups()
    assert re.fullmatch(".*<b>.*</b>.*", paragraph)
    text = html.unescape(re.sub("</?b>", "", paragraph))
    assert [text, rest] == [texts_of("two dog plays &")[0], texts_of(TEXT)[0]]
