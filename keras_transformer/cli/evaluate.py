"""`keras-transformer evaluate`."""

import heapq
import os
import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from keras_transformer.cli.loading import check_models, load_translator, run_folder
from keras_transformer.cli.options import (
    BatchSize,
    BeamWidth,
    Data,
    LengthPenalty,
    MaxLength,
    MaxLengthRatio,
    MinLength,
    Model,
    NoRepeatNgramSize,
    RepetitionPenalty,
    changed_search,
    say_where,
)
from keras_transformer.cli.translate import (
    progress_bar,
    report_flags,
    translated,
)
from keras_transformer.storage import replace_file
from keras_transformer.text_files import TextFile, read_lines


def evaluate(
    model: Model,
    source_file: Annotated[
        Path | None,
        typer.Option(help="Text to translate, in place of a recipe's.", metavar="FILE"),
    ] = None,
    reference: Annotated[
        list[Path] | None,
        typer.Option(
            help="Correct translations of --source-file. May be given several times.",
            metavar="FILE",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="A second translator, as MODEL, or a file of its translations.",
            metavar="OTHER",
        ),
    ] = None,
    examples: Annotated[
        int,
        typer.Option(
            help="Sentences to show on which MODEL and --against differ most.", min=0
        ),
    ] = 5,
    data: Data = None,
    split: Annotated[
        Literal["validation", "test"] | None,
        typer.Option(help="Split of the recipe to translate. [default: test]"),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="Recipe that names the files. [default: the run's settings.yaml]",
            metavar="RECIPE",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="File to write the translations to."
        ),
    ] = None,
    batch_size: BatchSize = None,
    beam_width: BeamWidth = None,
    length_penalty: LengthPenalty = None,
    min_length: MinLength = None,
    max_length: MaxLength = None,
    max_length_ratio: MaxLengthRatio = None,
    no_repeat_ngram_size: NoRepeatNgramSize = None,
    repetition_penalty: RepetitionPenalty = None,
):
    """Measure BLEU and chrF of a translator on held-out text.

    A run's recipe names the text, or `--source-file` and `--reference` do. Memory
    holds it and its translations.

    Prints cased BLEU and chrF, of text as people write it. If the recipe names
    tokenized references, it also prints BLEU as papers report it: lower-cased,
    punctuation normalised, split by the Moses tokenizer. References are tokenized like
    the translations if the named files do not exist. The two kinds of BLEU are not
    comparable. Each figure comes with sacreBLEU's signature.

    `--against` compares with a second translator by paired bootstrap resampling: each
    figure with its 95% confidence interval, the p-value of the difference, and the
    sentences on which the two differ most, by chrF.

    Choose settings on `validation`, and evaluate on `test` only once they are chosen.

    Example: `keras-transformer evaluate runs/en-de --split test`
    """
    from keras_transformer.cli.evaluated_text import EvaluatedText, text_of_recipe

    if source_file or reference:
        if source_file is None or not reference:
            raise typer.BadParameter(
                "must be given together.", param_hint=["--source-file", "--reference"]
            )
        for name, value in {"data": data, "split": split, "recipe": recipe}.items():
            if value is not None:
                raise typer.BadParameter(
                    "cannot be combined with --source-file.", param_hint=f"--{name}"
                )
        references = [[TextFile(path)] for path in reference]
        text = EvaluatedText([TextFile(source_file)], references)
    else:
        text = text_of_recipe(model, recipe, split or "test", data)
    second_file = None
    if against and run_folder(against).is_file():  # a checkpoint has a folder
        second_file = Path(against)
    check_models(model, *([against] if against else []))
    total = text.check(output, second_file)
    translator = load_translator(model)
    other = load_translator(against) if against and not second_file else None
    controls = (
        beam_width,
        length_penalty,
        min_length,
        max_length_ratio,
        no_repeat_ngram_size,
        repetition_penalty,
    )
    search = changed_search(translator.search, *controls)
    start = time.monotonic()
    with replace_file(output or os.devnull) as file:
        first = _translate(text, total, translator, search, batch_size, max_length)
        file.write_text("".join(f"{line}\n" for line in first), "utf-8")
    seconds = time.monotonic() - start
    if output:
        say_where("The translations are", output)
    second = [*read_lines(second_file)] if second_file else None
    if other:
        search = changed_search(other.search, *controls)
        second = _translate(text, total, other, search, batch_size, max_length)
    if second is None:
        _print_scores(first, text)
    else:
        _print_comparison(first, second, text)
    typer.echo(f"{total} sentences in {seconds:.1f} seconds")
    if second is not None:
        _print_differences(first, second, text, examples)


def _translate(text, total, translator, search, batch_size, max_length):
    """Returns the translations of all sources."""
    translations = []
    with progress_bar() as bar:
        task = bar.add_task("Translating", total=total)
        for path in text.sources:
            found = translated(
                translator, read_lines(path), search, batch_size, max_length
            )
            for number, (_, (best, *_)) in enumerate(found, start=1):
                if "cut source" in best.flags:
                    report_flags(f"{path}:{number}", best, translator)
                translations.append(best.text)
                bar.advance(task)
    return translations


def _print_scores(translations, text):
    """Prints BLEU and chrF of translations, with their signatures."""
    from keras_transformer.evaluation import cased_bleu, chrf, paper_protocol_bleu

    references = text.reference_lines()
    results = {
        "cased BLEU": cased_bleu(translations, *references),
        "chrF": chrf(translations, *references),
    }
    if text.language:
        results["paper-protocol BLEU"] = paper_protocol_bleu(
            translations, text.paper_references(), text.language
        )
    for name, (score, signature) in results.items():
        typer.echo(f"{name:20}{score:6.2f}  {signature}")


def _print_comparison(first, second, text):
    """Prints the scores of two translators, and the p-values of their differences."""
    from keras_transformer.evaluation import paired_bootstrap

    found = paired_bootstrap(first, second, *text.reference_lines())
    if text.language:
        tokenized = text.paper_references()
        found |= paired_bootstrap(first, second, tokenized, language=text.language)
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


def _print_differences(first, second, text, count):
    """Prints the sentences whose two translations differ most, by their chrF."""
    from sacrebleu.metrics import CHRF

    metric = CHRF()
    labels = ["source", *["reference"] * len(text.references), "MODEL", "--against"]
    sides = [text.source_lines(), *text.reference_lines(), first, second]
    rows = []
    for number, lines in enumerate(zip(*sides, strict=True), start=1):
        _, *references, one, other = lines
        scores = [metric.sentence_score(x, references).score for x in (one, other)]
        rows.append((abs(scores[0] - scores[1]), number, scores, lines))
    for difference, number, (one, other), lines in heapq.nlargest(
        count, rows, key=lambda row: row[0]
    ):
        if difference:
            typer.echo(f"\nline {number}: chrF {one:.1f} against {other:.1f}")
            for label, line in zip(labels, lines, strict=True):
                typer.echo(f"  {label:11}{line}")
