"""`keras-transformer convert`."""

import enum
from pathlib import Path
from typing import Annotated

import typer

from keras_transformer.cli.loading import load_translator
from keras_transformer.cli.options import Model, argument, option
from keras_transformer.storage import create_folder


class Format(str, enum.Enum):
    """The systems that a translator can be written for."""

    KERAS = "keras"
    HUGGING_FACE = "hugging_face"
    CTRANSLATE2 = "ctranslate2"


def convert(
    model: Model,
    folder: Annotated[
        Path, argument("FOLDER", "Folder to write, which does not exist yet.")
    ],
    format: Annotated[
        Format,
        option(
            "The system to write for: this one, Hugging Face's transformers, or "
            "CTranslate2.",
        ),
    ] = Format.KERAS,
    quantization: Annotated[
        str | None,
        option(
            "Type of the weights for CTranslate2, such as int8 or float16.",
            metavar="TYPE",
        ),
    ] = None,
    source_language: Annotated[
        str | None,
        option(
            "Source language of an M2M100 or NLLB model, such as eng_Latn.",
            metavar="LANGUAGE",
        ),
    ] = None,
    target_language: Annotated[
        str | None,
        option(
            "Target language of a model that knows several, such as deu_Latn.",
            metavar="LANGUAGE",
        ),
    ] = None,
):
    """Convert a translator from another system, or for another system.

    The folder appears once it is complete.

    Examples: `keras-transformer convert hf://Helsinki-NLP/opus-mt-en-de opus-en-de`,
    `keras-transformer convert runs/en-de fast --format ctranslate2 --quantization int8`
    """
    if folder.exists():
        raise FileExistsError(f"{folder} exists already. Name a new folder.")
    if quantization and format != Format.CTRANSLATE2:
        raise typer.BadParameter(
            f"is for --format ctranslate2. Received: --format {format.value}",
            param_hint="--quantization",
        )
    translator = load_translator(model, source_language, target_language)
    if format == Format.KERAS:
        with create_folder(folder) as unfinished:
            translator.save(unfinished)
    else:
        translator.export(folder, format=format.value, quantization=quantization)
    typer.echo(f"The translator is in {folder}.")
