"""`keras-transformer evaluate`."""

import heapq
import itertools
import os
import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from keras_transformer import evaluation
from keras_transformer.cli import loading, options
from keras_transformer.cli.translate import progress_bar, report_flags
from keras_transformer.storage import replace_file
from keras_transformer.text_files import TextFile, paired_files, read_lines, read_pairs


@options.with_search_options
def evaluate(
    model: options.Model,
    source_file: Annotated[
        Path | None,
        typer.Option(help="Text to translate instead of the recipe's.", metavar="FILE"),
    ] = None,
    reference: Annotated[
        list[Path] | None,
        typer.Option(
            help="Correct translations of --source-file. Can be repeated.",
            metavar="FILE",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="Second translator, like MODEL, or a file of its translations.",
            metavar="OTHER",
        ),
    ] = None,
    examples: Annotated[
        int,
        typer.Option(
            help="Sentences to show where MODEL and --against differ most.", min=0
        ),
    ] = 5,
    data: options.Data = None,
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
    batch_size: options.BatchSize = None,
    search_options: options.SearchOptions = options.UNCHANGED,
):
    """Measure BLEU and chrF of a translator on held-out text.

    The text comes from the run's recipe, or from `--source-file` and `--reference`. It
    and its translations must fit in memory.

    Prints cased BLEU and chrF of detokenized text. If the recipe names tokenized
    references, it also prints BLEU as papers report it: lower-cased, punctuation
    normalized, split by the Moses tokenizer. If these files do not exist, the
    references are tokenized like the translations. The two kinds of BLEU are not
    comparable. Each score comes with sacreBLEU's signature.

    `--against` compares with a second translator by paired bootstrap resampling. It
    prints each score with its 95% confidence interval, the p-value of the difference,
    and the sentences where the two differ most in chrF.

    Choose settings on `validation`, and use `test` only once they are chosen.

    Example: `keras-transformer evaluate runs/en-de --split test`
    """
    if source_file or reference:
        if source_file is None or not reference:
            both = ["--source-file", "--reference"]
            raise typer.BadParameter("must be given together.", param_hint=both)
        for name, value in {"data": data, "split": split, "recipe": recipe}.items():
            if value is not None:
                problem = "cannot be combined with --source-file."
                raise typer.BadParameter(problem, param_hint=f"--{name}")
        targets = [[TextFile(path)] for path in reference]
        files: tuple = [TextFile(source_file)], targets, [], ""
        _, written_in = loading.languages_of_run(model) or (None, None)
    else:
        *files, written_in = files_of_recipe(model, recipe, split or "test", data)
    second_file = None
    if against and loading.run_folder(against).is_file():  # a checkpoint has a folder
        second_file = TextFile(Path(against))
    loading.check_models(model, *([against] if against else []))
    sources, targets, tokenized_targets, language = files
    read = [*sources, *itertools.chain(*targets), *tokenized_targets, second_file]
    if output and output.resolve() in [x.path.resolve() for x in read if x]:
        raise ValueError(f"{output} is an input file. Choose another output file.")
    pairs, references, tokenized = read_text(*files)
    total = len(pairs)
    second = list(read_lines(second_file)) if second_file else None
    if second is not None and len(second) != total:
        raise ValueError(
            f"{second_file} must hold one translation of each of the {total} "
            f"sentences. Received: {len(second)} lines."
        )
    evaluation.metrics.bleu_of(written_in)  # raises an error if its package is missing
    translator = loading.load_translator(model)
    other = loading.load_translator(against) if against and second is None else None
    search = options.changed_search(translator.search, search_options)
    limits = batch_size, search_options.max_length
    start = time.monotonic()
    with replace_file(output or os.devnull) as unfinished:
        first = _translate(pairs, translator, search, *limits)
        unfinished.write_text("".join(f"{line}\n" for line in first), "utf-8")
    seconds = time.monotonic() - start
    if output:
        typer.echo(f"The translations are in {output}.", err=True)
    if other:
        search = options.changed_search(other.search, search_options)
        second = _translate(pairs, other, search, *limits)
    if second is None:
        _print_scores(first, references, tokenized, language, written_in)
    else:
        _print_comparison(first, second, references, tokenized, language, written_in)
    typer.echo(f"{total} sentences in {seconds:.1f} seconds")
    if second is not None:
        _print_differences(first, second, pairs, references, examples)


def files_of_recipe(model: str, recipe: str | None, split: str, data: Path | None):
    """Returns the arguments of `read_text` for a split of a recipe; and a language."""
    settings = loading.run_folder(model) / "settings.yaml"
    if recipe is None and not settings.is_file():
        raise FileNotFoundError(
            f"{model} is not a run with a recipe that names the files. Pass --recipe, "
            "or --source-file and --reference."
        )
    from keras_transformer.runs import Recipe, Run

    changes = {"data.folder": str(data.resolve())} if data else {}
    run = Run(settings.parent)
    text = (Recipe.load(recipe) if recipe else run.settings).replace(changes).data
    if split == "validation" and text.validation is None:
        from keras_transformer.runs.settings import held_out_files

        source, reference = held_out_files(settings.parent)
        return [source], [[reference]], [], "", text.target
    text.check_files(split)
    sources, references = (text.paths(split, side) for side in ("source", "target"))
    if not getattr(text, split).tokenized:
        return sources, [references], [], "", text.target
    tokenized = text.paths(split, "tokenized")
    if not all(file.path.exists() for file in tokenized):
        tokenized = []
    return sources, [references], tokenized, text.target, text.target


def read_text(sources, references, tokenized, language: str):
    """Returns sentence pairs, each set of references, and the first one tokenized.

    The arguments are lists of files, `references` one for each set. Without `tokenized`
    files, the first set is tokenized as papers did, by the rules of a `language`, if
    one is named.
    """
    sides = [*references, tokenized] if tokenized else references
    pairs = [list(read_pairs(paired_files(sources, side))) for side in sides]
    lines = [[pair.target for pair in side] for side in pairs]
    if tokenized:
        return pairs[0], lines[:-1], lines[-1]
    if not language:
        return pairs[0], lines, []
    return pairs[0], lines, evaluation.moses_tokenized(lines[0], language)


def _translate(pairs, translator, search, batch_size, max_length):
    """Returns the translations of all sentences."""
    translations, sources = [], [pair.source for pair in pairs]
    with progress_bar() as bar:
        found = translator.translate_iterable(sources, search, batch_size, max_length)
        found = bar.track(found, len(pairs), description="Translating")
        for pair, (best, *_) in zip(pairs, found, strict=True):
            if "cut source" in best.flags:
                report_flags(pair.location, best, translator)
            translations.append(best.text)
    return translations


def _print_scores(translations, references, tokenized, language, written_in):
    """Prints BLEU and chrF of translations, with their signatures."""
    results = {
        "cased BLEU": evaluation.cased_bleu(
            translations, *references, language=written_in
        ),
        "chrF": evaluation.chrf(translations, *references),
    }
    if language:
        papers = evaluation.paper_protocol_bleu(translations, tokenized, language)
        results["paper-protocol BLEU"] = papers
    for name, (score, signature) in results.items():
        typer.echo(f"{name:20}{score:6.2f}  {signature}")


def _print_comparison(first, second, references, tokenized, language, written_in):
    """Prints the scores of two translators, and the p-values of their differences."""
    found = evaluation.paired_bootstrap(first, second, *references, language=written_in)
    if language:
        papers = {"tokenized_language": language}
        found |= evaluation.paired_bootstrap(first, second, tokenized, **papers)
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


def _print_differences(first, second, pairs, references, count):
    """Prints the sentences whose two translations differ most, by their chrF."""
    from sacrebleu.metrics import CHRF

    metric = CHRF()
    labels = ["source", *["reference"] * len(references), "MODEL", "--against"]
    sides = [[pair.source for pair in pairs], *references, first, second]
    rows = []
    for number, lines in enumerate(zip(*sides, strict=True), start=1):
        _, *correct, one, other = lines
        scores = [metric.sentence_score(x, correct).score for x in (one, other)]
        rows.append((abs(scores[0] - scores[1]), number, scores, lines))
    most = heapq.nlargest(count, rows, key=lambda row: row[0])
    for difference, number, (one, other), lines in most:
        if difference:
            typer.echo(f"\nline {number}: chrF {one:.1f} against {other:.1f}")
            for label, line in zip(labels, lines, strict=True):
                typer.echo(f"  {label:11}{line}")
