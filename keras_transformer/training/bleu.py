"""Two kinds of BLEU, each with its signature."""

import itertools
from collections.abc import Iterable

import numpy as np

_CHUNK_SIZE = 1024


def cased_bleu(
    hypotheses: Iterable[str], references: Iterable[str]
) -> tuple[float, str]:
    """BLEU of cased, detokenised text: the one to show users.

    Args:
        hypotheses: Translations, detokenised and cased; read once, not kept in memory.
        references: The correct translations, one for each.

    Returns:
        BLEU from 0 to 100, and sacreBLEU's signature, which says how it was computed.

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

    The hypotheses are lower-cased, their punctuation is normalised, and the Moses
    tokenizer splits (and escapes) them. Never compare the result with `cased_bleu`.

    Arguments, result and errors are those of `cased_bleu`, except that the references
    are tokenised and `language` is the code of their language, such as `"de"`. The
    signature does not mention the lower-casing and tokenising.

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

    # `force` silences the warning that the text is tokenised, if it should be.
    metric = BLEU(tokenize=tokenize, force=tokenize == "none")
    # BLEU is computed from counts, which add up over chunks of the corpus.
    sums, lengths = np.zeros((2, metric.max_ngram_order), int), np.zeros(2, int)
    for hypotheses_chunk, references_chunk in _chunks(hypotheses, references):
        score = metric.corpus_score(hypotheses_chunk, [references_chunk])
        sums += [score.counts, score.totals]
        lengths += [score.sys_len, score.ref_len]
    total = metric.compute_bleu(
        *sums.tolist(), *lengths.tolist(), smooth_method=metric.smooth_method
    )
    return total.score, metric.get_signature().format()


def _chunks(hypotheses, references):
    """Yields lists of some lines of both; raises unless both have the same number."""
    sides, counts = (iter(hypotheses), iter(references)), np.zeros(2, int)
    while True:
        chunks = [list(itertools.islice(side, _CHUNK_SIZE)) for side in sides]
        counts += [len(chunk) for chunk in chunks]
        if counts[0] != counts[1] or not counts[0]:
            counts += [sum(1 for _ in side) for side in sides]
            raise ValueError(
                "`hypotheses` must have one translation per reference. Received: "
                f"{counts[0]} hypotheses and {counts[1]} references."
            )
        if not chunks[0]:
            return
        yield chunks
