"""`keras-transformer export`."""

from pathlib import Path
from typing import Annotated

import typer

from keras_transformer.cli.decoding import DecodingOptions, takes_decoding_options
from keras_transformer.cli.loading import load_translator
from keras_transformer.cli.options import Model, argument, option


@takes_decoding_options
def export(
    model: Model,
    folder: Annotated[
        Path,
        argument(
            "FOLDER",
            "Folder of the served model, such as saved_models/en-de. The export "
            "becomes its next version: FOLDER/1, then FOLDER/2.",
        ),
    ],
    decoding: DecodingOptions,
    jit_compile: Annotated[
        bool,
        option(
            "Let XLA compile the search on the server: some seconds for every new "
            "batch size, and faster afterwards.",
            "--jit-compile",
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
    search = decoding.search(translator)
    path = export_next_version(
        translator, folder, search, decoding.max_length, jit_compile
    )
    typer.echo(f"The SavedModel is in {path}.")


def export_next_version(translator, folder: Path, search=None, *options) -> Path:
    """Exports a `Translator` as the next version in `folder`, and returns its path.

    `options` are the further arguments of `Translator.export`.
    """
    from keras_transformer.serving.versions import next_version

    path = next_version(folder)
    translator.export(path, search, *options)
    return path
