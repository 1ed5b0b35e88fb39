"""HTML's tags are those that browsers find, each with its place."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer.markup import (
    Code,
    html_tags,
    plain_text,
    read_markup,
    translated_tags,
    write_markup,
)

PIECES = [
    *("<", ">", "/", "=", '"', "'", "!", "-", " ", "\n", "a", "p", "b", "é", "&", ";"),
    *("<b>", "</b>", "<p>", "</p>", "<!--", "-->", "<br/>", "<div translate=no>"),
    *("</div>", "<script>", "</script>", "<title>", "</title>", "<svg>", "</svg>"),
    *("<li translate='no'>", "<ul>", "</ul>", "<td>", "<tr translate=yes>", "&amp;"),
]


def tags(text):
    return [(text[tag.start : tag.end], tag.kind, tag.name) for tag in html_tags(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a < b <3 <é> </ c", [("</ c", "alone", "")]),
        ("<B\nx='a > b' y>", [("<B\nx='a > b' y>", "open", "b")]),
        ("<a href=x/>b</a >", [("<a href=x/>", "open", "a"), ("</a >", "close", "a")]),
        ("<img x><BR/>", [("<img x>", "alone", "img"), ("<BR/>", "alone", "br")]),
        (
            "<!-->a<!--->b<!-- <b> --!>c",
            [(x, "alone", "") for x in ("<!-->", "<!--->", "<!-- <b> --!>")],
        ),
        (
            "<!DOCTYPE a><?x y?>",
            [("<!DOCTYPE a>", "alone", ""), ("<?x y?>", "alone", "")],
        ),
        (
            "<script>'<b>' </scripts> </SCRIPT >a",
            [
                ("<script>", "open", "script"),
                ("'<b>' </scripts> ", "alone", ""),
                ("</SCRIPT >", "close", "script"),
            ],
        ),
        (
            "<title>a <b> c</title>",
            [("<title>", "open", "title"), ("</title>", "close", "title")],
        ),
        ("<script/>a", [("<script/>", "open", "script"), ("a", "alone", "")]),
        ("a <b c='d", [("<b c='d", "alone", "")]),
        ("a <!-- b", [("<!-- b", "alone", "")]),
        ("a <", []),
    ],
)
def test_tags_are_those_of_browsers(text, expected):
    assert tags(text) == expected


def test_xml_has_tags_that_close_themselves():
    text = "<?xml version='1.0'?><script src='x'/>a"
    assert tags(text)[1:] == [("<script src='x'/>", "alone", "script")]


def test_the_first_attribute_of_a_name_counts():
    (tag,) = html_tags("""<p A=1 a=2 b = "x&amp;y" c d='=' translate="no"e=/>""")
    expected = {"a": "1", "b": "x&y", "c": "", "d": "=", "translate": "no", "e": "/"}
    assert tag.attributes == expected


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a <b translate=no>x <i>y</i> z</b> c", "a  c"),
        ("<div translate=no>x<div>y</div>z</div>a", "a"),
        ("<p translate = 'no'>x<p>a", "a"),
        ("<p translate=NO>x<b>y</p>a", "a"),
        ("<p translate=no>x<hr>a", "a"),
        ("<p translate=no>x</div>y</p>a", "a"),
        ("<div><p translate=no>x</div>a", "a"),
        ("<ul><li translate=no>x<ul><li>y</ul>z<li>a</ul>", "a"),
        ("<tr><td translate=no>x<td>a<tr translate=no><td>y<tr>b", "ab"),
        ("<dt translate=no>x<dd>a", "a"),
        ("<img translate=no>a<br translate=no>b", "ab"),
        ("<p data-x='a translate=no b'>a", "a"),
        ("<p translate=non title='translate=no'>a", "a"),
        ("<i class='x notranslate y'>x</i>a<i class=notranslated>b</i>", "ab"),
        ("<div translate=no>x<p translate=yes>a<p>y</div>b", "ab"),
        ("<div translate=no>x<b translate>a</b>y", "a"),
        ("<template><p>x</p></template>a<svg><desc>y</svg>b<math>z", "ab"),
        ("<svg><svg>x</svg>y</svg>a<style>p { x }</style>b", "ab"),
        ("<ph><b></ph>a<it>x</it>", "a"),
        ("<b translate=no>x", ""),
        ("</div></b>a", "a"),
    ],
)
def test_what_is_not_to_be_translated_is_no_text(text, shown):
    assert plain_text(read_markup(text)) == shown
    assert write_markup(read_markup(text)) == text


@settings(max_examples=300)
@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_tags_follow_each_other_and_a_text_is_written_as_it_was_read(text):
    for found in (list(html_tags(text)), list(translated_tags(text))):
        places = [place for tag in found for place in (tag.start, tag.end)]
        assert places == sorted(places)
        assert all(tag.start < tag.end <= len(text) for tag in found)
    fragment = read_markup(text)
    assert read_markup(write_markup(fragment)) == fragment
    assert all(x != "" for x in fragment)
    assert not any(
        isinstance(x, str) and isinstance(y, str)
        for x, y in itertools.pairwise(fragment)
    )
    pairs = [x for x in fragment if isinstance(x, Code) and x.pair is not None]
    open_pairs = []
    for code in pairs:
        if code.kind == "open":
            open_pairs.append(code.pair)
        else:
            assert open_pairs.pop() == code.pair
    assert not open_pairs


@pytest.mark.parametrize(
    "piece",
    [
        *("<!-- ", "<!", "<script>", '<a "', "<b translate=no>", "<b translate=no "),
        *("<b translate=no", "<b>", "</b>", "<p><b></i>", "<li><b>", "<ul><li></li>"),
        *("<b a = ", "<b a='", "<p>", "<div translate=no><p translate>", "<?", "</"),
        *("<title>", "<svg>", "<td><p>", "&amp", "<", "< /", "<a\n"),
    ],
)
def test_any_text_is_read_in_linear_time(piece):
    # In quadratic time, this takes minutes.
    text = piece * (2**17 // len(piece))
    assert read_markup(text)
