"""The two BLEU figures of a translation, each with its signature."""

import itertools
from collections.abc import Iterable

import numpy as np

_CHUNK_SIZE = 1024


def cased_bleu(
    hypotheses: Iterable[str], references: Iterable[str]
) -> tuple[float, str]:
    """BLEU of text as people write it: the figure to show users.

    Args:
        hypotheses: Translations, detokenised and cased; any iterable, read once and
            not kept.
        references: The right translations, one for each.

    Returns:
        BLEU from 0 to 100, and sacreBLEU's signature, which says how the
        figure was computed.

    Raises:
        ValueError: If there are no hypotheses, or not one reference for each.

    Example:
        >>> score, signature = cased_bleu(["Ein Hund läuft."], ["Ein Hund läuft."])
        >>> score
        100.0
        >>> signature
        'nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:...'

    Reference:
        [Post, 2018](https://arxiv.org/abs/1804.08771)
    """
    return _bleu(hypotheses, references, tokenize="13a")


def paper_protocol_bleu(
    hypotheses: Iterable[str], tokenized_references: Iterable[str], language: str
) -> tuple[float, str]:
    """BLEU as papers report it on lower-cased, Moses-tokenised references.

    The hypotheses are put into the form of the references: lower-cased,
    punctuation normalised, and split (and escaped) by the Moses tokenizer.
    Such figures compare with those of papers, and never with `cased_bleu`.

    Args:
        hypotheses: Translations, detokenised, as an iterable; their case does not
            matter.
        tokenized_references: The right translations, one for each, tokenised.
        language: Code of the translations' language, such as `"de"`.

    Returns:
        BLEU from 0 to 100, and sacreBLEU's signature. The signature knows
        nothing of the lower-casing and tokenising done before.

    Raises:
        ValueError: If there are no hypotheses, or not one reference for each.

    Example:
        >>> score, signature = paper_protocol_bleu(
        ...     ["Ein Hund läuft."], ["ein hund läuft ."], "de"
        ... )
        >>> score
        100.0
        >>> signature
        'nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|version:...'
    """
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normalizer, tokenizer = MosesPunctNormalizer(language), MosesTokenizer(language)
    tokenized = (
        tokenizer.tokenize(normalizer.normalize(text.lower()), return_str=True)
        for text in hypotheses
    )
    return _bleu(tokenized, tokenized_references, tokenize="none")


def _bleu(hypotheses, references, tokenize):
    from sacrebleu.metrics import BLEU

    # `force`: no warning that the text is tokenised where it is meant to be.
    metric = BLEU(tokenize=tokenize, force=tokenize == "none")
    # BLEU is a figure of the counts of the corpus, which add up.
    sums = np.zeros((2, metric.max_ngram_order), int)
    lengths = np.zeros(2, int)
    for hypotheses_chunk, references_chunk in _chunks(hypotheses, references):
        score = metric.corpus_score(hypotheses_chunk, [references_chunk])
        sums += [score.counts, score.totals]
        lengths += [score.sys_len, score.ref_len]
    total = metric.compute_bleu(
        *sums.tolist(), *lengths.tolist(), smooth_method=metric.smooth_method
    )
    return total.score, metric.get_signature().format()


def _chunks(hypotheses, references):
    """Yields both, as lists of some lines each, and raises unless they are as many."""
    hypotheses, references = iter(hypotheses), iter(references)
    counts = np.zeros(2, int)
    while True:
        chunks = [
            list(itertools.islice(side, _CHUNK_SIZE))
            for side in (hypotheses, references)
        ]
        counts += [len(chunk) for chunk in chunks]
        if counts[0] != counts[1] or not counts[0]:
            counts += [sum(1 for _ in side) for side in (hypotheses, references)]
            raise ValueError(
                "`hypotheses` must be a translation for each reference. Received: "
                f"{counts[0]} hypotheses and {counts[1]} references."
            )
        if not chunks[0]:
            return
        yield chunks
