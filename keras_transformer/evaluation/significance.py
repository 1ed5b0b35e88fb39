"""Whether one translator is better than another, beyond this particular text."""

from collections.abc import Sequence
from typing import NamedTuple

from keras_transformer.evaluation.metrics import (
    bleu_of,
    bleu_of_tokens,
    moses_tokenized,
)


class Resampled(NamedTuple):
    """A score, and its mean and half its 95% interval over resampled texts."""

    score: float
    mean: float
    margin: float


class PairedScores(NamedTuple):
    """The scores of two translators, and the p-value of their difference."""

    first: Resampled
    second: Resampled
    p_value: float
    signature: str


def paired_bootstrap(
    first: Sequence[str],
    second: Sequence[str],
    references: Sequence[str],
    *more_references: Sequence[str],
    language: str | None = None,
    tokenized_language: str | None = None,
) -> dict[str, PairedScores]:
    """Tests whether two translators of the same text differ by more than chance.

    sacreBLEU draws 1,000 texts of the same size from this one, with replacement and the
    same for both translators, and scores each. It holds them in memory, about 100 KB
    per sentence. `SACREBLEU_SEED` changes the seed from 12345.

    Args:
        first: Translations by one translator, detokenized and cased.
        second: Translations by the other.
        references: The correct translations, one for each.
        *more_references: Other correct translations, one for each.
        language: Code of their language, as in `cased_bleu`.
        tokenized_language: The same for references tokenized as in papers; see
            `paper_protocol_bleu`. None: the references are ordinary text.

    Returns:
        A dictionary from the name of a metric ("cased BLEU" and "chrF"; or, with a
        `tokenized_language`, "paper-protocol BLEU") to its scores: `first` and
        `second`, each with `score`, and `mean` and `margin` of its 95% interval;
        `p_value`, the probability that a difference this large arises by chance; and
        sacreBLEU's `signature`.

    Raises:
        ValueError: If there are no translations, or not one for each reference.

    Example:
        >>> references = ["Ein Hund läuft.", "Ein Mann liest ein Buch."] * 50
        >>> translations = ["Ein Hund läuft.", "Ein Mann liest."] * 50
        >>> scores = paired_bootstrap(references, translations, references)["chrF"]
        >>> scores.first.score > scores.second.score
        True
        >>> scores.p_value < 0.01
        True

    Reference:
        [Koehn, 2004](https://aclanthology.org/W04-3250);
        [Post, 2018](https://arxiv.org/abs/1804.08771)
    """
    from sacrebleu.metrics import CHRF
    from sacrebleu.significance import PairedTest

    texts = [list(text) for text in (first, second, references, *more_references)]
    counts = [len(text) for text in texts]
    if len(set(counts)) > 1 or not counts[0]:
        raise ValueError(
            "`first`, `second` and all references must have the same number of "
            f"sentences. Received: {', '.join(map(str, counts))} sentences."
        )
    if tokenized_language is None:
        metrics = {"cased BLEU": bleu_of(language), "chrF": CHRF()}
    else:
        texts[:2] = (moses_tokenized(x, tokenized_language) for x in texts[:2])
        metrics = {"paper-protocol BLEU": bleu_of_tokens()}
    systems = [("first", texts[0]), ("second", texts[1])]
    found = {}
    for name, metric in metrics.items():
        test = PairedTest(systems, {name: metric}, texts[2:], test_type="bs")
        (signature,), (_, results) = (x.values() for x in test())
        one, other = (Resampled(x.score, float(x.mean), float(x.ci)) for x in results)
        # sacreBLEU gives two equal translations the smallest p-value, 1 / 1001.
        p_value = 1.0 if texts[0] == texts[1] else results[1].p_value
        found[name] = PairedScores(one, other, p_value, signature.format())
    return found
