import gzip
import importlib.util

import pytest
import sacrebleu

from keras_transformer.evaluation import (
    cased_bleu,
    chrf,
    paired_bootstrap,
    paper_protocol_bleu,
)

REFERENCES = [
    "Ein Mann fährt auf einem Fahrrad.",
    "Zwei Hunde spielen im Schnee.",
    "Eine Frau liest ein Buch.",
]
TOKENIZED = [
    "ein mann fährt auf einem fahrrad .",
    "zwei hunde spielen im schnee .",
    "eine frau liest ein buch .",
]


def paper_protocol_bleu_of_german(hypotheses, references):
    return paper_protocol_bleu(hypotheses, references, "de")


def read(path):
    return gzip.open(path, "rt", encoding="utf-8").read().splitlines()


@pytest.mark.quick("en")
@pytest.mark.parametrize("language", ["de", "en"])
def test_references_of_papers_are_rebuilt_from_raw_text(multi30k, language):
    raw = read(multi30k / f"raw/test_2016_flickr.{language}.gz")
    tokenized = read(multi30k / f"tok/test_2016_flickr.{language}.gz")
    assert len(raw) == 1000
    score, _ = paper_protocol_bleu(raw, tokenized, language)
    assert score == pytest.approx(100)
    # BLEU pools the corpus: line by line it must be 100 too.
    for text, reference in zip(raw, tokenized, strict=True):
        score, _ = paper_protocol_bleu([text] * 4, [reference] * 4, language)
        assert score == pytest.approx(100), reference


def test_the_right_translations_have_100():
    assert cased_bleu(REFERENCES, REFERENCES)[0] == pytest.approx(100)
    assert chrf(REFERENCES, REFERENCES)[0] == pytest.approx(100)
    score, _ = paper_protocol_bleu(REFERENCES, TOKENIZED, "de")
    assert score == pytest.approx(100)


def test_case_counts_in_all_but_the_papers_figure():
    lowered = [text.lower() for text in REFERENCES]
    assert cased_bleu(lowered, REFERENCES)[0] < 90
    assert chrf(lowered, REFERENCES)[0] < 90
    score, _ = paper_protocol_bleu(lowered, TOKENIZED, "de")
    assert score == pytest.approx(100)


@pytest.mark.parametrize("language", ["zh", "zh-CN", "zho_Hans", "cmn", "yue"])
def test_chinese_is_split_by_its_own_tokenizer(language):
    references = ["一名男子骑着自行车在街上。", "两只狗在雪地里玩耍。"]
    hypotheses = ["一名男子骑着自行车在路上。", "两只狗在雪地里玩耍。"]
    assert cased_bleu(hypotheses, references)[0] < 60
    score, signature = cased_bleu(hypotheses, references, language=language)
    expected = sacrebleu.corpus_bleu(hypotheses, [references], tokenize="zh").score
    assert score == pytest.approx(expected)
    assert score > 70
    assert "tok:zh" in signature
    scores = paired_bootstrap(hypotheses, hypotheses, references, language=language)
    assert scores["cased BLEU"].first.score == pytest.approx(expected)


@pytest.mark.parametrize(("language", "module"), [("ja", "MeCab"), ("kor", "mecab_ko")])
def test_japanese_and_korean_say_what_they_need(language, module):
    if importlib.util.find_spec(module):
        _, signature = cased_bleu(["a b"], ["a b"], language=language)
        assert "mecab" in signature
        return
    with pytest.raises(ImportError, match=rf"BLEU of {language} .*\[mecab\]"):
        cased_bleu(["a b"], ["a b"], language=language)


def test_a_wrong_word_costs_less_than_a_wrong_sentence():
    word = [REFERENCES[0].replace("Mann", "Hund"), *REFERENCES[1:]]
    sentence = [REFERENCES[1], *REFERENCES[1:]]
    for score in (cased_bleu, chrf):
        assert 100 > score(word, REFERENCES)[0] > score(sentence, REFERENCES)[0]


def test_only_chrf_credits_the_right_part_of_a_word():
    ending = [text.replace("liest", "lies") for text in REFERENCES]
    stem = [text.replace("liest", "xxxxx") for text in REFERENCES]
    assert cased_bleu(ending, REFERENCES) == cased_bleu(stem, REFERENCES)
    assert chrf(ending, REFERENCES)[0] > chrf(stem, REFERENCES)[0]


@pytest.mark.parametrize("score", [cased_bleu, chrf])
def test_a_translation_may_be_as_any_of_several_references(score):
    others = ["Ein Fahrrad.", "Zwei Hunde tollen umher.", "Sie liest."]
    mixed = [REFERENCES[0], *others[1:]]
    alone, signature = score(mixed, REFERENCES)
    assert alone < 90
    assert signature.startswith("nrefs:1|")
    both, signature = score(mixed, REFERENCES, others)
    assert both == pytest.approx(100)
    assert signature.startswith("nrefs:2|")


def test_each_of_several_references_must_be_complete():
    with pytest.raises(ValueError, match="Received: 3 hypotheses and 3, 2 references"):
        chrf(REFERENCES, REFERENCES, TOKENIZED[:2])


def test_translations_without_a_right_word_have_nothing():
    assert cased_bleu(["", "", ""], REFERENCES)[0] == 0
    assert chrf(["", "", ""], REFERENCES)[0] == 0
    assert paper_protocol_bleu(["", "", ""], TOKENIZED, "de")[0] == 0


def test_the_signatures_say_how_the_figures_were_computed():
    _, cased = cased_bleu(REFERENCES, REFERENCES)
    _, paper = paper_protocol_bleu(REFERENCES, TOKENIZED, "de")
    settings = "nrefs:1|case:mixed|eff:no|tok:{}|smooth:exp|version:"
    assert cased.startswith(settings.format("13a"))
    assert paper.startswith(settings.format("none"))


@pytest.mark.parametrize("score", [cased_bleu, chrf, paper_protocol_bleu_of_german])
@pytest.mark.parametrize(("hypotheses", "references"), [(2, 3), (3, 2), (0, 0)])
def test_each_reference_needs_a_translation(score, hypotheses, references):
    message = f"Received: {hypotheses} hypotheses and {references} references"
    with pytest.raises(ValueError, match=message):
        score(REFERENCES[:hypotheses], TOKENIZED[:references])


@pytest.mark.parametrize(
    ("score", "metric"),
    [(cased_bleu, sacrebleu.metrics.BLEU()), (chrf, sacrebleu.metrics.CHRF())],
)
def test_any_iterables_of_texts_are_scored_as_sacrebleu_does(score, metric):
    references = REFERENCES * 7
    hypotheses = [
        " ".join(text.split()[: 2 + index % 5]) for index, text in enumerate(references)
    ]
    corpus = [hypotheses, references, references[1:] + references[:1]]
    found, signature = score(*map(iter, corpus))
    assert found == metric.corpus_score(hypotheses, corpus[1:]).score
    assert signature == metric.get_signature().format()


def test_one_text_is_no_list_of_texts():
    for score in (cased_bleu, chrf):
        with pytest.raises(ValueError, match="must be lists of texts"):
            score("Ein Hund.", "Ein Hund.")
