import re

import numpy as np
import pytest
from serving.tiny_translator import SOURCES

import keras_transformer as kt
from keras_transformer.translator import Terms
from keras_transformer.translator.terms import required_phrases, unknown_texts

EMOJI = "\N{SLICE OF PIZZA}"
ADDRESS = "http://x.org/~tree/?a=1&b=2#c"
GLOSSARY = {
    "dog": "Rad",
    "tree": "Hundemann",
    "five man": "Männer zu fünft",
    "man": "fein",
    "Bike": "Zweirad",
    "plays": "spiel",  # which the model goes on with a "t"
}
TERMS = Terms(GLOSSARY, keep=["url", "emoji", "number", r"[A-Z]+-\d+"])
TEXTS = [
    "a dog rides",
    "a dog dog plays",
    "a tree falls",
    f"two Man plays {EMOJI} {EMOJI}.",
    f"five man falls, see {ADDRESS} ({EMOJI}{EMOJI})",
    "a bike rides 12.5 and AB-34",
    "two bike falls",
    "",
]
SEARCHES = [kt.decoding.GreedySearch(), kt.decoding.BeamSearch(3, num_hypotheses=2)]


@pytest.fixture(scope="module")
def translator(learnt_translator):
    learnt = kt.Translator.load(learnt_translator)
    tokenizers = learnt.source_tokenizer, learnt.target_tokenizer
    return kt.Translator(learnt.model, *tokenizers, max_source_length=40)


def found_in(texts, terms=TERMS):
    return [[one.decode() for one in row] for row in terms.find(texts).to_list()]


def occurs(term, text):
    """Counts a term as a word, in plain Python."""
    return len(re.findall(rf"(?<!\w){re.escape(term)}(?!\w)", text))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a dog and a dog", ["Rad", "Rad"]),
        ("dogs, hotdog, dog_, dog2 and dög", []),
        ("(dog)-tree", ["Rad", "Hundemann"]),
        ("DOG Dog", ["Rad", "Rad"]),
        ("bike BIKE Bike", ["Zweirad"]),
        ("five man, five  Man, five \u00a0 man", ["Männer zu fünft"] * 3),
        ("five, man", ["fein"]),
        ("five man man five man", ["Männer zu fünft", "fein", "Männer zu fünft"]),
        (f"{ADDRESS}. dog", [ADDRESS, "Rad"]),
        ("a\x02dog\x03b 7", ["Rad", "7"]),
        ("3rd, B2B, 1,234.5 and 10:30.", ["1,234.5", "10:30"]),
        (f"AB-34 x{EMOJI}\ufe0fx", ["AB-34", f"{EMOJI}\ufe0f"]),
    ],
)
def test_terms_are_found_as_whole_words_and_patterns_as_they_match(text, found):
    assert found_in(["", text]) == [[], found]


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (
            "url",
            "(see https://a.de/b_(c)?d=ü&e, www.x.org!)",
            "https://a.de/b_(c)?d=ü&e",
        ),
        ("email", "Mail jo.e+x@mail.example.org.", "jo.e+x@mail.example.org"),
        ("placeholder", "100 % of %(name)s", "%(name)s"),
        ("placeholder", "Hi {name}", "{name}"),
        ("placeholder", "Hi {{ x", None),
        ("placeholder", "${HOME} is {0:.2f}", "${HOME}"),
        ("placeholder", "%d files", "%d"),
        ("placeholder", "in %1$s", "%1$s"),
        ("placeholder", "%ld files", "%ld"),
        ("placeholder", "Hi %@, you", "%@"),
        ("placeholder", "Hi %2$@", "%2$@"),
        ("placeholder", "Hi {{ name }}!", "{{ name }}"),
        ("placeholder", "a %%s", "%%s"),
        ("placeholder", "%{n} files", "%{n}"),
        ("placeholder", "%-5.2f and", "%-5.2f"),
        ("placeholder", "%.*s and", "%.*s"),
        ("placeholder", "100%sure 5% off", None),
        ("number", "1.234,56 euros", "1.234,56"),
        ("emoji", "ok \N{WOMAN}\u200d\N{ROCKET}!", "\N{WOMAN}\u200d\N{ROCKET}"),
    ],
)
def test_patterns_with_names_match_what_they_are_named_after(pattern, text, found):
    (row,) = found_in([text], Terms(keep=pattern))
    assert row[:1] == ([found] if found else [])


def test_terms_may_hold_any_character():
    glossary = {"c++": "C (++)", "a.b": "x\\1", "§ 5": "$0", "é": "è"}
    texts = ["c++ axb a.b, § 5 É", "cc++"]
    assert found_in(texts, Terms(glossary)) == [["C (++)", "x\\1", "$0", "è"], []]


def test_what_an_unknown_token_stands_for_is_a_whole_word(translator):
    tokenizer = translator.target_tokenizer
    unknown, end, letter = tokenizer.unknown_id, tokenizer.end_id, tokenizer(["a"])
    letter = letter[0, 1].numpy()  # after the space, which is a subword of its own
    assert tokenizer.pieces([letter]) == ["a"]
    rows = [[unknown, letter, unknown, end], [unknown, unknown, letter, end]]
    texts = ["dog", "dog"]  # whose letters are subwords that begin no word
    given = texts, translator.encode(texts)[0], np.array(rows)[:, None]
    written = unknown_texts(translator, *given, np.array([[EMOJI], [EMOJI]]))
    found = translator.decode(given[-1], SEARCHES[0], written).numpy()
    assert [occurs(EMOJI, one.decode()) for one in found.ravel()] == [1, 1], found


@pytest.mark.quick("beam")
@pytest.mark.parametrize("search", SEARCHES, ids=["greedy", "beam"])
def test_every_translation_contains_the_terms_of_its_text(translator, search):
    """Although the vocabulary knows neither the emoji nor most of the others."""
    translations = translator.translate_n_best(TEXTS, search, terms=TERMS)
    required = found_in(TEXTS)
    assert [len(terms) for terms in required] == [1, 3, 1, 4, 3, 2, 0, 0]
    for hypotheses, terms in zip(translations, required, strict=True):
        for one in hypotheses:
            assert one.score > -np.inf
            for term in terms:
                assert occurs(term, one.text) >= terms.count(term), one
    without = translator.translate_n_best(TEXTS[-2:], search)
    for one, other in zip(without, translations[-2:], strict=True):
        assert [x.text for x in one] == [x.text for x in other]
        np.testing.assert_allclose(
            [x.score for x in one], [x.score for x in other], 1e-5
        )


def test_terms_beyond_the_longest_translation_are_left_out(translator):
    text = "dog " * 7
    (best,) = translator.translate([text], max_length=5, terms=TERMS)
    num_subwords = translator.target_tokenizer(["Rad"]).row_lengths()[0]
    assert occurs("Rad", best) >= (5 - 1) // num_subwords > 0


def test_what_a_vocabulary_cannot_write_takes_the_place_of_one_token(translator):
    unknown_id = translator.target_tokenizer.unknown_id
    found = required_phrases(TERMS, TEXTS, translator, np.full(len(TEXTS), 64))
    rows, texts = (tensor.numpy() for tensor in found)
    stand_ins = [[x.decode() for x in row if x] for row in texts]
    assert stand_ins[3] == [EMOJI, EMOJI]
    assert stand_ins[4][-2:] == [ADDRESS, EMOJI * 2]
    counts = np.sum(rows == unknown_id, axis=(1, 2)).tolist()
    assert counts == [len(row) for row in stand_ins]
    assert rows[0, 0, 0] >= 0
    assert not stand_ins[0]


@pytest.mark.quick("False")
@pytest.mark.parametrize("is_first", [True, False])
def test_an_unknown_token_of_the_model_is_written_as_in_the_source(
    translator, is_first
):
    tokenizer = translator.target_tokenizer
    forced = [tokenizer.unknown_id, *tokenizer(["Hund"])[0].numpy()]
    forced = forced if is_first else [*forced[1:], forced[0]]
    search = kt.decoding.GreedySearch([kt.decoding.ForcedPrefix(forced)])
    text = f"a {EMOJI} dog"
    (best,) = translator.translate([text], search, terms=Terms())
    (without,) = translator.translate([text], search)
    before, _, after = without.partition("\u2047")
    copies = [before + piece + after for piece in ("a", EMOJI, "d", "o", "g")]
    assert best.replace(" ", "") in [copy.replace(" ", "") for copy in copies]


def test_terms_are_read_from_a_file(tmp_path):
    path = tmp_path / "terms.tsv"
    path.write_text("dog\tHund\n\n New  York \tNeu-York\r\n", "utf-8")
    assert Terms(path).glossary == {"dog": "Hund", "New  York": "Neu-York"}
    for line in ("dog", "dog\t", "\tHund", "a\tb\tc"):
        path.write_text(f"a\tb\n{line}\n", "utf-8")
        with pytest.raises(ValueError, match=r"terms.tsv:2 must have .* Received: '"):
            Terms(path)
    with pytest.raises(FileNotFoundError):
        Terms(tmp_path / "none.tsv")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"glossary": {" ": "x"}}, "`glossary` must have no empty term. .*'x' for ' '"),
        ({"glossary": {"x": ""}}, "`glossary` must have no empty term. .*'' for 'x'"),
        ({"keep": ["a("]}, r"Received: 'a\(', Invalid pattern: a\(, .*missing \)"),
        ({"keep": ["a}} ("]}, r"Received: 'a}} \(', Invalid pattern: a}} \(, "),
        ({"keep": ["url", "a*"]}, r"Received: 'a\*', .* matches the empty text"),
    ],
)
def test_terms_that_cannot_be_found_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Terms(**settings)


def test_a_search_that_draws_has_no_terms(translator):
    with pytest.raises(ValueError, match="a beam search or greedy search if there"):
        translator.translate(SOURCES[:1], kt.decoding.Sampling(), terms=TERMS)


def test_phrases_of_single_texts_are_no_terms(translator):
    search = kt.decoding.ConstrainedBeamSearch(2, [[[5]]])
    with pytest.raises(ValueError, match="phrases for 1 texts. Pass `terms`"):
        translator.translate(SOURCES[:1], search)


def test_a_tokenizer_with_a_language_writes_terms_too(translator):
    """And leaves unknown tokens out where nothing is written for them."""
    subwords = translator.target_tokenizer
    pieces = subwords.pieces(range(subwords.vocabulary_size))
    language = pieces[-1]
    tokenizer = kt.text.VocabularyTokenizer(
        subwords.model_proto,
        {piece: i for i, piece in enumerate(pieces)},
        start="<s>",
        end="</s>",
        prefix=[language],
    )
    tokenizers = translator.source_tokenizer, tokenizer
    other = kt.Translator(translator.model, *tokenizers, 40)
    text = f"a dog rides {EMOJI}"
    (best,) = other.translate([text], kt.decoding.GreedySearch(), terms=TERMS)
    assert occurs("Rad", best) >= 1
    assert occurs(EMOJI, best) == 1
    ids = tokenizer([text])
    assert tokenizer.split([text]).row_lengths()[0] == ids.row_lengths()[0]
    assert EMOJI not in tokenizer.detokenize(ids).numpy()[0].decode()
