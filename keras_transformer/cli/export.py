"""Commands that write translators: `export`, `convert` and `ensemble`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from keras_transformer.cli import options
from keras_transformer.cli.loading import check_models, given_terms, load_translator
from keras_transformer.storage import create_folder


@options.with_search_options
def export(
    model: options.Model,
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="Folder of the served model, such as saved_models/en-de. The export "
            "becomes its next version: FOLDER/1, then FOLDER/2.",
        ),
    ],
    jit_compile: Annotated[
        bool | None,
        typer.Option(
            "--jit-compile/--no-jit-compile",
            help="Whether XLA compiles the search on the server: some seconds for each "
            "of a few batch sizes, and faster afterwards. Default: in float32.",
            show_default=False,
        ),
    ] = None,
    search_options: options.SearchOptions = options.UNCHANGED,
    glossary: options.Glossary = None,
    keep: options.Keep = None,
):
    """Export a translator as a SavedModel for TensorFlow Serving.

    The SavedModel takes a batch of strings and returns their translations and scores.
    It contains the tokenizers, the model and the search, and does not need this
    package.

    Example: `keras-transformer export runs/en-de saved_models/en-de`
    """
    terms = given_terms(glossary, keep)
    translator = load_translator(model)
    search = options.changed_search(translator.search, search_options)
    from keras_transformer.serving import next_version

    how = search, search_options.max_length, jit_compile
    path = translator.export(next_version(folder), *how, terms=terms)
    dtype = translator.model.dtype_policy.name
    typer.echo(f"The SavedModel is in {path}, and computes in {dtype}.")


def convert(
    model: options.Model,
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="Folder to write, which must not exist yet."
        ),
    ],
    format: Annotated[
        Literal["keras", "hugging_face", "ctranslate2", "litert"],
        typer.Option(
            help="Format to write: this package's own, Hugging Face's transformers, "
            "CTranslate2, or LiteRT for phones."
        ),
    ] = "keras",
    quantization: Annotated[
        str | None,
        typer.Option(
            help="Type of the weights for CTranslate2 and LiteRT, such as int8.",
            metavar="TYPE",
        ),
    ] = None,
    source_language: Annotated[
        str | None,
        typer.Option(
            help="Source language of an M2M100 or NLLB model, such as eng_Latn.",
            metavar="LANGUAGE",
        ),
    ] = None,
    target_language: Annotated[
        str | None,
        typer.Option(
            help="Target language of a multilingual model, such as deu_Latn.",
            metavar="LANGUAGE",
        ),
    ] = None,
):
    """Convert a translator from or to the format of another system.

    The folder appears only once it is complete.

    Examples: `keras-transformer convert hf://Helsinki-NLP/opus-mt-en-de opus-en-de`,
    `keras-transformer convert runs/en-de fast --format ctranslate2 --quantization int8`
    """
    if folder.exists():
        raise FileExistsError(f"{folder} already exists. Choose a new folder.")
    if quantization and format not in ("ctranslate2", "litert"):
        problem = f"needs --format ctranslate2 or litert. Received: --format {format}"
        raise typer.BadParameter(problem, param_hint="--quantization")
    translator = load_translator(model, source_language, target_language)
    if format == "keras":
        with create_folder(folder) as unfinished:
            translator.save(unfinished)
    else:
        translator.export(folder, format=format, quantization=quantization)
    typer.echo(f"The translator is in {folder}.")


def ensemble(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...", help="Runs or translators with the same tokenizers."
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="Folder to write, which does not exist yet.",
            metavar="FOLDER",
        ),
    ],
):
    """Combine translators into one that averages their probabilities.

    Runs of one recipe that differ in `training.seed` translate better together than
    each alone. It takes as long as all of them, and uses the first one's search.

    Example: `keras-transformer ensemble runs/seed-1 runs/seed-2 -o runs/both`
    """
    if output.exists():
        raise FileExistsError(f"{output} already exists. Choose a new folder.")
    check_models(*models)
    translators = [load_translator(model) for model in models]
    from keras_transformer.translator import ensemble as make_ensemble

    with create_folder(output) as unfinished:
        make_ensemble(translators).save(unfinished)
    typer.echo(f"The translator is in {output}.")
