"""Sampled subwords against SentencePiece's, and against every case counted out."""

import collections
import functools
import itertools
import math

import hypothesis
import hypothesis.strategies as st
import pytest
import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from keras_transformer.text.subword_sampling import subword_sampler
from keras_transformer.text.tokenizer_training import train_model

LINES = ["a man rides a bike", "a dog rides a man", "42 dogs and 17 bikes"] * 3
MODELS = {
    "plain": {},
    "bytes": {"byte_fallback": True, "vocab_size": 313},
    "user-defined symbols": {"user_defined_symbols": ["man", "<b>", "ma", "d\u2581r"]},
    "spaces as suffixes": {"treat_whitespace_as_suffix": True},
    "every space": {"remove_extra_whitespaces": False, "add_dummy_prefix": False},
    "across words": {"split_by_whitespace": False},
    "no normalization": {"normalization_rule_name": "identity"},
}
TEXTS = st.lists(st.sampled_from(["man", "dog ", " rides", "<b>", "é", "中", "  "]))
TEXTS = TEXTS.map("".join) | st.text(max_size=11)


@functools.cache
def model(name, model_type):
    settings = {"vocab_size": 53, "hard_vocab_limit": False, **MODELS[name]}
    return train_model(LINES, model_type=model_type, **settings)


def hand_made(model_type, scores):
    """Returns a model of these subwords, without whitespace of its own."""
    proto = ModelProto()
    proto.trainer_spec.model_type = proto.trainer_spec.ModelType.Value(model_type)
    proto.normalizer_spec.add_dummy_prefix = False
    proto.pieces.add(piece="<unk>", score=0, type=ModelProto.SentencePiece.UNKNOWN)
    for piece, score in scores.items():
        proto.pieces.add(piece=piece, score=score)
    return proto.SerializeToString()


def assert_frequencies(proto, text, alpha, expected):
    """Checks that 20,011 samples have their probabilities, up to five deviations."""
    count = 20_011
    samples = subword_sampler(proto).sample([text] * count, alpha, seed=7)
    found = collections.Counter(map(tuple, samples))
    assert sum(expected.values()) == pytest.approx(1)
    assert set(found) <= set(expected)
    for pieces, probability in expected.items():
        deviation = math.sqrt(count * probability * (1 - probability))
        assert abs(found[pieces] - count * probability) <= 5 * deviation + 1, pieces


# BPE-dropout


@pytest.mark.parametrize("name", MODELS)
@hypothesis.given(texts=st.lists(TEXTS, max_size=5))
@hypothesis.settings(max_examples=40)
def test_without_dropout_subwords_are_those_of_sentencepiece(name, texts):
    proto = model(name, "bpe")
    expected = sentencepiece.SentencePieceProcessor(model_proto=proto)
    expected = expected.encode(texts, out_type=str)
    assert [*subword_sampler(proto).sample(texts, 0.0, seed=3)] == expected


def test_each_merge_is_dropped_with_its_probability_in_every_step():
    ranks = ["ba", "an", "na", "ban", "anan", "nan", "b", "a", "n"]
    scores = {piece: -float(rank) for rank, piece in enumerate(ranks)}
    alpha = 0.37

    def outcomes(symbols):
        """Algorithm 1 of the paper, with every set of dropped merges."""
        merges = [
            (ranks.index(a + b), i)
            for i, (a, b) in enumerate(itertools.pairwise(symbols))
            if a + b in ranks
        ]
        found = collections.Counter()
        for kept in itertools.product([False, True], repeat=len(merges)):
            probability = math.prod(1 - alpha if keep else alpha for keep in kept)
            left = [*itertools.compress(merges, kept)]
            if not left:
                found[symbols] += probability
                continue
            _, i = min(left)
            merged = (*symbols[:i], symbols[i] + symbols[i + 1], *symbols[i + 2 :])
            for pieces, other in outcomes(merged).items():
                found[pieces] += probability * other
        return found

    expected = outcomes(tuple("banana"))
    assert len(expected) > 17
    assert_frequencies(hand_made("BPE", scores), "banana", alpha, expected)


def test_user_defined_symbols_stay_whole():
    (pieces,) = subword_sampler(model("user-defined symbols", "bpe")).sample(
        ["a man<b>d rides"], 1.0, seed=3
    )
    assert pieces == ["\u2581", "a", "\u2581", "man", "<b>", "d\u2581r", *"ides"]


# Subword regularization


@pytest.mark.parametrize("name", MODELS)
@hypothesis.given(texts=st.lists(TEXTS, max_size=5))
@hypothesis.settings(max_examples=40)
def test_the_most_probable_subwords_are_those_of_sentencepiece(name, texts):
    proto = model(name, "unigram")
    expected = sentencepiece.SentencePieceProcessor(model_proto=proto)
    expected = expected.encode(texts, out_type=str)
    assert [*subword_sampler(proto).sample(texts, 1e5, seed=3)] == expected


def test_segmentations_have_their_probability_to_the_power_of_alpha():
    scores = {"b": -3.0, "a": -2.0, "an": -3.1, "na": -3.3, "ban": -4.7, "ana": -3.9}
    proto = hand_made("UNIGRAM", scores)
    scores["n"] = -4.7 - 10  # unknown: ten below the least probable subword
    alpha, text = 0.17, "banana"
    weights = {}
    for cuts in itertools.product([False, True], repeat=len(text) - 1):
        ends = [0, *(i for i, cut in enumerate(cuts, 1) if cut), len(text)]
        pieces = tuple(text[i:j] for i, j in itertools.pairwise(ends))
        if all(piece in scores for piece in pieces):
            weights[pieces] = math.exp(alpha * sum(scores[piece] for piece in pieces))
    expected = {x: weight / sum(weights.values()) for x, weight in weights.items()}
    assert len(expected) > 7
    assert_frequencies(proto, text, alpha, expected)


def test_other_models_are_refused():
    with pytest.raises(ValueError, match=r"a BPE or a unigram model only.* type WORD"):
        subword_sampler(hand_made("WORD", {"ba": -1.0}))
