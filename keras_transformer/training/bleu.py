"""The two BLEU figures of a translation, each with its signature."""

from collections.abc import Sequence


def cased_bleu(
    hypotheses: Sequence[str], references: Sequence[str]
) -> tuple[float, str]:
    """BLEU of text as people write it: the figure to show users.

    Args:
        hypotheses: Translations, detokenised and cased.
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
    hypotheses: Sequence[str], tokenized_references: Sequence[str], language: str
) -> tuple[float, str]:
    """BLEU as papers report it on lower-cased, Moses-tokenised references.

    The hypotheses are put into the form of the references: lower-cased,
    punctuation normalised, and split (and escaped) by the Moses tokenizer.
    Such figures compare with those of papers, and never with `cased_bleu`.

    Args:
        hypotheses: Translations, detokenised; their case does not matter.
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
    tokenized = [
        tokenizer.tokenize(normalizer.normalize(text.lower()), return_str=True)
        for text in hypotheses
    ]
    return _bleu(tokenized, tokenized_references, tokenize="none")


def _bleu(hypotheses, references, tokenize):
    if not hypotheses or len(hypotheses) != len(references):
        raise ValueError(
            "`hypotheses` must be a translation for each reference. Received: "
            f"{len(hypotheses)} hypotheses and {len(references)} references."
        )
    from sacrebleu.metrics import BLEU

    # `force`: no warning that the text is tokenised where it is meant to be.
    metric = BLEU(tokenize=tokenize, force=tokenize == "none")
    score = metric.corpus_score(hypotheses, [references]).score
    return score, metric.get_signature().format()
