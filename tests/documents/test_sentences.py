import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving.tiny_translator import make_translator

from keras_transformer.documents.sentences import (
    ALWAYS_WRAPPED,
    MAX_WRAPPED_WIDTH,
    MIN_WRAPPED_WIDTH,
    NEVER_WRAPPED,
    joined,
    split_long,
    split_sentences,
    unwrapped,
    wrapped_like,
    wrapped_width,
)

LETTERS = "ab .,;:!?<>/&\"'-\u2013\n\r\t\u2028\xa0\ufeff好。1ä😀"


@pytest.fixture(scope="module")
def translator():
    return make_translator()


@settings(max_examples=70)
@given(
    st.text(st.sampled_from(LETTERS), max_size=60) | st.text(max_size=20),
    st.sampled_from([ALWAYS_WRAPPED, 7.0, NEVER_WRAPPED]),
    st.booleans(),
)
def test_the_parts_of_a_text_are_the_text(text, width, has_tags):
    parts = split_sentences(text, "en", width, has_tags)
    assert len(parts) % 2 == 1
    assert "".join(parts) == text
    assert all(part == part.strip() != "" for part in parts[1::2])


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", [""]),
        ("\n  * 12 *\r\n", ["\n  * 12 *\r\n"]),
        ("  One. Two\n", ["  ", "One.", " ", "Two", "\n"]),
        ("Dr. Smith is in. Yes.", ["", "Dr. Smith is in.", " ", "Yes.", ""]),
        ("- a dog\n- <i>", ["- ", "a dog", "\n- ", "<i>", ""]),
    ],
)
def test_what_has_no_letters_is_kept(text, parts):
    assert split_sentences(text, "en", ALWAYS_WRAPPED) == parts


def test_abbreviations_are_those_of_the_language():
    text = "Er kommt am 3. Mai. Sie auch."
    assert len(split_sentences(text, "de-AT", NEVER_WRAPPED)) == 5
    assert len(split_sentences(text, "en", NEVER_WRAPPED)) > 5


def test_a_line_end_of_the_wrapping_is_no_end_of_a_sentence():
    text = (
        "A heading\nA man in a red shirt and a dog walk along a\n"
        "road in the little town of\nUlm. Yes.\n"
    )
    width = wrapped_width(text)
    assert width == len("A man in a red shirt and a dog walk along a")
    first = "A man in a red shirt and a dog walk along a\nroad in the little town of"
    assert split_sentences(text, "en", width)[1::2] == [
        "A heading",
        first,
        "Ulm.",
        "Yes.",
    ]
    lines = ["A heading", *first.split("\n"), "Ulm.", "Yes."]
    assert split_sentences(text, "en", NEVER_WRAPPED)[1::2] == lines


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
    assert wrapped_like(sentence, translation) == expected


def test_a_pair_of_tags_stays_in_one_sentence():
    text = "<i>One. Two.</i> Three <br> four.</b> <b>Five.</b>"
    expected = ["<i>One. Two.</i>", "Three <br> four.</b> <b>Five.</b>"]
    assert split_sentences(text, "en", NEVER_WRAPPED, has_tags=True)[1::2] == expected


@settings(max_examples=17)
@given(text=st.text(st.sampled_from("ab ,;<i>/\n好"), min_size=1, max_size=300))
def test_the_pieces_of_a_long_sentence_are_read_whole_and_are_the_sentence(
    translator, text
):
    for has_tags in (False, True):
        (pieces,) = split_long(translator, [text], has_tags)
        assert "".join(pieces) == text
        if not has_tags:
            assert not translator.encode(pieces[::2])[1].numpy().any()


def test_long_sentences_are_cut_at_punctuation_then_between_words(translator):
    text = "a dog rides, and a man in a red car plays"
    (pieces,) = split_long(translator, [text], has_tags=False)
    assert "".join(pieces) == text
    assert len(pieces) > 1
    assert all(gap.isspace() for gap in pieces[1::2])
    (pieces,) = split_long(translator, ["a dog, a man and a bike, two trees"], False)
    assert pieces[0].endswith(",") or pieces[2].endswith(",")


def test_sentences_without_spaces_get_one_where_their_translations_have_spaces():
    parts = split_sentences("你好。再见。", "zh", NEVER_WRAPPED)
    assert joined(parts, ["Hello.", "Bye."]) == "Hello. Bye."
    assert joined(parts, parts[1::2]) == "你好。再见。"


def test_a_sentence_is_read_in_one_line():
    assert unwrapped("a \r\n  b\nc") == "a b c"
