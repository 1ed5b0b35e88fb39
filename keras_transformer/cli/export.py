"""`keras-transformer export`."""

from pathlib import Path
from typing import Annotated

import typer

from keras_transformer.cli.models import (
    choose_processors,
    choose_search,
    load_translator,
)
from keras_transformer.cli.options import (
    BeamWidth,
    LengthPenalty,
    MaxLength,
    MaxLengthRatio,
    MinLength,
    Model,
    NoRepeatNgramSize,
    RepetitionPenalty,
)


def export(
    model: Model,
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="Folder of the served model, such as saved_models/en-de. The export "
            "becomes its next version: FOLDER/1, then FOLDER/2.",
            show_default=False,
        ),
    ],
    beam_width: BeamWidth = None,
    length_penalty: LengthPenalty = None,
    min_length: MinLength = None,
    max_length: MaxLength = None,
    max_length_ratio: MaxLengthRatio = None,
    no_repeat_ngram_size: NoRepeatNgramSize = None,
    repetition_penalty: RepetitionPenalty = None,
    jit_compile: Annotated[
        bool,
        typer.Option(
            "--jit-compile",
            help="Let XLA compile the search where it is served: some seconds for "
            "every new size of batch, and faster afterwards.",
        ),
    ] = False,
):
    """Export a translator as a SavedModel for TensorFlow Serving.

    The SavedModel takes a batch of strings and returns their translations and
    scores. It holds tokenizers, model and search, and needs nothing of this program.

    Example: `keras-transformer export runs/en-de saved_models/en-de`
    """
    translator = load_translator(model)
    processors = choose_processors(
        min_length, max_length_ratio, no_repeat_ngram_size, repetition_penalty
    )
    search = choose_search(model, beam_width, length_penalty, processors)
    path = next_version(folder)
    translator.export(path, search, max_length, jit_compile)
    typer.echo(f"The SavedModel is in {path}.")


def next_version(folder: Path) -> Path:
    """Returns the path of the next version, one more than the highest there is."""
    names = [path.name for path in folder.glob("*") if path.name.isdecimal()]
    return folder / str(max(map(int, names), default=0) + 1)
