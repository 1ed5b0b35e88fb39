import io
import random
import re

import pytest
import sentencepiece

from keras_transformer.datasets import locale_phrases
from keras_transformer.datasets.phrase_kinds import PhraseKinds

LOCALE_PAIRS = [("en", "de"), ("en", "fr"), ("de", "ja"), ("en", "ar"), ("pt", "sv")]
MONTHS = {
    "January": "Januar",
    "February": "Februar",
    "March": "März",
    "April": "April",
    "May": "Mai",
    "June": "Juni",
    "July": "Juli",
    "August": "August",
    "September": "September",
    "October": "Oktober",
    "November": "November",
    "December": "Dezember",
}
SWAPPED = str.maketrans(",.", ".,")


@pytest.fixture(
    scope="module",
    params=[
        pair if pair == ("en", "de") else pytest.param(pair, marks=pytest.mark.slow)
        for pair in LOCALE_PAIRS
    ],
    ids="-".join,
)
def data(request):
    return locale_phrases(*request.param)


@pytest.fixture(scope="module")
def english_to_german():
    data = locale_phrases("en", "de", train=4001, validation=11, test=7)
    return list(zip(*data.train, strict=True))


def test_splits_have_the_requested_sizes():
    data = locale_phrases("en", "de", train=211, validation=11, test=7)
    sizes = [[len(side) for side in split] for split in data]
    assert sizes == [[211, 211], [11, 11], [7, 7]]


@pytest.mark.quick("en-de")
def test_no_phrase_is_drawn_twice(data):
    sources = [source for split in data for source in split.source]
    assert len(sources) == 21_000
    assert len(set(sources)) == len(sources)


@pytest.mark.quick("locales0")
@pytest.mark.parametrize(
    "locales",
    [
        ("en", "de"),
        pytest.param(("zh", "en"), marks=pytest.mark.slow),
        pytest.param(("ar", "en"), marks=pytest.mark.slow),
    ],
)
def test_every_phrase_has_one_answer(locales):
    kinds, rng, answers = PhraseKinds(*locales), random.Random(5), {}
    for _ in range(30_011):
        source, target = kinds.draw(rng)
        assert answers.setdefault(source, target) == target


def test_ambiguous_names_are_not_used(english_to_german):
    # In English, CLDR gives this name to a country and to its language.
    assert not any("Tuvalu" in source for source, _ in english_to_german)


def test_marks_of_writing_direction_leave_no_gaps():
    data = locale_phrases("en", "ar", train=1009, validation=11, test=7)
    dates = [text for text in data.train.target if re.search(r"\d\s*/\s*\d", text)]
    assert len(dates) > 20
    assert all(re.match(r"\d\d/\d\d/\d{4}", date) for date in dates)


@pytest.mark.quick("en-de")
def test_words_of_held_out_phrases_occur_in_training_phrases(data):
    def words(texts):
        return {word for text in texts for word in re.findall(r"[^\W\d_]+", text)}

    for side in ("source", "target"):
        learnt = words(getattr(data.train, side))
        assert words(getattr(data.validation, side)) <= learnt
        assert words(getattr(data.test, side)) <= learnt


@pytest.mark.quick("en-de")
def test_phrases_are_short_lines_of_text(data):
    texts = [text for split in data for side in split for text in side]
    assert all(text and text == " ".join(text.split()) for text in texts)
    assert "None" not in " ".join(texts)
    assert sum(len(text) <= 60 for text in texts) > 0.98 * len(texts)


@pytest.mark.quick("en-de-bpe")
@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_sentencepiece_restores_every_phrase(data, model_type):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*data.train.source, *data.train.target]),
        model_writer=model,
        model_type=model_type,
        vocab_size=2003,
        character_coverage=1.0,
        minloglevel=2,
    )
    tokenizer = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    texts = [text for split in data for side in split for text in side]
    ids = tokenizer.encode(texts)
    assert tokenizer.decode(ids) == texts
    assert all(tokenizer.unk_id() not in phrase for phrase in ids)


def test_long_dates_are_written_as_in_german(english_to_german):
    found = 0
    for source, target in english_to_german:
        match = re.fullmatch(r"([A-Z][a-z]+) (\d+), (\d{4})", source)
        if match and match[1] in MONTHS:
            assert target == f"{match[2]}. {MONTHS[match[1]]} {match[3]}"
            found += 1
    assert found > 50


def test_times_are_written_on_the_24_hour_clock_in_german(english_to_german):
    found = 0
    for source, target in english_to_german:
        match = re.fullmatch(r"(\d+):(\d\d) (AM|PM)", source)
        if match:
            hour = int(match[1]) % 12 + 12 * (match[3] == "PM")
            assert target == f"{hour:02}:{match[2]}"
            found += 1
    assert found > 50


def test_numbers_swap_point_and_comma_in_german(english_to_german):
    found = 0
    for source, target in english_to_german:
        if re.fullmatch(r"[\d,.]+ kilograms?", source):
            number, _ = source.split()
            assert target == f"{number.translate(SWAPPED)} Kilogramm"
            found += 1
        if match := re.fullmatch(r"([A-Z]{3}) ([\d,.]+)", source):
            assert target.startswith(f"{match[2].translate(SWAPPED)} ")
            found += 1
    assert found > 50


def test_equal_seeds_give_equal_phrases_and_other_seeds_do_not():
    sizes = {"train": 211, "validation": 5, "test": 7}
    data = locale_phrases("en", "de", **sizes, seed=3)
    assert locale_phrases("en", "de", **sizes, seed=3) == data
    assert locale_phrases("en", "de", **sizes, seed=5).train != data.train


def test_only_the_named_kinds_are_drawn():
    data = locale_phrases("en", "de", train=307, kinds=["percentage", "time"])
    for text in (text for split in data for text in split.source):
        assert re.fullmatch(r"[\d.]+%|\d+:\d\d [AP]M", text)


def test_naming_all_kinds_in_any_order_is_naming_none():
    _, documented = locale_phrases.__doc__.split("kinds: ")
    names = re.findall(r'`"(\w+)"`', documented.partition("Returns:")[0])
    sizes = {"train": 1009, "validation": 11, "test": 7}
    data = locale_phrases("en", "de", **sizes)
    assert locale_phrases("en", "de", **sizes, kinds=names[::-1]) == data


@pytest.mark.parametrize("kinds", [["date", "dates"], "date", []])
def test_kinds_that_do_not_exist_are_refused(kinds):
    message = r"^`kinds` must be a list of names among \('date', .*\)\. Received: "
    with pytest.raises(ValueError, match=message + re.escape(f"{kinds=}.")):
        locale_phrases("en", "de", kinds=kinds)


# A day has 1,440 times; and few lists have only names that occur in the first one.
@pytest.mark.quick("countries-1")
@pytest.mark.parametrize(("kind", "train"), [("time", 1420), ("countries", 1)])
def test_kinds_with_too_few_phrases_are_refused(kind, train):
    message = rf"enough phrases for all splits, {train + 30} .* kinds=\['{kind}'\]\.$"
    with pytest.raises(ValueError, match=message):
        locale_phrases("en", "de", train, validation=19, test=11, kinds=[kind])


@pytest.mark.parametrize("name", ["xx", "", "English", None])
@pytest.mark.parametrize("argument", ["source_locale", "target_locale"])
def test_an_unknown_locale_is_named(argument, name):
    locales = {"source_locale": "en", "target_locale": "de", argument: name}
    message = f"^`{argument}` must be a locale .* Received: {argument}={name!r}\\.$"
    with pytest.raises(ValueError, match=message):
        locale_phrases(**locales)


def test_two_spellings_of_one_locale_are_refused():
    with pytest.raises(ValueError, match="must differ.*'pt_BR'.*'pt-br'"):
        locale_phrases("pt_BR", "pt-br")


def test_a_locale_without_names_is_refused():
    with pytest.raises(ValueError, match="names countries.*target_locale='aa'"):
        locale_phrases("en", "aa")


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_an_empty_split_is_refused(split):
    message = f"`{split}` must be a positive integer. Received: {split}=0."
    with pytest.raises(ValueError, match=message):
        locale_phrases("en", "de", **{split: 0})
