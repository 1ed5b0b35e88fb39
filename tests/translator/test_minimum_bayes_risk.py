import itertools

import pytest

from keras_transformer.translator import Translation, minimum_bayes_risk
from keras_transformer.translator.minimum_bayes_risk import sentence_chrf


def sampled(*texts):
    return [Translation(text, -float(index)) for index, text in enumerate(texts)]


def overlap(hypothesis, reference):
    """The number of words of the reference that the hypothesis has."""
    return len(set(hypothesis.split()) & set(reference.split()))


def test_it_is_the_one_that_agrees_most_with_the_others():
    # Sums over the others: 0 + 1 + 1 = 2, 0 + 2 + 1 = 3, 1 + 2 + 1 = 4, 1 + 1 + 1 = 3.
    texts = ["x c d", "a b", "a b c", "a d"]
    assert minimum_bayes_risk(sampled(*texts), overlap).text == "a b c"


def test_equal_samples_count_as_often_as_they_were_drawn():
    # 3 for each of the equal ones, 2 for each of the others.
    texts = ["a b c d", "e", "e", "a b", "e", "e"]
    assert minimum_bayes_risk(sampled(*texts), overlap).text == "e"


def test_a_translation_is_no_evidence_for_itself():
    # With itself the long one would have 6 against 5; without, it has 1 against 3.
    texts = ["a b c d e", "f g", "f g", "a f"]
    assert minimum_bayes_risk(sampled(*texts), overlap).text == "f g"


def test_the_utility_gets_the_hypothesis_first():
    def length(hypothesis, reference):
        return len(hypothesis)

    texts = ["a", "abc", "ab"]
    assert minimum_bayes_risk(sampled(*texts), length).text == "abc"
    assert minimum_bayes_risk(sampled(*texts), lambda h, r: len(r)).text == "a"


def test_by_default_it_is_the_equation_with_chrf():
    texts = [
        "Ein Mann fährt mit dem Rad.",
        "Ein Mann fährt Fahrrad.",
        "Ein Mann fährt auf dem Fahrrad.",
        "Ein Hund läuft.",
    ]
    means = {
        text: sum(sentence_chrf(text, other) for other in texts if other != text) / 3
        for text in texts
    }
    wanted = max(means, key=means.get)
    for order in itertools.permutations(texts):
        assert minimum_bayes_risk(sampled(*order)).text == wanted


def test_the_first_of_equals_is_chosen_with_its_score():
    assert minimum_bayes_risk(sampled("a b", "b a"), overlap) == ("a b", 0.0)
    assert minimum_bayes_risk(sampled("b a", "a b"), overlap) == ("b a", 0.0)


def test_what_was_not_found_is_left_out():
    texts = sampled("a b", "c d")
    texts += [Translation("c d", -float("inf"))] * 3 + sampled("a b c")
    assert minimum_bayes_risk(texts, overlap).text == "a b c"
    missing, (found,) = Translation("", -float("inf")), sampled("a b")
    assert minimum_bayes_risk([missing, found]) == found


@pytest.mark.parametrize("texts", [[""], ["", ""], ["a"], ["a", "a", "a"]])
def test_one_translation_alone_is_chosen(texts):
    assert minimum_bayes_risk(sampled(*texts)) == (texts[0], 0.0)


def test_no_translation_is_refused():
    with pytest.raises(ValueError, match="`translations` must hold .* Received: none"):
        minimum_bayes_risk([])
