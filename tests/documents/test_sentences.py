import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencex import segment as _segment
from serving.tiny_translator import make_translator

from keras_transformer.documents.document import ALWAYS_WRAPPED, NEVER_WRAPPED
from keras_transformer.documents.sentences import (
    MAX_WRAPPED_WIDTH,
    MIN_WRAPPED_WIDTH,
    end_within_sentences,
    joined,
    split_long,
    split_sentences,
    unwrapped,
    wrapped_like,
    wrapped_width,
)
from keras_transformer.markup import Code, merged, plain_text, read_markup, write_markup

LETTERS = "ab .,;:!?<>/&\"'-\u2013\n\r\t\u2028\xa0\u3000\ufeff好。1ä😀"


def split(text, language="en", width=NEVER_WRAPPED):
    """Returns the parts of a text with tags, each as such a text."""
    parts = split_sentences(read_markup(text), language, width)
    return list(map(write_markup, parts))


@pytest.fixture(scope="module")
def translator():
    return make_translator()


WRAPPED = """\
The two men had walked for an hour when the rain began, and
neither of them had a coat. Under the first tree they
stopped and waited. It did not end before the evening
came, and so they went on in the dark to the next village,
where nobody
opened the door."""
CAPTIONS = "a man rides a bike\na dog plays\ntwo men wait. they are wet\na tree"


def test_lines_that_plainly_end_within_sentences_are_told_apart():
    assert end_within_sentences(WRAPPED.splitlines())
    assert not end_within_sentences(CAPTIONS.splitlines())
    proper = "The rain began. Nobody had a coat.\nA man waits\n\nhe is wet.\nA dog."
    assert not end_within_sentences(proper.splitlines())
    assert not end_within_sentences([])


@settings(max_examples=200)
@given(
    st.text(st.sampled_from(LETTERS), max_size=60) | st.text(max_size=20),
    st.sampled_from([ALWAYS_WRAPPED, 7.0, NEVER_WRAPPED]),
    st.booleans(),
)
def test_the_parts_of_a_text_are_the_text(text, width, has_tags):
    fragment = read_markup(text) if has_tags else merged([text])
    parts = split_sentences(fragment, "en", width)
    assert len(parts) % 2 == 1
    assert merged(item for part in parts for item in part) == fragment
    for sentence in map(plain_text, parts[1::2]):
        assert any(map(str.isalpha, sentence))
    one_line = [item if isinstance(item, Code) else item.split() for item in fragment]
    found = joined(parts, map(unwrapped, parts[1::2]))
    assert [x if isinstance(x, Code) else x.split() for x in found] == one_line


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", [""]),
        ("\n  * 12 *\r\n", ["\n  * 12 *\r\n"]),
        ("  One. Two\n", ["  ", "One.", " ", "Two", "\n"]),
        ("Dr. Smith is in. Yes.", ["", "Dr. Smith is in.", " ", "Yes.", ""]),
        ("- <i>a dog</i>", ["- <i>", "a dog", "</i>"]),
        ("a.\n* <b></b>", ["", "a.", "\n* <b></b>"]),
        ("<p><b> 1.</b> A dog <x/></p>", ["<p>", "<b> 1.</b> A dog", " <x/></p>"]),
        ("</b>a <b>dog<br>", ["</b>", "a <b>dog", "<br>"]),
        ("One.<br>Two.<br> Three", ["", "One.", "<br>", "Two.", "<br> ", "Three", ""]),
    ],
)
def test_what_has_no_letters_is_kept(text, parts):
    assert split(text, width=ALWAYS_WRAPPED) == parts


def test_abbreviations_are_those_of_the_language():
    text = "Er kommt am 3. Mai. Sie auch."
    assert len(split(text, "de-AT")) == 5
    assert len(split(text, "en")) > 5


def test_a_panic_of_sentencex_costs_no_more_than_an_end_of_a_sentence(monkeypatch):
    import sentencex

    text = "Take Vitamin A\xa0. It is good.\nYes. No."
    assert split(text)[1::2] == ["Take Vitamin A\xa0.", "It is good.", "Yes.", "No."]
    # Whatever it panics at next.
    monkeypatch.setattr(sentencex, "segment", lambda *_: _segment("en", "A\xa0."))
    assert split(text)[1::2] == ["Take Vitamin A\xa0. It is good.", "Yes. No."]


def test_a_line_end_of_the_wrapping_is_no_end_of_a_sentence():
    text = (
        "A heading\nA man in a red shirt and a dog walk along a\n"
        "road in the little town of\nUlm. Yes.\n"
    )
    width = wrapped_width(text)
    assert width == len("A man in a red shirt and a dog walk along a")
    first = "A man in a red shirt and a dog walk along a\nroad in the little town of"
    assert split(text, width=width)[1::2] == [
        "A heading",
        first,
        "Ulm.",
        "Yes.",
    ]
    lines = ["A heading", *first.split("\n"), "Ulm.", "Yes."]
    assert split(text)[1::2] == lines


def test_a_long_address_is_no_measure_of_the_width():
    lines = ["a " * 30] * 40
    assert wrapped_width("\n".join([*lines, "x" * 100])) == 59
    for width in (MIN_WRAPPED_WIDTH - 1, MAX_WRAPPED_WIDTH + 1):
        assert wrapped_width("x" * width) == math.inf


@pytest.mark.parametrize(
    ("sentence", "translation", "expected"),
    [
        ("a b", "c d", "c d"),
        ("one two\nthree four", "eins zwei drei vier", "eins zwei\ndrei vier"),
        ("one\r\n  two\nthree", "eins zwei drei", "eins\r\n  zwei\ndrei"),
        ("one\ntwo", "eins", "eins"),
        ("a\nb\nc\nd", "e f", "e\nf"),
        ("a\nb", "", ""),
    ],
)
def test_a_translation_is_wrapped_as_its_sentence_is(sentence, translation, expected):
    assert wrapped_like([sentence], [translation]) == merged([expected])


def test_a_pair_of_tags_stays_in_one_sentence():
    text = "<i>One. Two.</i> Three <br> four.</b> <b>Five.</b>"
    expected = ["One. Two.", "Three <br> four.", "Five."]
    assert split(text)[1::2] == expected


@settings(max_examples=9)
@given(text=st.text(st.sampled_from("ab ,;<i>/\n好"), min_size=1, max_size=300))
def test_the_pieces_of_a_long_sentence_are_read_whole_and_are_the_sentence(
    translator, text
):
    for sentence in (read_markup(text), [text]):
        ((_, *pieces, _),) = split_long(translator, [[[], sentence, []]])
        assert merged(item for piece in pieces for item in piece) == sentence
        read = [plain_text(piece) for piece in pieces[::2]]
        assert not translator.encode(read)[1].numpy().any()


def test_long_sentences_are_cut_at_punctuation_then_between_words(translator):
    text = "a dog rides, and a man in a red car plays"
    ((_, *pieces, _),) = split_long(translator, [[[], [text], []]])
    pieces = list(map(plain_text, pieces))
    assert "".join(pieces) == text
    assert len(pieces) > 1
    assert all(gap.isspace() for gap in pieces[1::2])
    text = "a dog, a man and a bike, two trees"
    ((_, *pieces, _),) = split_long(translator, [[[], [text], []]])
    assert any(plain_text(piece).endswith(",") for piece in (pieces[0], pieces[2]))


def test_sentences_without_spaces_get_one_where_their_translations_have_spaces():
    parts = split_sentences(["你好。再见。"], "zh", NEVER_WRAPPED)
    assert joined(parts, [["Hello."], ["Bye."]]) == ["Hello. Bye."]
    assert joined(parts, parts[1::2]) == ["你好。再见。"]


def test_a_sentence_is_read_in_one_line_and_its_codes_stay():
    code = Code('<a onclick="a\n b">')
    sentence = ["a \r\n  b\n", code, "c d e"]
    assert unwrapped(sentence) == ["a b ", code, "c d e"]
    translation = [code, "eins zwei drei", code, " vier fünf"]
    wrapped = wrapped_like(sentence, translation)
    assert [x for x in wrapped if isinstance(x, Code)] == [code, code]
    assert plain_text(wrapped) == "eins \r\n  zwei drei\nvier fünf"


def test_long_texts_are_split_in_linear_time():
    # In quadratic time, each takes minutes.
    for piece in ("<b>A dog.</b> ", "<i>A. ", "a<br>", "A dog. ", "a\n"):
        text = read_markup(piece * (2**17 // len(piece)))
        parts = split_sentences(text, "en", ALWAYS_WRAPPED)
        assert merged(item for part in parts for item in part) == text
