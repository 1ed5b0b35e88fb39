import random

import pytest
import sacrebleu
from sacrebleu.significance import PairedTest

from keras_transformer.evaluation import (
    cased_bleu,
    chrf,
    paired_bootstrap,
    paper_protocol_bleu,
)

WORDS = ["Mann", "Frau", "Hund", "Ball", "Rad", "Buch", "Haus"]
draw = random.Random(7)
REFERENCES = [f"Ein {' und ein '.join(draw.sample(WORDS, 3))}." for _ in range(101)]
# One sentence in eleven is without an end, and one in three.
GOOD = [x[: None if i % 11 else 9] for i, x in enumerate(REFERENCES)]
BAD = [x[: None if i % 3 else 9] for i, x in enumerate(REFERENCES)]


def test_the_scores_are_those_of_the_whole_text():
    found = paired_bootstrap(GOOD, BAD, REFERENCES)
    for name, score in {"cased BLEU": cased_bleu, "chrF": chrf}.items():
        for one, text in zip(found[name][:2], (GOOD, BAD), strict=True):
            assert one.score == pytest.approx(score(text, REFERENCES)[0])
            assert one.mean == pytest.approx(one.score, abs=1)
            assert 0 < one.margin < 10


def test_a_difference_is_told_from_chance():
    found = paired_bootstrap(GOOD, BAD, REFERENCES)
    # The same mistakes in other sentences.
    shifted = [x[: None if i % 11 != 5 else 9] for i, x in enumerate(REFERENCES)]
    chance = paired_bootstrap(GOOD, shifted, REFERENCES)
    for name in ("cased BLEU", "chrF"):
        assert found[name].p_value < 0.01
        assert chance[name].p_value > 0.1


def test_equal_translations_do_not_differ():
    for scores in paired_bootstrap(GOOD, GOOD, REFERENCES).values():
        assert scores.p_value == 1
        assert scores.first == scores.second


def test_the_numbers_are_those_of_sacrebleu():
    others = [x.replace("Ein ", "Der ") for x in REFERENCES]
    found = paired_bootstrap(GOOD, BAD, REFERENCES, others)["chrF"]
    test = PairedTest(
        [("good", GOOD), ("bad", BAD)],
        {"chrF": sacrebleu.metrics.CHRF()},
        [REFERENCES, others],
        test_type="bs",
    )
    signatures, scores = test()
    good, bad = scores["chrF2"]
    assert found.first == (good.score, good.mean, good.ci)
    assert found.second == (bad.score, bad.mean, bad.ci)
    assert found.p_value == bad.p_value
    assert found.signature == signatures["chrF2"].format()
    assert found.signature.startswith("nrefs:2|bs:1000|seed:12345|")


def test_a_language_makes_it_the_protocol_of_papers():
    tokenized = [x.lower().replace(".", " .") for x in REFERENCES]
    (found,) = paired_bootstrap(GOOD, BAD, tokenized, tokenized_language="de").items()
    name, scores = found
    assert name == "paper-protocol BLEU"
    for one, text in zip(scores[:2], (GOOD, BAD), strict=True):
        assert one.score == pytest.approx(paper_protocol_bleu(text, tokenized, "de")[0])


@pytest.mark.parametrize("counts", [(2, 3, 3), (3, 2, 3), (3, 3, 2), (0, 0, 0)])
def test_all_texts_must_have_equally_many_sentences(counts):
    texts = [REFERENCES[:count] for count in counts]
    message = f"Received: {', '.join(map(str, counts))} sentences"
    with pytest.raises(ValueError, match=message):
        paired_bootstrap(*texts)
