import html
import random
import re
from collections import Counter
from html.parser import HTMLParser

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from serving.tiny_translator import SOURCES, make_translator

import keras_transformer as kt
from keras_transformer.markup import Code, plain_text, read_markup, write_markup
from keras_transformer.placement import CodedText, guessed_pairs
from keras_transformer.translator import (
    AlignedPair,
    translate_fragments,
    translate_markup,
)

PHRASES = kt.datasets.locale_phrases("en", "de", train=41, validation=1, test=1).train
SOURCE, TRANSLATION = "Friday, March 5 at noon", "Freitag, 5. März, mittags"
WORDS = {"Friday": "Freitag", "March": "März", "5": "5", "noon": "mittags"}


def pairs_of(source, translation, words=WORDS):
    """Aligns words that occur once on either side."""
    pairs = []
    for word, other in words.items():
        if word in source:
            start, first = source.index(word), translation.index(other)
            target = first, first + len(other)
            pairs.append(AlignedPair((start, start + len(word)), target, 0.9))
    return sorted(pairs, key=lambda pair: pair.target)


def source_of(text):
    return CodedText(read_markup(text))


def written(text, translation=TRANSLATION, words=WORDS):
    source = source_of(text)
    pairs = pairs_of(source.plain, translation, words)
    return write_markup(source.write(translation, pairs))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<b>Friday</b>, March 5 at noon", "<b>Freitag</b>, 5. März, mittags"),
        ("Friday, <i>March 5</i> at noon", "Freitag, <i>5. März</i>, mittags"),
        (
            '<g id="1">Friday, <g id="2">March</g> 5</g> at noon',
            '<g id="1">Freitag, 5. <g id="2">März</g></g>, mittags',
        ),
        (  # at both ends, around all
            "<p><b>Friday, March 5 at noon</b></p>",
            "<p><b>Freitag, 5. März, mittags</b></p>",
        ),
        (  # without content
            "Friday, <x/>March 5 <br>at noon<img src='a>b'/>",
            "Freitag, 5. <x/>März, <br>mittags<img src='a>b'/>",
        ),
        (
            "<a></a>Friday, <b><!-- x --> </b>March 5 at noon",
            "<a></a>Freitag, 5. <b><!-- x --></b>März, mittags",
        ),
        (  # what is not rendered
            "Friday, March 5 <u>at</u> noon",
            "Freitag, 5. März, <u></u>mittags",
        ),
        (  # unbalanced, and overlapping
            "Friday</b>, <i>March 5 at noon",
            "Freitag</b>, 5. <i>März, mittags",
        ),
        (
            "<b>Friday, <i>March</b> 5</i> at noon",
            "<b>Freitag<i></b>, 5</i>. März, mittags",
        ),
        (  # not in one piece: the larger one
            "<b>Friday, March</b> 5 at noon",
            "<b>Freitag</b>, 5. März, mittags",
        ),
        (  # foreign code in XLIFF
            "Friday, <bpt>&lt;b></bpt>March<ept>&lt;/b></ept> 5 <ph>%s</ph>at noon",
            "Freitag, 5. <bpt>&lt;b></bpt>März<ept>&lt;/b></ept>, <ph>%s</ph>mittags",
        ),
        (
            "Friday, <bx id='1'/>March<ex id='1'/> 5 at noon",
            "Freitag, 5. <bx id='1'/>März<ex id='1'/>, mittags",
        ),
    ],
)
def test_tags_stand_around_what_renders_their_content(text, expected):
    assert written(text) == expected


def test_words_are_aligned_by_their_place_where_nothing_is_known():
    text = "A <b>man</b> in <i>Ulm</i> rides <a>a bike</a>."
    source = source_of(text)
    translation = "In Ulm fährt ein Mann Fahrrad."
    found = source.write(translation, guessed_pairs(source.plain, translation))
    assert "<i>Ulm</i>" in write_markup(found)
    assert plain_text(found) == translation
    same = source.write(source.plain, guessed_pairs(source.plain, source.plain))
    assert write_markup(same) == text
    assert guessed_pairs("", "a") == guessed_pairs("a", "") == []


def test_a_tag_at_the_end_of_a_pair_stays_within_it():
    text, translation = "<b>March <x/></b>Friday", "März Freitag"
    assert written(text, translation) == "<b>März<x/></b> Freitag"


def test_pairs_side_by_side_do_not_share_words():
    source = source_of("<b>one</b> <i>two</i> six")
    links = [(0, 0, 0.9), (4, 2, 0.5), (0, 2, 0.2), (0, 4, 0.8), (8, 6, 0.9)]
    pairs = [AlignedPair((a, a + 3), (b, b + 1), weight) for a, b, weight in links]
    assert write_markup(source.write("A B C D", pairs)) == "<i></i><b>A B C</b> D"


def test_a_tag_does_not_part_a_word_and_its_accents():
    source = source_of("<b>for</b> Tom")
    pairs = [AlignedPair((0, 3), (0, 2), 0.9), AlignedPair((4, 7), (5, 8), 0.9)]
    assert write_markup(source.write("fu\u0308r Tom", pairs)) == "<b>fu\u0308r</b> Tom"


def test_a_tag_stands_between_letters_where_no_space_separates_words():
    words = {"cats": "猫", "like": "好き"}
    assert written("I <b>like</b> cats", "私は猫が好きです。", words) == (
        "私は猫が<b>好き</b>です。"
    )


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("Hello<br>world.</p><p>Again", "Hello world. Again"),
        ("super<b>man</b><!-- ! -->ly", "supermanly"),
        ("R&amp;D &lt;x&gt; &#8364;&nbsp;5 &c", "R&D <x> €\u00a05 &c"),
        ("1 < 2 > 0, <3 and AT&T", "1 < 2 > 0, <3 and AT&T"),
        ("a<script>if (x < y) z()</script> b", "a b"),
    ],
)
def test_the_plain_text_is_what_a_reader_sees(text, plain):
    assert source_of(text).plain == plain


def test_entities_become_characters_and_return():
    source = source_of("<b>R&amp;D</b> &lt; &euro;5")
    assert source.plain == "R&D < €5"
    pairs = [AlignedPair((0, 1), (0, 1), 0.5), AlignedPair((2, 3), (2, 3), 0.5)]
    assert write_markup(source.write("F&E < 5 €", pairs)) == "<b>F&amp;E</b> &lt; 5 €"
    assert write_markup(source_of("R and D").write("F&E", [])) == "F&amp;E"


class Nesting(HTMLParser):
    """Lists the elements of a text, and those that do not nest."""

    def __init__(self, text):
        super().__init__()
        self.open, self.unbalanced = [], []
        self.feed(text)
        self.close()
        self.unbalanced += self.open

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        if self.open[-1:] == [tag]:
            self.open.pop()
        else:
            self.unbalanced.append(tag)


def with_tags(draw, words):
    """Returns words with tags that are nested in any way, each tag with a number."""
    text, first = "", 0
    while first < len(words):
        last = draw.randint(first, len(words))
        part = " ".join(words[first:last])
        if last - first < len(words) and draw.random() < 0.5:
            part = with_tags(draw, words[first:last])
        name = draw.choice(["b", "i", "g", "mark", "br", None])
        number = draw.randrange(10**9)
        if name == "br":
            part += f'<br id="{number}"/>'
        elif name:
            part = f'<{name} id="{number}">{part}</{name}>'
        text += part + draw.choice(["", " "])
        first = max(last, first + draw.randint(0, 1))
    return text


def tags_of(text):
    return re.findall(r"<[^>]*>", text)


@settings(max_examples=300)
@given(st.integers(0, 2**32), st.booleans())
def test_every_tag_returns_and_nests_whatever_is_aligned(seed, is_balanced):
    draw = random.Random(seed)
    row = draw.randrange(len(PHRASES.source))
    source, translation = PHRASES.source[row], PHRASES.target[row]
    text = with_tags(draw, html.escape(source, quote=False).split())
    assert not Nesting(text).unbalanced
    if not is_balanced:
        tags = iter(draw.sample(tags_of(text), len(tags_of(text))))
        text = re.sub(r"<[^>]*>", lambda _: next(tags), text)
    read = source_of(text)
    assume(read.plain.strip())
    pairs = []
    for _ in range(draw.randint(0, 9)):
        spans = []
        for side in (read.plain, translation):
            start = draw.randrange(max(1, len(side)))
            spans.append((start, start + 1))
        pairs.append(AlignedPair(*spans, draw.random()))
    result = write_markup(read.write(translation, pairs))
    assert Counter(tags_of(result)) == Counter(tags_of(text))
    assert html.unescape(re.sub(r"<[^>]*>", "", result)) == translation
    assert not is_balanced or not Nesting(result).unbalanced


def test_a_deeply_nested_text_is_written():
    text = "<b>" * 5000 + "Friday" + "</b>" * 5000
    assert written(text, "Freitag") == text.replace("Friday", "Freitag")


@pytest.fixture(scope="module")
def translator():
    return make_translator()


def test_the_text_is_translated_as_it_is_without_tags(translator):
    texts = [
        SOURCES[0],
        " ",
        "<br/>&nbsp;",
        f"<b>{SOURCES[1]}</b>",
        "a <i>dog</i> rides",
    ]
    search = kt.decoding.GreedySearch()
    best = translate_markup(translator, texts, search, max_length=7)
    found = [one.text for one in best]
    plain = [html.unescape(re.sub("<[/bir]+>", "", text)) for text in texts]
    n_best = translator.translate_n_best(plain, search, max_length=7)
    assert [one[1:] for one in best] == [row[0][1:] for row in n_best]
    expected = [row[0].text for row in n_best]
    assert found[:2] == expected[:2]
    assert found[2] == texts[2]
    assert found[3] == f"<b>{expected[3]}</b>"
    assert re.sub("<[/i]+>", "", found[4]) == expected[4]
    assert sorted(tags_of(found[4])) == ["</i>", "<i>"]


def test_what_no_code_is_stays_text_whatever_it_looks_like(translator):
    fragment = ["a dog ", Code("</b> %s"), "plays"]
    (found, best), (plain, _) = translate_fragments(
        translator, [fragment, ["<b>a</b>"]], kt.decoding.GreedySearch(), max_length=7
    )
    assert "".join(x for x in found if isinstance(x, str)) == best.text
    assert [x for x in found if not isinstance(x, str)] == [fragment[1]]
    assert all(isinstance(x, str) for x in plain)


def test_what_is_no_list_of_texts_is_refused(translator):
    for texts in ("<b>a</b>", [b"a"], None):
        with pytest.raises(ValueError, match="`texts` must be a list of str"):
            translate_markup(translator, texts)
