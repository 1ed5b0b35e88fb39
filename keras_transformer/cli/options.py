"""Arguments and options that several commands take, and functions that declare them."""

from pathlib import Path
from typing import Annotated

import typer


def argument(kind, metavar: str, text: str):
    """Returns the annotation of an argument with a help text."""
    return Annotated[kind, typer.Argument(metavar=metavar, help=text)]


def option(kind, text: str, *names: str, **settings):
    """Returns the annotation of an option with a help text.

    `names` such as `"-o"` replace that of the parameter; `settings` are further
    arguments of `typer.Option`.
    """
    return Annotated[kind, typer.Option(*names, help=text, **settings)]


def output_file(kind, text: str):
    """Returns the annotation of `--output`, the file that a command writes."""
    return option(kind, text, "--output", "-o", metavar="FILE")


Debug = option(bool, "Show the full traceback of an error.", "--debug")
Model = argument(
    str,
    "MODEL",
    "Folder of a run, of a saved translator or of a checkpoint in Hugging Face's "
    "layout, or hf://user/model.",
)
Data = option(
    Path | None,
    "Folder that the file names in the recipe are relative to.",
    metavar="DIR",
)
BatchSize = option(
    int | None,
    "Sentences to translate at a time, which memory limits. [default: what is fastest]",
    min=1,
)
Settings = option(
    list[str] | None,
    "Any setting of the recipe, such as training.early_stopping=5. May be given "
    "several times.",
    "--set",
    metavar="NAME=VALUE",
)
