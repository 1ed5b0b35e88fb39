"""Arguments and options that several commands take, and functions that declare them."""

from pathlib import Path
from typing import Annotated

import typer


def argument(metavar: str, text: str):
    """Returns the description of an argument, for its annotation."""
    return typer.Argument(metavar=metavar, help=text)


def option(text: str, *names: str, **settings):
    """Returns the description of an option, for its annotation.

    `names` such as `"-o"` replace that of the parameter; `settings` are further
    arguments of `typer.Option`.
    """
    return typer.Option(*names, help=text, **settings)


def output_file(text: str):
    """Returns the description of `--output`, the file that a command writes."""
    return option(text, "--output", "-o", metavar="FILE")


Debug = Annotated[bool, option("Show the full traceback of an error.", "--debug")]
Model = Annotated[
    str,
    argument(
        "MODEL",
        "Folder of a run, of a saved translator, of a checkpoint in Hugging Face's "
        "layout or of a Marian model; hf://user/model; or a checkpoint of a run, such "
        "as runs/en-de/checkpoints/best.keras.",
    ),
]
Data = Annotated[
    Path | None,
    option(
        "Folder that the file names in the recipe are relative to.",
        metavar="DIR",
    ),
]
BatchSize = Annotated[
    int | None,
    option(
        "Sentences to translate at a time, which memory limits. [default: what is "
        "fastest]",
        min=1,
    ),
]
MinimumBayesRisk = Annotated[
    int | None,
    option(
        "Draw so many translations of each sentence, such as 16, and take the one that "
        "is most like the others by chrF (minimum Bayes risk), instead of a beam's "
        "best.",
        "--mbr",
        metavar="SAMPLES",
        min=2,
    ),
]
Rerank = Annotated[
    str | None,
    option(
        "A translator of the other direction, as MODEL. Of the translations that the "
        "beam finds, take the one from which it can best tell the sentence.",
        metavar="OTHER",
    ),
]
Settings = Annotated[
    list[str] | None,
    option(
        "Any setting of the recipe, such as training.early_stopping=5. May be given "
        "several times.",
        "--set",
        metavar="NAME=VALUE",
    ),
]
