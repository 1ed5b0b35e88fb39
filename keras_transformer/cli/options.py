"""Arguments and options that several commands take."""

from pathlib import Path
from typing import Annotated

import typer

Debug = Annotated[
    bool, typer.Option("--debug", help="Show the full traceback of an error.")
]
Model = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="Folder of a run or of a saved translator."),
]
Data = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Folder that the file names in the recipe are relative to."
    ),
]
BatchSize = Annotated[int, typer.Option(min=1, help="Sentences to translate at once.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any setting of the recipe, such as training.early_stopping=5. May be "
        "given several times.",
    ),
]
