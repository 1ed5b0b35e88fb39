import io
import re
import subprocess
import sys

import pytest
import sentencepiece

from keras_transformer.datasets import locale_phrases

LOCALE_PAIRS = [("en", "de"), ("en", "fr"), ("de", "ja"), ("en", "ar"), ("pt", "sv")]


@pytest.fixture(scope="module", params=LOCALE_PAIRS, ids="-".join)
def data(request):
    return locale_phrases(*request.param)


def test_no_phrase_is_drawn_twice(data):
    sources = [source for split in data for source in split.source]
    assert len(sources) == 21_000
    assert len(set(sources)) == len(sources)


def test_held_out_phrases_are_made_of_words_of_the_training_phrases(data):
    def words(texts):
        return {word for text in texts for word in re.findall(r"[^\W\d_]+", text)}

    for side in ("source", "target"):
        learnt = words(getattr(data.train, side))
        assert words(getattr(data.validation, side)) <= learnt
        assert words(getattr(data.test, side)) <= learnt


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_sentencepiece_gives_back_every_phrase(data, model_type):
    model = io.BytesIO()
    texts = [text for split in data for side in split for text in side]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*data.train.source, *data.train.target]),
        model_writer=model,
        model_type=model_type,
        vocab_size=2003,
        character_coverage=1.0,
        minloglevel=2,
    )
    tokenizer = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    assert tokenizer.decode(tokenizer.encode(texts)) == texts


def test_equal_seeds_give_equal_phrases_and_others_do_not():
    sizes = {"train": 2003, "validation": 5, "test": 7}
    data = locale_phrases("en", "de", **sizes, seed=3)
    assert locale_phrases("en", "de", **sizes, seed=3) == data
    assert locale_phrases("en", "de", **sizes, seed=4).train != data.train


def test_an_unknown_locale_is_named():
    with pytest.raises(ValueError, match="`target_locale` must be .*'xx'.*"):
        locale_phrases("en", "xx")


def test_importing_the_package_loads_nothing_heavy():
    code = (
        "import sys, keras_transformer.datasets;"
        "assert not {'babel', 'sentencepiece', 'keras'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
