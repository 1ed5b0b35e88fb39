"""`keras-transformer evaluate`."""

import contextlib
import enum
import functools
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from keras_transformer.cli.decoding import (
    DecodingOptions,
    check_one_choice,
    choice,
    takes_decoding_options,
)
from keras_transformer.cli.evaluated_text import EvaluatedText, lines_of
from keras_transformer.cli.loading import is_checkpoint, load_translator, reranked
from keras_transformer.cli.options import (
    BatchSize,
    Data,
    MinimumBayesRisk,
    Model,
    Rerank,
    option,
    output_file,
)
from keras_transformer.cli.progress import track
from keras_transformer.cli.results import (
    print_comparison,
    print_differences,
    print_scores,
)


class Split(str, enum.Enum):
    """The splits of a recipe that are not trained on."""

    validation = "validation"
    test = "test"


@takes_decoding_options
def evaluate(
    model: Model,
    decoding: DecodingOptions,
    source_file: Annotated[
        Path | None,
        option("Text to translate, in place of a recipe's.", metavar="FILE"),
    ] = None,
    reference: Annotated[
        list[Path] | None,
        option(
            "Correct translations of --source-file. May be given several times.",
            metavar="FILE",
        ),
    ] = None,
    against: Annotated[
        str | None,
        option(
            "A second translator, as MODEL, or a file of its translations.",
            metavar="OTHER",
        ),
    ] = None,
    examples: Annotated[
        int,
        option("Sentences to show on which MODEL and --against differ most.", min=0),
    ] = 5,
    data: Data = None,
    split: Annotated[
        Split | None, option("Split of the recipe to translate. [default: test]")
    ] = None,
    recipe: Annotated[
        str | None,
        option(
            "Recipe that names the files. [default: the run's settings.yaml]",
            metavar="RECIPE",
        ),
    ] = None,
    output: Annotated[
        Path | None, output_file("File to write the translations to.")
    ] = None,
    batch_size: BatchSize = None,
    mbr: MinimumBayesRisk = None,
    rerank: Rerank = None,
):
    """Measure BLEU and chrF of a translator on held-out text.

    The text is that of a run's recipe, or any files: `--source-file` and `--reference`.

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
    check_one_choice(mbr, rerank)
    if source_file or reference:
        text = EvaluatedText.of_files(
            source_file, reference, data=data, split=split, recipe=recipe
        )
    else:
        name = (split or Split.test).value
        text = EvaluatedText.of_recipe(model, recipe, name, data)
    translator, other, given = load_translator(model), None, []
    if against and Path(against).is_file() and not is_checkpoint(against):
        given = [Path(against)]
    elif against:
        other = load_translator(against)
    total = text.check(output, given)
    search = decoding.search(translator, mbr)
    other_search = decoding.search(other, mbr) if other else None
    reranking = reranked(translator, rerank, search)
    # Translations are on the disk, because memory may not hold all of them.
    with contextlib.ExitStack() as stack:

        def translated(translator, search, open_file):
            """Returns a function that returns the lines of the translation."""
            file = open_file("w+", encoding="utf-8", newline="\n")
            stack.enter_context(file)
            translations = translator.translate_stream(
                lines_of(text.sources),
                search,
                batch_size,
                decoding.max_length,
                choose=choice(mbr),
            )
            for translation in track(translations, total):
                file.write(f"{translation}\n")
            return functools.partial(_read, file)

        start = time.monotonic()
        open_file = tempfile.TemporaryFile if output is None else output.open
        first = translated(reranking, search, open_file)
        seconds = time.monotonic() - start
        if other:
            second = translated(other, other_search, tempfile.TemporaryFile)
        else:
            second = functools.partial(lines_of, given)
        if against:
            print_comparison(first, second, text)
        else:
            print_scores(first, text)
        typer.echo(f"{total} sentences in {seconds:.1f} seconds")
        if against:
            print_differences(first, second, text, examples)


def _read(file):
    """Yields the lines of a file from its start, without newlines."""
    file.seek(0)
    for line in file:
        yield line.removesuffix("\n")
