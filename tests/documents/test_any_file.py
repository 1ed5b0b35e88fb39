"""What is read and written without a translation stays, byte for byte."""

import importlib.metadata
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from documents.formats import changed, read
from hypothesis import example, given, reject, settings
from hypothesis import strategies as st

from keras_transformer.documents.translation import FORMATS, assembled, split
from keras_transformer.markup import Code, plain_text

WORDS = [
    "a",
    "Äb ",
    "Dr. No. ",
    "\n",
    "\r\n",
    " ",
    "\t",
    "12",
    "&",
    "<",
    '"',
    "\\",
    "%s",
]
TAGS = [
    "<b>",
    "</b>",
    "<p>",
    "<br/>",
    "<!-- c -->",
    "<i x='>'>",
    "&amp;",
    "&nbsp;",
    "<x",
]
PIECES = {
    "text": ["- ", "\n\n", "\u2028"],
    "srt": ["1\n0:01 --> 0:02\n", "\n\n2\n0:03-->0:04\n", "{\\an8}", "\\N", *TAGS],
    "vtt": ["WEBVTT\n\n", "\n\n0:01 --> 0:02 x\n", "<0:01.5>", "<v A>", "NOTE ", *TAGS],
    "html": [*TAGS, "<pre>", "</pre>", "<p translate=no>", "<script>", "</script>"],
    "json": ["[", "]", "{", "}", ",", ":", '"a b"', '"\\u00e4"', '{"a": "b"}', "1e5"],
    "csv": ["source,target\n", ",", ";", '"a ""b"""', "\n"],
    "tsv": ["source\ttarget\n", "\t", "\n"],
    "po": [
        'msgid "a"\n',
        'msgstr ""\n',
        '"b\\n"\n',
        "#, fuzzy\n",
        "#| msgid\n",
        "#~ \n",
    ],
    "xliff": ["<source>", "</source>", "<target/>", "<g>", "</g>", "<x/>", "&amp;"],
    "tmx": ["<seg>", "</seg>", "<ph>", "</ph>", "<!-- c -->", "<it/>"],
}
AROUND = {
    "html": ("", "</html>"),
    "json": ("", ""),
    "xliff": (
        '<xliff version="1.2"><file><body><trans-unit id="1">\n',
        "</trans-unit></body></file></xliff>",
    ),
    "tmx": (
        '<tmx><header srclang="en"/><body><tu><tuv xml:lang="en">',
        "</tuv></tu></body></tmx>",
    ),
}
SETTINGS = {"target_language": "de", "columns": ("source",)}


@st.composite
def files(draw):
    format = draw(st.sampled_from(sorted(PIECES)))
    pieces = st.lists(st.sampled_from([*PIECES[format], *WORDS]), max_size=20)
    before, after = AROUND.get(format, ("", ""))
    mark = draw(st.sampled_from(["", "\ufeff"]))
    text = mark + before + "".join(draw(pieces)) + after
    encoding = (
        draw(st.sampled_from(["utf-8", "utf-8", "utf-16-le"])) if mark else "utf-8"
    )
    return format, text.encode(encoding)


def test_every_format_is_tried():
    assert {*PIECES} == {*FORMATS} - {"lines"}


@settings(max_examples=300, deadline=None)
@given(files())
@example(("xliff", b"<xliff><trans-unit><source>a</source></trans-unit></xliff>"))
def test_a_file_whose_texts_are_not_changed_stays(file):
    format, data = file
    try:
        document = read(data, format, **SETTINGS)
    except ValueError:
        reject()
    parts = split(document, "en")
    for text, its_parts in zip(document.texts, parts, strict=True):
        items = [item for part in its_parts for item in part]
        assert "".join(map(str, items)) == "".join(map(str, text))
    if format in ("po", "xliff", "tmx"):  # which are not translated in place
        new = document.assemble([["x"] for _ in document.texts])
        assert read(new, format, **SETTINGS).texts == []
        same = read(data, format, target_language="de" if format == "tmx" else None)
        assert document.texts or same.assemble([]) == data
    else:
        assert document.assemble(document.texts) == data
        new = document.assemble(
            [
                [x if isinstance(x, Code) else x.replace("a", "y") for x in text]
                for text in document.texts
            ]
        )
        found = [plain_text(text) for text in read(new, format, **SETTINGS).texts]
        wanted = [plain_text(text).replace("a", "y") for text in document.texts]
        assert found == wanted


class Seen(HTMLParser):
    """Lists what Python's parser finds of a page: all but text as it stands."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text = [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(self.get_starttag_text())

    def handle_endtag(self, tag):
        self.tags.append(f"</{tag}>")

    def handle_comment(self, data):
        self.tags.append(data)

    def handle_data(self, data):
        self.text.append(data)


PAGES = sorted(Path("/usr/share/doc").rglob("*.html"))[::7][:30]


@pytest.mark.parametrize(
    "path",
    [*PAGES[:10], *(pytest.param(path, marks=pytest.mark.slow) for path in PAGES[10:])],
    ids=lambda path: path.name,
)
def test_pages_of_debian_keep_all_but_their_texts(path):
    data = path.read_bytes()
    document = read(data, "html")
    assert document.assemble(document.texts) == data
    parts = split(document, "en")
    sentences = [part for text in parts for part in text[1::2]]
    assert sentences
    assert assembled(document, parts, sentences).split() == data.split()
    page = data.decode()
    old, new = (
        Seen(page),
        Seen(changed(page, "html", str.upper)),
    )
    assert new.tags == old.tags
    assert "".join(new.text).lower() == "".join(old.text).lower()


@pytest.mark.skipif(shutil.which("msgfmt") is None, reason="gettext is not installed")
def test_catalogues_of_other_packages_are_filled_and_all_else_stays(tmp_path):
    files = [
        path.locate()
        for distribution in importlib.metadata.distributions()
        for path in distribution.files or ()
        if path.suffix == ".po"
    ]
    for path in files[:30]:
        head, _, rest = path.read_text("utf-8").partition("\n\n")
        rest = re.sub(r'^(msgstr(\[\d\])?) ".*"(\n".*")*', r'\1 ""', rest, flags=re.M)
        emptied = f"{head}\n\n{rest}".replace("#, fuzzy\n", "", 1)
        document = read(emptied, "po")
        assert document.texts
        new = document.assemble(document.texts)
        (tmp_path / "new.po").write_bytes(new)
        command = ["msgfmt", "-c", "-o", tmp_path / "new.mo", tmp_path / "new.po"]
        subprocess.run(command, check=True, capture_output=True)
        remaining = iter(new.decode().split("\n"))
        for line in emptied.split("\n"):
            assert line.startswith("msgstr") or line in remaining  # in the same order
