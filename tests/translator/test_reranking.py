import math

import keras
import numpy as np
import pytest
from serving.tiny_translator import SOURCES, TARGETS, make_translator

import keras_transformer as kt
from keras_transformer.text import VocabularyTokenizer
from keras_transformer.translator import RerankedTranslator

BEAM = kt.decoding.BeamSearch(4, length_penalty=0.7, num_hypotheses=4)


@pytest.fixture(scope="module")
def translator():
    return make_translator(updates=20)


@pytest.fixture(scope="module")
def reverse(translator):
    """A translator of the other direction, untrained, with the same tokenizers."""
    keras.utils.set_random_seed(3)
    settings = {"num_layers": 1, "hidden_dim": 16, "num_heads": 2}
    model = kt.models.Transformer(43, 41, intermediate_dim=32, dropout=0.0, **settings)
    tokenizers = translator.target_tokenizer, translator.source_tokenizer
    return kt.Translator(model, *tokenizers, max_source_length=20)


def log_probability(translator, text, target, num_given=0):
    """The log-probability of a target, token by token, and the number of tokens."""
    labels = [*translator.target_tokenizer([target]).to_list()[0], 3]
    inputs = {
        "source_ids": translator.encode([text])[0].numpy(),
        "target_ids": np.array([[2, *labels[:-1]]]),
    }
    logs = keras.ops.log_softmax(translator.model(inputs))[0]
    logs = keras.ops.convert_to_numpy(logs)
    gains = [logs[i, label] for i, label in enumerate(labels)][num_given:]
    return sum(gains), len(gains)


def test_scores_are_the_log_probabilities_of_the_model(translator):
    texts = [*SOURCES, "a", "dog dog dog dog"] * 5
    targets = [*TARGETS[::-1], "", "Hund Hund Hund Hund Hund Hund"] * 5
    scores = translator.score(texts, targets)
    for text, target, score in list(zip(texts, targets, scores, strict=True))[::7]:
        expected, tokens = log_probability(translator, text, target)
        assert score.log_probability == pytest.approx(expected, abs=1e-3)
        assert score.tokens == tokens


def test_scores_are_of_the_model_as_it_is_now(translator):
    model = kt.models.Transformer.from_config(translator.model.get_config())
    model.set_weights(translator.model.get_weights())
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    changing = kt.Translator(model, *tokenizers, max_source_length=20)
    [before] = changing.score(SOURCES[:1], TARGETS[:1])
    model.enable_lora(2)
    for weight in model.trainable_weights:
        weight.assign(weight + 0.05)
    [after] = changing.score(SOURCES[:1], TARGETS[:1])
    fresh = kt.Translator(model, *tokenizers, max_source_length=20)
    assert after == fresh.score(SOURCES[:1], TARGETS[:1])[0]
    assert abs(after.log_probability - before.log_probability) > 0.1


def test_a_score_does_not_depend_on_the_others(translator):
    together = translator.score(SOURCES, TARGETS)
    for text, target, score in zip(SOURCES[:5], TARGETS, together, strict=False):
        (alone,) = translator.score([text], [target])
        assert alone.log_probability == pytest.approx(score.log_probability, abs=1e-4)


def test_scores_of_what_a_beam_finds_are_its_scores(translator):
    search = kt.decoding.BeamSearch(3, length_penalty=0.0)
    found = [one for one, *_ in translator.translate_n_best(SOURCES[:9], search)]
    scores = translator.score(SOURCES[:9], [one.text for one in found])
    for one, score in zip(found, scores, strict=True):
        assert score.log_probability == pytest.approx(one.score, abs=1e-3)


def test_no_texts_have_no_scores(translator):
    assert translator.score([], []) == []


def test_every_text_needs_a_translation(translator):
    with pytest.raises(ValueError, match="Received: 2 texts, 1 translations"):
        translator.score(["a", "b"], ["c"])
    with pytest.raises(ValueError, match="list of str"):
        translator.score("a", ["b"])


def test_reranked_scores_are_those_of_the_equation(translator, reverse):
    texts = SOURCES[:6]
    plain = translator.translate_n_best(texts, BEAM)
    ranked = RerankedTranslator(translator, reverse, 0.4).translate_n_best(texts, BEAM)
    for text, before, after in zip(texts, plain, ranked, strict=True):
        expected = {}
        for translation, score in before:
            if score > -math.inf:
                reverse_score, tokens = log_probability(reverse, translation, text)
                penalty = ((5 + tokens) / 6) ** 0.7
                expected[translation] = score + 0.4 * reverse_score / penalty
        found = {one.text: one.score for one in after if one.score > -math.inf}
        assert found == pytest.approx(expected, abs=1e-3)
        scores = [one.score for one in after]
        assert scores == sorted(scores, reverse=True)


def test_the_whole_beam_is_ranked_for_one_translation(translator, reverse):
    best_alone = kt.decoding.BeamSearch(4, length_penalty=0.7)
    reranked = RerankedTranslator(translator, reverse, 5.0)
    ranked = reranked.translate_n_best(SOURCES, BEAM)
    wanted = [best.text for best, *_ in ranked]
    assert reranked.translate(SOURCES, best_alone) == wanted
    assert list(reranked.translate_stream(iter(SOURCES), best_alone)) == wanted
    assert wanted != translator.translate(SOURCES, best_alone)


def test_a_weight_of_zero_changes_nothing(translator, reverse):
    reranked = RerankedTranslator(translator, reverse, 0)
    assert reranked.translate(SOURCES, BEAM) == translator.translate(SOURCES, BEAM)


def test_blank_texts_stay_blank(translator, reverse):
    reranked = RerankedTranslator(translator, reverse)
    assert reranked.translate([]) == []
    assert reranked.translate(["", " "]) == ["", ""]
    (found,) = reranked.translate_n_best([" "], BEAM)
    assert found == [("", 0.0)] * 4
    assert reranked.translate_n_best(["\u200b", "\x1c"], BEAM) == [found, found]


def test_any_iterable_of_texts_is_reranked(translator, reverse):
    reranked = RerankedTranslator(translator, reverse)
    expected = reranked.translate(SOURCES[:2])
    assert reranked.translate(text for text in SOURCES[:2]) == expected


def test_the_language_of_a_target_does_not_count(translator):
    tokenizer = translator.target_tokenizer
    pieces = tokenizer.pieces(range(43))
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    prefixed = VocabularyTokenizer(
        tokenizer.model_proto, vocabulary, start="<s>", prefix=[pieces[9]]
    )
    tokenizers = translator.source_tokenizer, prefixed
    given = kt.Translator(translator.model, *tokenizers, 20)
    (score,) = given.score(SOURCES[:1], TARGETS[:1])
    expected, tokens = log_probability(given, SOURCES[0], TARGETS[0], num_given=1)
    assert score.log_probability == pytest.approx(expected, abs=1e-3)
    assert score.tokens == tokens == len(prefixed(TARGETS[:1])[0])


@pytest.mark.parametrize("weight", [-0.1, math.inf, math.nan])
def test_the_weight_is_checked(translator, reverse, weight):
    with pytest.raises(ValueError, match=f"Received: weight={weight}"):
        RerankedTranslator(translator, reverse, weight)
