"""Documents are translated sentence by sentence, and stay as they were around them."""

import contextlib
import json
import re

import pytest
from serving.tiny_translator import SOURCES, make_translator

import keras_transformer as kt
from keras_transformer.documents import translate, translation
from keras_transformer.documents.document import Source
from keras_transformer.documents.html import html_document
from keras_transformer.documents.translation import journal

# The translator has learnt nothing.
pytestmark = pytest.mark.filterwarnings("ignore:.* look wrong:UserWarning")
# Different for each text.
HOW = {"search": kt.decoding.Sampling(seed=3), "max_length": 5}
PO = r"""# A comment
msgid ""
msgstr ""
"Language: de\n"
"Plural-Forms: nplurals=3; plural=n%10;\n"

#: a.c:3   b.c:5
#, c-format
msgid "@0@"
msgstr "=0="

#, fuzzy
#| msgid "a word"
msgid "@1@"
msgstr "=1="

#, fuzzy
msgid "two trees"
msgstr "was war"

msgid "two trees"
msgstr "was war"

msgid "@2@"
msgid_plural "@3@"
msgstr[0] "=2="
msgstr[1] "=3="
msgstr[2] "=3="

#~ msgid "a dog"
#~ msgstr "ein Hund"
"""
XLIFF = """<?xml version="1.0" encoding="UTF-8"?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2">
  <file original="a" source-language="en" target-language="de" datatype="x">
    <body>
      <trans-unit id="1">
        <source>@0@</source>
        <target state="translated">=0=</target>
      </trans-unit>
      <trans-unit id="2" approved="yes">
        <source>two trees</source>
        <target state="final">was war</target>
        <note>stays</note>
      </trans-unit>
      <trans-unit id="3" translate="no">
        <source>a dog</source>
      </trans-unit>
    </body>
  </file>
</xliff>
"""
XLIFF_2 = """<?xml version="1.0" encoding="UTF-8"?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en">
  <file id="f">
    <unit id="1">
      <segment id="s" state="translated">
        <source>@0@</source>
        <target>=0=</target>
      </segment>
    </unit>
  </file>
</xliff>
"""
TMX = """<?xml version="1.0" encoding="UTF-8"?>
<tmx version="1.4">
  <header srclang="en" datatype="plaintext"/>
  <body>
<tu><tuv xml:lang="en"><seg>@0@</seg></tuv><tuv xml:lang="de"><seg>=0=</seg></tuv></tu>
    <tu>
      <tuv xml:lang="en"><seg>x</seg></tuv><tuv xml:lang="de"><seg>y</seg></tuv></tu>
  </body>
</tmx>
"""
SRT = """1
00:00:01,000 --> 00:00:02,500 X1:10 X2:20
{\\an8}@0@

2
00:00:03,000 --> 00:00:04,000
- @1@
- @2@


3
00:00:05,000 --> 00:00:06,000
@3@"""
VTT = """\ufeffWEBVTT a title\r
Kind: captions\r
\r
NOTE a comment\r
\r
STYLE\r
::cue { color: red }\r
\r
intro\r
00:01.000 --> 00:02.500 align:start\r
@0@\r
\r
00:03.000 --> 00:04.000\r
@1@\r
"""
HTML = """<!DOCTYPE html>
<html lang="en"><head>
  <title>@0@</title>
  <style>p > a { color: red }</style>
  <script>if (a < b) { c("<p>x</p>") }</script>
<body class=x data-y='a > b'>
  <!-- a dog -->
  <p>@1@
  <p translate="no">a dog</p>
  <ul><li>@2@<li> @3@ </ul>
  <img src="a.png" alt="a dog">@4@<br>
  <hr> &copy; 2020 &mdash;
  <hr>@5@
"""
JSON = """{
  "a dog": "@0@",
  "number": 1.50, "escaped": "\\/ \\u0031",
  "list": ["@1@", {"none": null, "a man" : ""}]
}"""
CSV = 'name,text\r\n"a dog",@0@\r\n"a ""man""","@1@"\r\nshort\r\n\r\n12,13\r\n'
COLUMNS = """source;x;target\n@0@;a dog;=0=\n@1@;;=1=\ntwo;;war\n"""
TSV = """source\ttarget\n@0@\t=0=\n12\t12"""
TEXT = "\ufeff\r\n  @0@.\r\n\r\n\t* @1@. @2@.  \n\n\n12\n@3@"
LINES = "@0@\n\n@1@\n"


@pytest.fixture(scope="module")
def translator():
    return make_translator()


@pytest.fixture(scope="module")
def pairs(translator):
    """Some texts, with and without a full stop, and their translations."""
    texts = [text for one in SOURCES[:6] for text in (one, f"{one}.")]
    pairs = dict(zip(texts, translator.translate(texts, **HOW), strict=True))
    assert len({*pairs.values()}) == len(pairs)
    return pairs


def filled(template, pairs, is_translated):
    """Fills a document with texts: sources for @0@, and translations.

    These stand in their place, or if the document has =0=, there.
    """
    has_targets = "=0=" in template

    def fill(match):
        text = SOURCES[int(match[2])] + match[3]
        if match[1] == "@":
            return pairs[text] if is_translated and not has_targets else text
        return pairs[text] if is_translated else ""

    return re.sub(r"([@=])(\d)\1(\.?)", fill, template)


@pytest.mark.parametrize(
    ("name", "template", "options"),
    [
        ("a.po", PO, {}),
        ("a.tmx", TMX, {"target_language": "de"}),
        ("a.srt", SRT, {}),
        ("a.vtt", VTT, {}),
        ("a.html", HTML, {}),
        ("a.json", JSON, {}),
        ("a.csv", CSV, {"columns": ["text"]}),
        ("columns.csv", COLUMNS, {}),
        ("a.tsv", TSV, {}),
        ("a", TEXT, {"format": "text"}),
        ("a.txt", LINES, {}),
        ("a.xlf", XLIFF, {}),
        ("b.xliff", XLIFF_2, {}),
    ],
)
def test_all_but_the_texts_stays_byte_for_byte(
    translator, pairs, tmp_path, name, template, options
):
    path, output = tmp_path / name, tmp_path / f"new-{name}"
    source = filled(template, pairs, is_translated=False)
    if "xliff" in template:  # as a tool writes what has no translation
        source = re.sub(r"\n *<target[^>]*></target>", "", source)
    if "tmx" in template:
        source = source.replace('<tuv xml:lang="de"><seg></seg></tuv>', "")
    path.write_bytes(source.encode())
    assert translate(translator, path, output, **options, **HOW) == [output]
    expected = filled(template, pairs, is_translated=True)
    assert output.read_bytes() == expected.encode()
    assert sorted(tmp_path.iterdir()) == sorted([path, output])


@pytest.mark.parametrize(
    ("name", "document", "pattern"),
    [
        ("a.html", "<p>a <b>dog</b> &amp; a man</p>", "<p>.*<b>.*</b>.*</p>"),
        ("a.srt", "1\n0:1 --> 0:2\n<i>a dog</i>\n", "1\n0:1 --> 0:2\n<i>.*</i>\n"),
        (
            "a.xlf",
            XLIFF.replace("@0@", 'a <g id="1" x="&lt;">dog</g> <ph id="2">%s</ph>'),
            '<target[^>]*>.*<g id="1" x="&lt;">.*</g>.*<ph id="2">%s</ph>.*</target>|'
            '<target[^>]*>.*<ph id="2">%s</ph>.*<g id="1" x="&lt;">.*</g>.*</target>',
        ),
        (
            "a.tmx",
            TMX.replace("@0@", 'a <bpt i="1">{</bpt>dog<ept i="1">}</ept>'),
            '<seg>[^<]*<bpt i="1">{</bpt>[^<]*<ept i="1">}</ept>[^<]*</seg></tuv></tu>',
        ),
    ],
)
def test_inline_tags_are_kept(translator, tmp_path, name, document, pattern):
    if name == "a.xlf":
        document = re.sub(r"\n *<target[^>]*>=0=</target>", "", document)
    document = document.replace('<tuv xml:lang="de"><seg>=0=</seg></tuv>', "")
    (tmp_path / name).write_text(document)
    translate(
        translator, tmp_path / name, tmp_path / "out", target_language="de", **HOW
    )
    text = (tmp_path / "out").read_text()
    assert re.search(pattern, text), text
    if name == "a.html":
        assert "&" not in text.replace("&amp;", "").replace("&lt;", "")


def test_a_long_sentence_is_translated_in_parts(translator, tmp_path):
    text = "a dog rides and a man plays, " * 9 + "two"
    (tmp_path / "a").write_text(text)
    translate(translator, tmp_path / "a", tmp_path / "b", format="text", **HOW)
    cut = translator.translate_n_best([text], **HOW)[0][0]
    assert "cut source" in cut.flags
    assert len((tmp_path / "b").read_text()) > 3 * len(cut.text)


def test_several_files_go_to_a_folder_and_finished_ones_stay(
    translator, pairs, tmp_path
):
    folder, paths = tmp_path / "out", []
    for name in ("a.txt", "b.json"):
        paths.append(tmp_path / name)
        paths[-1].write_text(json.dumps(SOURCES[0]) if "json" in name else SOURCES[1])
    outputs = translate(translator, paths, folder, **HOW)
    assert outputs == [folder / "a.txt", folder / "b.json"]
    assert [path.read_text() for path in outputs] == [
        f"{pairs[SOURCES[1]]}\n",
        json.dumps(pairs[SOURCES[0]], ensure_ascii=False),
    ]
    outputs[0].write_text("stays")
    outputs[1].unlink()
    assert translate(translator, paths, folder, **HOW) == outputs
    assert outputs[0].read_text() == "stays"
    assert outputs[1].is_file()


class Killed(BaseException):
    """Ends a call as a signal does."""


@pytest.mark.parametrize("torn", [b"", b'"half a li'])
@pytest.mark.parametrize("name", ["a.txt", "a.json"])
def test_a_call_that_was_killed_goes_on_where_it_stopped(
    translator, tmp_path, monkeypatch, name, torn
):
    monkeypatch.setattr(translation, "SENTENCES_PER_CHUNK", 8)  # and 1 at first
    path, output = tmp_path / name, tmp_path / "out"
    lines = [SOURCES[i] for i in range(20)]
    path.write_text(json.dumps(lines) if name == "a.json" else "\n".join(lines))
    translate(translator, path, output, **HOW)
    expected = output.read_bytes()
    output.write_text("precious")
    (job,) = translation.plan(path, output, None, "en", None)
    asked = []

    def killed(*args, **kwargs):
        for _, first, _ in translation.run(translator, [job], **HOW):
            asked.append(first)
            if len(asked) == 2:
                raise Killed

    with pytest.raises(Killed):
        killed()
    assert output.read_text() == "precious"
    unfinished = tmp_path / "out.unfinished"
    with open(unfinished, "ab") as file:
        file.write(torn)
    (_, first, _), *_ = translation.run(translator, [job], **HOW)
    assert asked == [1, 2]
    assert first == 10
    assert output.read_bytes() == expected
    assert not unfinished.exists()


def test_translations_of_another_question_are_not_taken(tmp_path):
    output = tmp_path / "out"
    with contextlib.suppress(Killed), journal(output, "one") as kept:
        kept.append(["a", "b\n"])
        raise Killed
    with contextlib.suppress(Killed), journal(output, "one") as kept:
        assert list(kept) == ["a", "b\n"]
        raise Killed
    with journal(output, "two") as kept:
        assert (kept.count, list(kept)) == (0, [])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        (
            "a.po",
            'msgid "a',
            {},
            "a.po cannot be read as po: line 1 is neither a field",
        ),
        ("a.xlf", "<xliff", {}, "xliff: unclosed token: line 1, column 0"),
        ("a.xlf", "<a/>", {}, "xliff: its outermost element is <a>, not <xliff>"),
        ("a.tmx", TMX, {}, "its target language is unknown"),
        ("a.json", "{", {}, "a.json cannot be read as json: Expecting property name"),
        ("a.csv", "a,b\n1,2\n", {}, "must name the columns source and target. It has"),
        (
            "a.csv",
            'source,target\n1,"2\n',
            {},
            "a cell in line 2 has a quote that is not closed",
        ),
        ("a.json", "[1, {}]", {}, "a.json has no text to translate."),
        ("a.srt", "a dog\n", {}, "a.srt has no text to translate."),
        ("a.srt", b"1\n0:1 --> 0:2\n\xff", {}, "srt: line 3 is not UTF-8"),
        ("a.xlf", '<!DOCTYPE a [<!ENTITY b "c">]><a/>', {}, "it defines entities"),
        ("a.md", "# A", {}, "a.md cannot be translated: .md is not supported"),
        (
            "a.docx",
            "",
            {},
            "cannot be translated: .docx is not supported. .* --format lines",
        ),
        ("a.html", b"<meta charset=x>", {}, "its encoding x is unknown"),
        ("a.html", b"\xff", {}, "a.html cannot be read as html: line 1 is not UTF-8"),
        ("a", "", {"format": "doc"}, "must be one of lines, text, srt, .*format=doc"),
        ("a.txt", b"a\n\xff", {}, "a.txt:2 is not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_translated_is_named_and_nothing_is_written(
    translator, tmp_path, name, content, options, message
):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message) as raised:
        translate(translator, path, tmp_path / "out", **options)
    assert "\n" not in str(raised.value)
    assert list(tmp_path.iterdir()) == [path]


def test_outputs_that_would_replace_something_are_refused(translator, tmp_path):
    one, other = tmp_path / "a.txt", tmp_path / "b" / "a.txt"
    other.parent.mkdir()
    for path in (one, other):
        path.write_text("a dog")
    with pytest.raises(ValueError, match="a.txt is an input file"):
        translate(translator, one, tmp_path)
    with pytest.raises(ValueError, match="must have different names"):
        translate(translator, [one, other], tmp_path / "out")
    with pytest.raises(ValueError, match="must be a folder if there are several"):
        translate(translator, [one, other], other)
    with pytest.raises(ValueError, match="one file or more. Received: none"):
        translate(translator, [], tmp_path / "out")
    with pytest.raises(FileNotFoundError, match="none.json does not exist"):
        translate(translator, tmp_path / "none.json", tmp_path / "out")


def test_texts_of_data_have_tags_if_it_is_asked_for(translator, tmp_path):
    path, output = tmp_path / "a.json", tmp_path / "out"
    path.write_text('["<b>a</b> dog", "&lt;", "AT&T"]')
    translate(translator, path, output, markup=True, **HOW)
    found = json.loads(output.read_text())
    assert re.search("<b>.*</b>", found[0])
    assert found[1] == "&lt;"
    translate(translator, path, output, **HOW)
    (plain, _, _) = json.loads(output.read_text())
    assert plain == translator.translate(["<b>a</b> dog"], **HOW)[0]


def test_messages_keep_their_placeholders_without_being_told(
    learnt_translator, tmp_path
):
    translator = kt.Translator.load(learnt_translator)
    text = 'msgid "a dog %s"\nmsgstr ""\n'
    (tmp_path / "a.po").write_text(f"#, c-format\n{text}")
    translate(translator, tmp_path / "a.po", tmp_path / "b.po")
    (found,) = re.findall('msgstr "(.*)"', (tmp_path / "b.po").read_text())
    assert found.count("%s") == 1
    assert found != "%s"
    assert "fuzzy" not in (tmp_path / "b.po").read_text()
    assert "%s" not in translator.translate(["a dog %s"])[0]


def test_two_calls_do_not_write_one_output(translator, tmp_path):
    path, output = tmp_path / "a.txt", tmp_path / "out"
    path.write_text("a dog\na man\n")
    (job,) = translation.plan(path, output, None, "en", None)
    running = translation.run(translator, [job], **HOW)
    next(running)
    with pytest.raises(ValueError, match="out is being written by another process"):
        translate(translator, path, output, **HOW)
    assert not list(running)
    translate(translator, path, output, **HOW)
    assert sorted(tmp_path.iterdir()) == [path, output]


def test_translations_that_look_wrong_are_told(translator, tmp_path):
    (tmp_path / "a.txt").write_text("a dog\na dog Ж\n")
    with pytest.warns(UserWarning, match="2 translations of sentences in .*no end"):
        translate(translator, tmp_path / "a.txt", tmp_path / "b", max_length=1)


@pytest.mark.parametrize(
    "piece", ["<!-- ", "<!", "<script>", '<a "', "<b translate=no>", "<b translate=no "]
)
def test_tags_that_nothing_ends_are_read_in_linear_time(piece):
    # In quadratic time, a megabyte takes minutes.
    page = Source(piece * (2**20 // len(piece)), "utf-8")
    assert len(html_document(page).texts) <= 1
