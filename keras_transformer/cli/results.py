"""What `keras-transformer evaluate` prints."""

import heapq

import typer

from keras_transformer.cli.evaluated_text import EvaluatedText, lines_of


def print_scores(translations, text: EvaluatedText) -> None:
    """Prints BLEU and chrF of translations, with their signatures.

    `translations` is a function that returns their lines.
    """
    from keras_transformer.training import cased_bleu, chrf, paper_protocol_bleu

    def references():
        return map(lines_of, text.references)

    results = {
        "cased BLEU": cased_bleu(translations(), *references()),
        "chrF": chrf(translations(), *references()),
    }
    if text.language:
        results["paper-protocol BLEU"] = paper_protocol_bleu(
            translations(), text.paper_references(), text.language
        )
    for name, (score, signature) in results.items():
        typer.echo(f"{name:20}{score:6.2f}  {signature}")


def print_comparison(first, second, text: EvaluatedText) -> None:
    """Prints the scores of two translators, and the p-values of their differences.

    `first` and `second` are functions as in `print_scores`.
    """
    from keras_transformer.training import paired_bootstrap

    both = list(first()), list(second())
    found = paired_bootstrap(*both, *(list(lines_of(x)) for x in text.references))
    if text.language:
        tokenized = list(text.paper_references())
        found |= paired_bootstrap(*both, tokenized, language=text.language)
    typer.echo(f"{'':21}{'MODEL':22}--against")
    for name, scores in found.items():
        columns = [
            f"{one.score:5.2f} ({one.mean:.2f} ± {one.margin:.2f})"
            for one in (scores.first, scores.second)
        ]
        typer.echo(
            f"{name:21}{columns[0]:22}{columns[1]:22}p = {scores.p_value:.4f}\n"
            f"  {scores.signature}"
        )


def print_differences(first, second, text: EvaluatedText, count: int) -> None:
    """Prints the sentences whose two translations differ most, by their chrF."""
    from sacrebleu.metrics import CHRF

    metric = CHRF()
    sides = [lines_of(text.sources), *map(lines_of, text.references), first(), second()]
    labels = ["source", *["reference"] * len(text.references), "MODEL", "--against"]

    def scores(lines):
        _, *references, one, other = lines
        return [metric.sentence_score(x, references).score for x in (one, other)]

    def difference(row):
        _, _, (one, other) = row
        return abs(one - other)

    numbered = enumerate(zip(*sides, strict=True), start=1)
    rows = ((number, lines, scores(lines)) for number, lines in numbered)
    for number, lines, (one, other) in heapq.nlargest(count, rows, difference):
        if one != other:
            typer.echo(f"\nline {number}: chrF {one:.1f} against {other:.1f}")
            for label, line in zip(labels, lines, strict=True):
                typer.echo(f"  {label:11}{line}")
