"""`keras-transformer evaluate`."""

import enum
import itertools
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from keras_transformer.cli.decoding import DecodingOptions, takes_decoding_options
from keras_transformer.cli.loading import load_translator
from keras_transformer.cli.options import BatchSize, Data, Model, option, output_file
from keras_transformer.cli.progress import track
from keras_transformer.runs import Recipe


class Split(str, enum.Enum):
    """The splits of a recipe that are not trained on."""

    validation = "validation"
    test = "test"


@takes_decoding_options
def evaluate(
    model: Model,
    decoding: DecodingOptions,
    data: Data = None,
    split: Annotated[Split, option("Split of the recipe to translate.")] = Split.test,
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
):
    """Measure the BLEU of a translator on held-out text.

    Prints cased BLEU, of text as people write it. If the recipe names tokenized
    references, it also prints BLEU as papers report it: lower-cased, punctuation
    normalised, split by the Moses tokenizer. The two are not comparable. Each comes
    with sacreBLEU's signature.

    Choose settings on `validation`, and evaluate on `test` only once they are chosen.

    Example: `keras-transformer evaluate runs/en-de --split test`
    """
    settings = Path(model, "settings.yaml")
    if recipe is None and not settings.is_file():
        raise FileNotFoundError(
            f"{model} holds no run, whose recipe would name the files. Name a recipe "
            "with --recipe."
        )
    overrides = {"data.folder": str(data.resolve())} if data else {}
    text = Recipe.load(recipe or settings, overrides).data
    sources = text.paths(split.value, "source")
    references = text.paths(split.value, "target")
    translator = load_translator(model)
    search = decoding.search(translator)
    from keras_transformer.text import check_parallel_files, read_lines
    from keras_transformer.training import cased_bleu, paper_protocol_bleu

    def lines(paths):
        return itertools.chain.from_iterable(map(read_lines, paths))

    total = check_parallel_files(sources, references)
    files = getattr(text, split.value).tokenized
    tokenized = text.paths(split.value, "tokenized") if files else []
    if tokenized:
        check_parallel_files(sources, tokenized)
    # On the disk, because memory may not hold all translations.
    open_file = tempfile.TemporaryFile if output is None else output.open
    with open_file("w+", encoding="utf-8", newline="\n") as file:
        start = time.monotonic()
        translations = translator.translate_stream(
            lines(sources), search, batch_size, decoding.max_length
        )
        for translation in track(translations, total):
            file.write(f"{translation}\n")
        seconds = time.monotonic() - start
        results = {"cased BLEU": cased_bleu(_read(file), lines(references))}
        if tokenized:
            results["paper-protocol BLEU"] = paper_protocol_bleu(
                _read(file), lines(tokenized), text.target
            )
    for name, (bleu, signature) in results.items():
        typer.echo(f"{name:20}{bleu:6.2f}  {signature}")
    typer.echo(f"{total} sentences in {seconds:.1f} seconds")


def _read(file):
    """Yields the lines of a file from its start, without newlines."""
    file.seek(0)
    for line in file:
        yield line.removesuffix("\n")
