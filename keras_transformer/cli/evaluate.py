"""`keras-transformer evaluate`."""

import enum
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from keras_transformer.cli.models import (
    choose_processors,
    choose_search,
    load_translator,
)
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
)
from keras_transformer.cli.progress import track
from keras_transformer.runs.recipe import Recipe


class Split(str, enum.Enum):
    """Text that a recipe names and that is not trained on."""

    validation = "validation"
    test = "test"


def evaluate(
    model: Model,
    data: Data = None,
    split: Annotated[
        Split, typer.Option(help="Text of the recipe to translate.")
    ] = Split.test,
    recipe: Annotated[
        str | None,
        typer.Option(
            metavar="RECIPE",
            help="Recipe that names the files. [default: the run's settings.yaml]",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where to write the translations, if wished for.",
            show_default=False,
        ),
    ] = None,
    beam_width: BeamWidth = None,
    length_penalty: LengthPenalty = None,
    min_length: MinLength = None,
    max_length: MaxLength = None,
    max_length_ratio: MaxLengthRatio = None,
    no_repeat_ngram_size: NoRepeatNgramSize = None,
    repetition_penalty: RepetitionPenalty = None,
    batch_size: BatchSize = 32,
):
    """Score a translator with BLEU on held-out text.

    Prints the cased figure, of text as people write it. Where the recipe names
    tokenized references, it also prints that of the papers' protocol: lower-cased,
    punctuation normalised, split by the Moses tokenizer. The two never compare.
    Beside each stands sacreBLEU's signature.

    Choose settings on `validation`; look at `test` once they stand.

    Example: `keras-transformer evaluate runs/en-de --split test`
    """
    path = recipe or model / "settings.yaml"
    if recipe is None and not path.is_file():
        raise FileNotFoundError(
            f"{model} holds no run whose recipe would name the files. Name a recipe "
            "with --recipe."
        )
    overrides = {"data.folder": str(data.resolve())} if data else {}
    text = Recipe.load(path, overrides).data
    sources = text.paths(split.value, "source")
    references = text.paths(split.value, "target")
    translator = load_translator(model)
    processors = choose_processors(
        min_length, max_length_ratio, no_repeat_ngram_size, repetition_penalty
    )
    search = choose_search(model, beam_width, length_penalty, processors)
    from keras_transformer.text import check_parallel_files
    from keras_transformer.training import cased_bleu, paper_protocol_bleu

    total = check_parallel_files(sources, references)
    files = getattr(text, split.value).tokenized
    tokenized = text.paths(split.value, "tokenized") if files else []
    if tokenized:
        check_parallel_files(sources, tokenized)
    # On the disk, for there may be more of them than memory holds.
    with _open(output) as file:
        start = time.monotonic()
        for translation in track(
            translator.translate_stream(
                _lines(sources), search, batch_size, max_length
            ),
            total,
        ):
            file.write(f"{translation}\n")
        seconds = time.monotonic() - start
        figures = {"cased BLEU": cased_bleu(_read(file), _lines(references))}
        if tokenized:
            figures["paper-protocol BLEU"] = paper_protocol_bleu(
                _read(file), _lines(tokenized), text.target
            )
    for name, (score, signature) in figures.items():
        typer.echo(f"{name:20}{score:6.2f}  {signature}")
    typer.echo(f"{total} sentences in {seconds:.1f} seconds")


def _open(output):
    """Opens the file of the translations, or one that is gone when it is closed."""
    settings = {"encoding": "utf-8", "newline": "\n"}
    if output is None:
        return tempfile.TemporaryFile("w+", **settings)
    return open(output, "w+", **settings)


def _read(file):
    """Yields the lines of a file from its beginning, without their ends."""
    file.seek(0)
    for line in file:
        yield line.removesuffix("\n")


def _lines(paths):
    from keras_transformer.text import read_lines

    for path in paths:
        yield from read_lines(path)
