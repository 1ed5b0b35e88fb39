"""`keras-transformer export`."""

from pathlib import Path
from typing import Annotated

import typer

from keras_transformer.cli.decoding import DecodingOptions, takes_decoding_options
from keras_transformer.cli.loading import load_translator
from keras_transformer.cli.options import Model


@takes_decoding_options
def export(
    model: Model,
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="Folder of the served model, such as saved_models/en-de. The export "
            "becomes its next version: FOLDER/1, then FOLDER/2.",
        ),
    ],
    decoding: DecodingOptions,
    jit_compile: Annotated[
        bool,
        typer.Option(
            "--jit-compile",
            help="Let XLA compile the search on the server: some seconds for every new "
            "batch size, and faster afterwards.",
        ),
    ] = False,
):
    """Export a translator as a SavedModel for TensorFlow Serving.

    The SavedModel takes a batch of strings and returns their translations and scores.
    It contains the tokenizers, the model and the search, and does not need this
    package.

    Example: `keras-transformer export runs/en-de saved_models/en-de`
    """
    translator = load_translator(model)
    path = export_next_version(
        translator, folder, decoding.search(model), decoding.max_length, jit_compile
    )
    typer.echo(f"The SavedModel is in {path}.")


def export_next_version(translator, folder: Path, search, *options) -> Path:
    """Exports to FOLDER/1, or to one more than the highest version; returns the path.

    Args:
        translator: The `Translator`.
        folder: Folder of the served model.
        search: The search to export.
        *options: Further arguments of `Translator.export`.
    """
    path = _next_version(folder)
    translator.export(path, search, *options)
    return path


def _next_version(folder):
    names = [path.name for path in folder.glob("*") if path.name.isdecimal()]
    return folder / str(max(map(int, names), default=0) + 1)
