import pytest
from serving.tiny_translator import SOURCES, make_translator

import keras_transformer as kt
from keras_transformer.translation import num_repeated, num_sentences
from keras_transformer.translator import flags

GREEDY = kt.decoding.GreedySearch()
SOURCE = "Two men in red shirts sit on a bench. A dog sleeps under it."
TRANSLATION = (
    "Zwei Männer in roten Hemden sitzen auf einer Bank. Ein Hund schläft darunter."
)


def found(source, translation, **known):
    """Returns the flags of a translation, with words in place of subwords."""
    return flags(
        source, translation, len(source.split()), len(translation.split()), **known
    )


@pytest.mark.parametrize(
    ("source", "translation", "expected"),
    [
        (SOURCE, TRANSLATION, ()),
        (SOURCE, TRANSLATION + " schläft darunter" * 3, ("loop", "length")[:1]),
        (SOURCE, TRANSLATION + " auf einer Bank. Ein Hund" * 5, ("loop", "length")),
        (SOURCE * 3, TRANSLATION * 3, ()),
        (SOURCE, TRANSLATION.partition(" Ein")[0], ("dropped sentence",)),
        (
            "It is 5 p.m. now, and we sit on a bench.",
            "Es ist jetzt 17 Uhr, und wir sitzen auf einer Bank.",
            (),
        ),
        (SOURCE, "Zwei Männer", ("length", "dropped sentence")),
        ("yes " * 5, "ja " * 5, ()),
        ("我们坐在长椅上。狗在睡觉。", "我们坐在长椅上。" * 4, ("loop", "length")[:1]),
    ],
)
def test_a_translation_is_flagged_for_what_is_wrong_with_it(
    source, translation, expected
):
    assert found(source, translation) == expected


def test_true_translations_are_not_flagged_and_most_spoiled_ones_are():
    phrases = kt.datasets.locale_phrases("en", "de", train=300, validation=1, test=1)
    texts = list(zip(*phrases.train, strict=True))
    num_wrong = num_dropped = num_loops = 0
    for source, target in texts:
        sources, targets = f"{source}! {source}!", f"{target}! {target}!"
        num_wrong += bool({"loop", "dropped sentence"} & {*found(sources, targets)})
        num_dropped += "dropped sentence" in found(sources, f"{target}!")
        num_loops += "loop" in found(source, target + " und" * 9)
    assert num_loops == len(texts)
    # "Okt." and "U.S." look like ends of sentences.
    assert num_dropped / (num_dropped + num_wrong) > 0.98
    assert num_dropped / len(texts) > 0.9


def test_a_search_tells_what_the_texts_do_not_show():
    known = {"is_cut": True, "has_end": False, "has_unknown": True}
    expected = "cut source", "unknown words", "no end"
    assert found(SOURCE, TRANSLATION, **known) == expected


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("one two three", 0),
        ("in front of it, in front of us", 1),
        ("a a a a a", 2),
        ("汉字汉字汉字", 2),
    ],
)
def test_repeated_sequences_of_three_words_are_counted(text, count):
    assert num_repeated(text) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("One", 1),
        ("One.", 1),
        ("One. Two", 2),
        ("你好。再见。", 2),
        ("3.5 m", 1),
        ('So... "Yes!" No?!', 3),
        ("...", 1),
    ],
)
def test_sentences_are_counted(text, count):
    assert num_sentences(text) == count


def test_a_translator_tells_what_is_wrong_with_each_hypothesis():
    translator = make_translator(max_source_length=20)
    texts = ["a dog rides", "a dog rides " * 9, "a Ж", ""]
    translations = translator.translate_n_best(texts, GREEDY, max_length=3)
    flagged = [set(best.flags) for (best,) in translations]
    assert "cut source" in flagged[1]
    assert "unknown words" in flagged[2]
    assert not {"cut source", "unknown words"} & flagged[0]
    assert flagged[3] == set()
    assert all("no end" in one for one in flagged[:3])
    ended = kt.decoding.GreedySearch(end_ids=range(43))  # whatever comes first
    ((best,),) = translator.translate_n_best(SOURCES[:1], ended, max_length=3)
    assert "no end" not in best.flags
