import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer.text import SubwordTokenizer, VocabularyTokenizer, encode
from keras_transformer.text.encoding import WHITE_SPACE, beginning, encoded_spans

LINES = ["a man rides a bike", "a dog rides a man", "a bike"]
TOKENIZER = SubwordTokenizer.train(LINES, vocabulary_size=25)


def test_texts_are_encoded_with_an_end_and_padding(source_tokenizer):
    sentences = ["kolu ba", "", "ba"]
    subwords = source_tokenizer(sentences).to_list()
    ids, is_cut = encode(sentences, source_tokenizer, max_length=41)
    assert ids.dtype == tf.int32
    assert ids.shape[1] == 1 + max(map(len, subwords))
    for row, expected in zip(ids.numpy().tolist(), subwords, strict=True):
        expected = [*expected, 3]
        assert row == expected + [0] * (len(row) - len(expected))
    assert not is_cut.numpy().any()


def test_long_texts_are_cut_and_reported(source_tokenizer):
    sentences = ["ba " * 17, "ba " * 6, "ba " * 5, "ba"]
    ids, is_cut = encode(sentences, source_tokenizer, max_length=6)
    assert is_cut.numpy().tolist() == [True, True, False, False]
    first, second, third, _ = ids.numpy().tolist()
    assert first == second == third
    assert first[-1] == 3


def test_texts_are_encoded_within_a_function(source_tokenizer):
    function = tf.function(lambda texts: encode(texts, source_tokenizer, 7))
    for sentences in (["kolu ba"], ["muri " * 11, "ba"], []):
        live = encode(sentences, source_tokenizer, 7)
        traced = function(tf.constant(sentences, tf.string))
        for expected, found in zip(live, traced, strict=True):
            assert expected.numpy().tolist() == found.numpy().tolist()


@settings(max_examples=30)
@given(st.text(max_size=50), st.integers(2, 20))
def test_short_texts_are_encoded_whole(text, max_length):
    ids, is_cut = encode([text.encode()], TOKENIZER, max_length)
    expected = TOKENIZER([text.encode()]).to_list()[0]
    assert ids.numpy().tolist() == [[*expected[: max_length - 1], TOKENIZER.end_id]]
    assert is_cut.numpy() == (len(expected) >= max_length)


def test_white_space_is_what_python_takes_for_it():
    characters = [x for x in map(chr, range(0x10000)) if not "\ud800" <= x <= "\udfff"]
    is_blank = tf.strings.regex_full_match(characters, WHITE_SPACE).numpy()
    assert is_blank.tolist() == [x.isspace() for x in characters]


@pytest.mark.parametrize("blank", [" ", "\u3000", "\n", "\v"])
def test_white_space_around_a_text_does_not_hide_it(blank):
    much = 999 * blank
    found = encode([much + "a man" + much, much], TOKENIZER, 9)
    expected = encode(["a man", ""], TOKENIZER, 9)
    for x, y in zip(found, expected, strict=True):
        assert x.numpy().tolist() == y.numpy().tolist()


@pytest.mark.parametrize("blank", [" ", "\u3000", "\n", "\v"])
def test_white_space_within_a_text_does_not_hide_its_end(blank):
    ids, is_cut = encode(["a" + 9001 * blank + "bike"], TOKENIZER, 9)
    expected, _ = encode(["a bike"], TOKENIZER, 9)
    assert ids.numpy().tolist() == expected.numpy().tolist()
    assert not is_cut.numpy().any()
    text = "a" + 9001 * blank + "bike"
    assert shown(text, TOKENIZER) == ["a", "bi", "ke"]


def test_a_tokenizer_gets_no_more_than_can_be_read_of_unknown_characters():
    texts = tf.constant(["\N{GRINNING FACE}" * 250_000, "a man"])
    read, goes_on = beginning(texts, 7)
    assert goes_on.numpy().tolist() == [True, False]
    assert [len(x) for x in read.numpy()] == [64 * 7, 5]


@settings(max_examples=30)
@given(st.text(min_size=1).filter(lambda x: not x[0].isspace()), st.integers(2, 5))
def test_only_the_head_of_a_long_text_is_encoded(text, max_length):
    texts = [text.encode() * 999]
    ids, is_cut = encode(texts, TOKENIZER, max_length)
    assert ids.shape[1] <= max_length
    assert ids[0, -1] == TOKENIZER.end_id
    head = texts[0][: 64 * max_length]
    expected, _ = encode([head], TOKENIZER, max_length)
    assert ids.numpy().tolist() == expected.numpy().tolist()
    assert is_cut.numpy().all()


def shown(text, tokenizer, max_length=99):
    """Returns the text of each subword that has some."""
    spans = encoded_spans([text], tokenizer, max_length)
    assert spans.shape == (*encode([text], tokenizer, max_length)[0].shape, 2)
    return [text[start:end] for start, end in spans[0].numpy() if start < end]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a bike", ["a", "bi", "ke"]),
        ("  a\t\v bike\n", ["a", "bi", "ke"]),
        # a byte order mark and a soft hyphen, which are not read
        ("\ufeffa bi\u00adke", ["a", "bi", "ke"]),
        # compatibility characters, of several bytes
        ("\uff41 \uff42ike\x85a", ["\uff41", "\uff42i", "ke", "a"]),
        ("a\u200bbike", ["a", "bi", "ke"]),
        # one character that becomes several subwords: the last of them has it
        ("\u2480 a", ["\u2480", "a"]),
        ("\N{GRINNING FACE} a", ["\N{GRINNING FACE}", "a"]),
        ("e\u0301 a", ["e\u0301", "a"]),
    ],
)
def test_subwords_stand_where_their_text_does(text, expected):
    assert shown(text, TOKENIZER) == expected


def test_subwords_of_a_text_that_is_cut_stand_where_they_did():
    text = 999 * " \u00ad" + "a bike a man"
    assert shown(text, TOKENIZER, 5) == ["a", "bi", "ke"]


def test_a_text_has_its_spans_whatever_is_before_it():
    texts = [
        "\u00ada \u2060bike",
        999 * "a",
        "",
        99 * " " + "a\u00ad bike",
        "a bi\u00adke",
    ]
    together = encoded_spans(texts, TOKENIZER, 9).numpy()
    for text, spans in zip(texts, together, strict=True):
        alone = encoded_spans([text], TOKENIZER, 9)[0].numpy()
        assert spans[: len(alone)].tolist() == alone.tolist()
        assert not spans[len(alone) :].any()


def test_languages_have_no_text():
    vocabulary = {piece: i for i, piece in enumerate(TOKENIZER.pieces(range(25)))}
    others = ["<pad>", ">>fra<<", "en"]
    vocabulary |= {piece: 25 + i for i, piece in enumerate(others)}
    tokenizer = VocabularyTokenizer(
        TOKENIZER.model_proto,
        vocabulary,
        prefix=["en"],
        reads_language_codes=True,
    )
    assert shown(">>fra<< a bike", tokenizer) == ["a", "bi", "ke"]
    assert shown("a bike", tokenizer) == ["a", "bi", "ke"]


@settings(max_examples=10)
@given(st.lists(st.text(max_size=20), max_size=3), st.integers(2, 20))
def test_spans_lie_one_after_another_within_their_texts(texts, max_length):
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    ids = encode(texts, TOKENIZER, max_length)[0]
    spans = encoded_spans(texts, TOKENIZER, max_length)
    assert spans.shape == (*ids.shape, 2)
    for text, row in zip(texts, spans.numpy().tolist(), strict=True):
        ends = [0]
        for start, end in row:
            if start < end:
                assert ends[-1] <= start
                assert not text[start:end][0].isspace()
                ends.append(end)
            else:
                assert start == end == 0
        assert ends[-1] <= len(text)


@settings(max_examples=10)
@given(st.lists(st.binary(max_size=20), max_size=3))
def test_any_bytes_have_spans(texts):
    texts = tf.constant(texts, tf.string)
    spans = encoded_spans(texts, TOKENIZER, 9)
    assert spans.shape[:2] == encode(texts, TOKENIZER, 9)[0].shape
