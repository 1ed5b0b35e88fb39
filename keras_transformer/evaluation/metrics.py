"""How good translations are: BLEU and chrF, each with its signature."""

import re
from collections.abc import Iterable

from keras_transformer.version import INSTALL

# The codes of ISO 639-3 for what sacreBLEU knows by two letters.
_CODES = dict.fromkeys(("zho", "cmn", "yue", "lzh"), "zh") | {"jpn": "ja", "kor": "ko"}


def cased_bleu(
    hypotheses: Iterable[str],
    references: Iterable[str],
    *more_references: Iterable[str],
    language: str | None = None,
) -> tuple[float, str]:
    """BLEU of cased, detokenized text: the score to report to users.

    Args:
        hypotheses: Translations, detokenized and cased.
        references: The correct translations, one for each.
        *more_references: Other correct translations, one for each.
        language: Code of their language, such as `"ja"`. Chinese, Japanese and Korean
            have their own tokenizers, because spaces do not separate their words.

    Returns:
        BLEU from 0 to 100, and sacreBLEU's signature, which records how it was
        computed.

    Raises:
        ValueError: If there are no hypotheses, or not one reference for each.
        ImportError: For Japanese and Korean, if MeCab is not installed.

    Example:
        >>> score, signature = cased_bleu(["Ein Hund läuft."], ["Ein Hund läuft."])
        >>> score
        100.0
        >>> signature
        'nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:...'

    Reference:
        [Post, 2018](https://arxiv.org/abs/1804.08771)
    """
    metric = bleu_of(language)
    return _corpus_score(metric, hypotheses, references, *more_references)


def bleu_of(language: str | None):
    """Returns sacreBLEU's metric for text of a language; see `cased_bleu`."""
    from sacrebleu.metrics import BLEU

    code = re.split("[-_]", (language or "").lower())[0]
    try:
        return BLEU(trg_lang=_CODES.get(code, code))
    except RuntimeError:
        raise ImportError(
            f"BLEU of {language} needs MeCab, which is not installed. "
            f"Install it with: {INSTALL.format(extra='mecab')}"
        ) from None


def chrf(
    hypotheses: Iterable[str],
    references: Iterable[str],
    *more_references: Iterable[str],
) -> tuple[float, str]:
    """The F-score of character n-grams (chrF2), of cased, detokenized text.

    Unlike BLEU, it gives credit for a word that is correct except for its ending, and
    does not depend on a tokenizer. Arguments, result and errors are as in `cased_bleu`.

    Example:
        >>> score, signature = chrf(["Ein Hund läuft."], ["Ein Hund läuft."])
        >>> score
        100.0
        >>> signature
        'nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:...'

    Reference:
        [Popović, 2015](https://aclanthology.org/W15-3049)
    """
    from sacrebleu.metrics import CHRF

    return _corpus_score(CHRF(), hypotheses, references, *more_references)


def paper_protocol_bleu(
    hypotheses: Iterable[str], tokenized_references: Iterable[str], language: str
) -> tuple[float, str]:
    """BLEU as papers report it, on lower-cased, Moses-tokenized references.

    The hypotheses are lower-cased, their punctuation is normalized, and the Moses
    tokenizer splits (and escapes) them. Never compare the result with `cased_bleu`.

    Arguments, result and errors are as in `cased_bleu`, except that the references are
    tokenized and `language` is the code of their language, such as `"de"`. The
    signature does not mention the lower-casing and tokenization.

    Example:
        >>> score, signature = paper_protocol_bleu(
        ...     ["Ein Hund läuft."], ["ein hund läuft ."], "de"
        ... )
        >>> score
        100.0
        >>> signature
        'nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|version:...'
    """
    tokenized = moses_tokenized(hypotheses, language)
    return _corpus_score(bleu_of_tokens(), tokenized, tokenized_references)


def moses_tokenized(texts: Iterable[str], language: str) -> list[str]:
    """Lower-cases, normalizes and splits texts like `paper_protocol_bleu`.

    Args:
        texts: Lines of text.
        language: Code of their language, such as `"de"`.

    Returns:
        A list of texts whose tokens are separated by spaces.
    """
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normalizer, tokenizer = MosesPunctNormalizer(language), MosesTokenizer(language)
    return [
        tokenizer.tokenize(normalizer.normalize(text.lower()), return_str=True)
        for text in texts
    ]


def bleu_of_tokens():
    """Returns sacreBLEU's metric for text that is tokenized already."""
    from sacrebleu.metrics import BLEU

    return BLEU(tokenize="none", force=True)  # without a warning that it is tokenized


def _corpus_score(metric, hypotheses, *references):
    if any(isinstance(side, (str, bytes)) for side in (hypotheses, *references)):
        raise ValueError(
            "`hypotheses` and references must be lists of texts. Received: one text."
        )
    hypotheses, *references = map(list, (hypotheses, *references))
    counts = [len(side) for side in (hypotheses, *references)]
    if len({*counts}) > 1 or not hypotheses:
        raise ValueError(
            "`hypotheses` must have one translation per reference. Received: "
            f"{counts[0]} hypotheses and {', '.join(map(str, counts[1:]))} references."
        )
    score = metric.corpus_score(hypotheses, references).score
    return score, metric.get_signature().format()
