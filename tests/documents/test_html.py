import pytest
from documents.formats import changed, plain_texts_of, read, texts_of

PAGE = """<!DOCTYPE html>
<!-- head --><html lang="en"><head><meta charset="utf-8">
<title>One &amp; <b> two</title><style>p > a { color: red }</style></head>
<body onload="a > b"><p>three <b>four</b>, &nbsp;five<!-- six --> six.
<p translate = "no">seven <b>eight</b>
<p>nine <code class="notranslate">ten <i>x</i></code> eleven<br>twelve
<pre>
  if a:
    <b>return</b> b
</pre><textarea>a <b>
 c</textarea><template>d</template><script>e("<p>f</p>")</script>
<ul><li translate=no>g<li>h</ul><img alt="i" translate=no>j
</body></html>
"""
TEXTS = [
    "One & <b> two",
    "three four, \xa0five six.\n",
    "nine  eleventwelve\n",
    "  if a:",
    "    return b",
    "a <b>",
    " c",
    "h",
    "j\n",
]


def test_texts_are_what_a_reader_sees_between_the_tags_of_blocks():
    assert plain_texts_of(PAGE, "html") == TEXTS


def test_all_but_the_texts_stays_and_entities_stay_entities():
    expected = PAGE
    for word in ("One", "two<", "three", "four", "five", "six.", "nine ", "eleven"):
        expected = expected.replace(word, word.upper())
    for old in ("twelve", "if a:", ">return<", "b\n</pre", "> c<", ">h<", ">j\n"):
        expected = expected.replace(old, old.upper().replace("</PRE", "</pre"))
    expected = expected.replace("&amp; <b> TWO", "&amp; &lt;B> TWO")
    expected = expected.replace(">a <b>\n c<", ">A &lt;B>\n C<")
    assert changed(PAGE, "html") == expected


@pytest.mark.parametrize(
    ("head", "encoding"),
    [
        ('<meta charset="{}">', "iso-8859-2"),
        ("<meta http-equiv=Content-Type content='text/html; charset={}'>", "koi8-r"),
        ('<?xml version="1.0" encoding="{}"?>', "iso-8859-5"),
        ('<form accept-charset="koi8-r"><meta charset={}>', "utf-8"),
        ('<!-- <meta charset="koi8-r"> --><meta charset={}>', "utf-8"),
        ('<meta name="x" content="charset=koi8-r"><meta charset={}>', "utf-8"),
        ("<p title='charset={}'>", "utf-8"),
        ("<meta charset=utf-16>", "utf-8"),
    ],
)
def test_the_encoding_is_the_one_that_browsers_find(head, encoding):
    text = "\u044f" if encoding != "iso-8859-2" else "\u0159"
    page = f"{head.format(encoding)}<p>{text}"
    document = read(page.encode(encoding), "html")
    assert document.texts == [[text]]
    assert document.assemble(document.texts) == page.encode(encoding)
    found = document.assemble([["\u0159\u20ac"]])
    start = page.encode(encoding)[: -len(text.encode(encoding))]
    rest = found.removeprefix(start).decode(encoding)
    assert (
        rest.replace("&#345;", "\u0159").replace("&#8364;", "\u20ac") == "\u0159\u20ac"
    )


def test_latin_1_is_windows_1252_and_a_mark_overrules_what_is_named():
    page = b"<meta charset=iso-8859-1><p>\x93a\x94"
    assert texts_of(page, "html") == ["\u201ca\u201d"]
    marked = "\ufeff<meta charset=koi8-r><p>\u044f".encode("utf-16-le")
    document = read(marked, "html")
    assert document.texts == [["\u044f"]]
    assert document.assemble([["b"]]) == marked.replace(b"\x4f\x04", b"b\0")


def test_line_ends_stay_in_the_text():
    page = '<p>a dog <a onclick="x()\n  y()">rides\n  a</a> bike'
    expected = '<p>A DOG <a onclick="x()\n  y()">RIDES\n  A</a> BIKE'
    assert changed(page, "html") == expected


def test_entities_of_letters_are_no_rule_for_others():
    page = "<p>a&#32;b &auml;&ouml; &#x3C;c>"
    assert read(page, "html").texts == [["a b äö <c>"]]
    found = read(page, "html").assemble([["b a <ö> b&"]]).decode()
    assert found == "<p>b a &#x3C;&ouml;> b&amp;"
