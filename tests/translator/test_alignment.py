import keras
import numpy as np
import pytest
from babel.dates import get_day_names, get_month_names
from serving.tiny_translator import SOURCES, TARGETS, make_translator

import keras_transformer as kt
from keras_transformer.translator import AlignedPair, pharaoh, word_links
from keras_transformer.translator.alignment import aligned_pairs


@pytest.fixture(scope="module")
def translator():
    return make_translator()


def test_a_subword_is_aligned_to_what_it_attends_to_most():
    # "a big bike" is "ein Rad": three subwords and an end token, two and an end token.
    source_spans = np.array([[(0, 1), (2, 5), (6, 10), (0, 0)]])
    target_spans = np.array([[(0, 3), (4, 7), (0, 0)]])
    is_end = np.array([[False, False, False, True]])
    weights = [[[0.7, 0.1, 0.1, 0.1], [0.2, 0.2, 0.5, 0.1], [0, 0, 0.2, 0.8]]]
    (pairs,) = aligned_pairs(
        np.array(weights, "float32"), source_spans, target_spans, is_end
    )
    assert [pair[:2] for pair in pairs] == [((0, 1), (0, 3)), ((6, 10), (4, 7))]
    assert [pair.weight for pair in pairs] == pytest.approx([0.7, 0.5])
    assert word_links("a big bike", "ein Rad", pairs) == [(0, 0), (2, 1)]


@pytest.mark.parametrize(
    ("weights", "aligned"),
    [
        ([[0.6, 0.3, 0.1], [0.6, 0.3, 0.1]], [0, 0]),
        # What attracts all attention counts for less.
        ([[0.6, 0.4, 0.0], [0.9, 0.1, 0.0]], [1, 0]),
        # The end token is no word: what attends to it is not aligned.
        ([[0.2, 0.0, 0.8], [0.3, 0.5, 0.2]], [None, 1]),
        # What attends to no word at all is aligned to none.
        ([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]], [None, None]),
    ],
)
def test_the_end_and_words_that_attract_all_attention_do_not_win(weights, aligned):
    # The last of the four is the mark of a space, which has no text.
    source_spans = np.array([[(0, 1), (1, 2), (0, 0), (0, 0)]])
    target_spans = np.array([[(0, 1), (1, 2)]])
    is_end = np.array([[False, False, True, False]])
    weights = np.pad(weights, [(0, 0), (0, 1)], constant_values=9.0)
    (pairs,) = aligned_pairs(weights[None], source_spans, target_spans, is_end)
    found = dict.fromkeys(range(2))
    found.update((pair.target[0], pair.source[0]) for pair in pairs)
    assert list(found.values()) == aligned


def test_words_are_linked_that_hold_aligned_subwords():
    text, translation = " New  York's bus ", "Bus von New York"
    spans = [
        ((13, 14), (0, 3)),
        ((1, 4), (8, 11)),
        ((6, 8), (12, 14)),
        ((6, 12), (14, 16)),
    ]
    pairs = [AlignedPair(*span, 1.0) for span in spans]
    links = word_links(text, translation, pairs)
    assert links == [(0, 2), (1, 3), (2, 0)]
    assert pharaoh(links) == "0-2 1-3 2-0"
    assert pharaoh(word_links("", "", [])) == ""


def attention_of(translator, text, translation):
    """Returns the attention of the last layer, without batches and padding."""
    model, encode = translator.model, kt.text.encode
    source_ids, labels = (
        encode([side], tokenizer, 99)[0]
        for side, tokenizer in (
            (text, translator.source_tokenizer),
            (translation, translator.target_tokenizer),
        )
    )
    target_ids = np.append([[2]], labels[:, :-1], axis=1)
    return model.attention_scores(source_ids, target_ids)["cross"].numpy()[-1, 0]


def test_a_pair_is_aligned_as_it_is_alone(translator):
    texts = ["a dog  rides", "", " \t", "dog", *SOURCES[9:13]]
    translations = ["zwei Hund", "Hund", "", " ", *TARGETS[:4]]
    together = translator.align(texts, translations)
    assert list(map(bool, together[:5])) == [True, False, False, False, True]
    for text, translation, pairs in zip(
        texts[:5], translations[:5], together[:5], strict=True
    ):
        (alone,) = translator.align([text], [translation])
        assert [x[:2] for x in pairs] == [x[:2] for x in alone]
        weights = attention_of(translator, text, translation).mean(axis=0)
        for pair in pairs:
            assert text[slice(*pair.source)].strip() == text[slice(*pair.source)] != ""
            assert translation[slice(*pair.target)] in translation
            assert np.isclose(weights, pair.weight, 1e-4).any()
    assert translator.align([], []) == []


def test_layers_but_the_first_and_all_heads_are_averaged():
    translator = make_translator(num_layers=3)
    source_ids, labels = np.array([[5, 7, 11, 3]]), np.array([[5, 9, 3]])
    found = kt.translator.alignment.alignment_weights(
        translator.model, source_ids, labels
    )
    scores = translator.model.attention_scores(source_ids, np.array([[2, 5, 9]]))
    np.testing.assert_allclose(
        found, scores["cross"].numpy()[1:].mean(axis=(0, 2)), 1e-5, 1e-6
    )


@pytest.mark.slow
def test_an_ensemble_averages_its_models():
    keras.utils.set_random_seed(1)
    parts = [make_translator(), make_translator()]
    both = kt.translator.ensemble(parts)
    weights = [
        kt.translator.alignment.alignment_weights(
            one.model, np.array([[5, 7, 11, 3]]), np.array([[5, 9, 3]])
        ).numpy()
        for one in (*parts, both)
    ]
    assert not np.allclose(weights[0], weights[1], 1e-3)
    np.testing.assert_allclose(weights[2], (weights[0] + weights[1]) / 2, 1e-5)


def test_new_weights_align_anew(translator):
    (before,) = translator.align(SOURCES[:1], TARGETS[:1])
    weights = translator.model.get_weights()
    translator.model.set_weights([3 * weight[::-1] for weight in weights])
    (after,) = translator.align(SOURCES[:1], TARGETS[:1])
    translator.model.set_weights(weights)
    assert before != after
    assert translator.align(SOURCES[:1], TARGETS[:1]) == [before]


def test_what_does_not_fit_is_refused(translator):
    with pytest.raises(ValueError, match="Received: 1 texts, 2 translations"):
        translator.align(["a"], ["ein", "Rad"])
    with pytest.raises(ValueError, match="must be a list of str"):
        translator.align("a", ["ein"])


def known_links(text, translation):
    """Links the numbers and the names in an English date and its German translation."""
    words, others = (
        [word.strip(",.") for word in side.split()] for side in (text, translation)
    )
    names = {word: {word} for word in words if word.isdecimal()}
    for names_of in (get_month_names, get_day_names):
        for width in ("wide", "abbreviated"):
            english, german = names_of(width, locale="en"), names_of(width, locale="de")
            for key, name in english.items():
                names.setdefault(name, set()).add(german[key].strip("."))
    return {
        (row, column)
        for row, word in enumerate(words)
        for column, other in enumerate(others)
        if other in names.get(word, ())
    }


@pytest.mark.slow
def test_numbers_and_names_of_dates_are_aligned_better_than_by_a_diagonal():
    keras.utils.set_random_seed(3)
    data = kt.datasets.locale_phrases(
        "en", "de", train=6000, validation=1, test=200, kinds=["date", "part_of_date"]
    )
    tokenizer = kt.text.SubwordTokenizer.train(
        [*data.train.source, *data.train.target], vocabulary_size=250, split_digits=True
    )
    sizes = {"hidden_dim": 64, "num_heads": 4, "intermediate_dim": 128}
    model = kt.models.Transformer(
        tokenizer.vocabulary_size, num_layers=2, normalize_first=True, **sizes
    )
    model.compile(keras.optimizers.Adam(2e-3), kt.training.TokenCrossentropy())
    source_ids, labels = (
        kt.text.encode(side, tokenizer, 32)[0].numpy() for side in data.train
    )
    target_ids = np.pad(labels, ((0, 0), (1, 0)), constant_values=2)[:, :-1]
    inputs = {"source_ids": source_ids, "target_ids": target_ids}
    model.fit(inputs, labels, 64, epochs=6, verbose=0)
    texts, translations = data.test
    aligned = kt.Translator(model, tokenizer).align(texts, translations)
    known = list(map(known_links, texts, translations))
    ours = error_rate(known, map(word_links, texts, translations, aligned))
    assert ours < 0.3 * error_rate(known, map(diagonal, texts, translations))


def error_rate(all_known, all_found):
    """Returns the alignment error rate, by the words that have a known link."""
    right = made = wanted = 0
    for known, found in zip(all_known, all_found, strict=True):
        words = {word for _, word in known}
        right += len(known & set(found))
        made += sum(word in words for _, word in found)
        wanted += len(known)
    return 1 - 2 * right / (made + wanted)


def diagonal(text, translation):
    """Links each word of a translation to the word that stands where it does."""
    last, words = len(text.split()) - 1, range(len(translation.split()))
    return [(round(last * word / max(1, len(words) - 1)), word) for word in words]
