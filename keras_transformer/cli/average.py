"""`keras-transformer average`."""

from pathlib import Path
from typing import Annotated

import typer

from keras_transformer.cli.loading import load_tensorflow


def average(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="Folder of a run.", show_default=False)
    ],
    last: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="How many checkpoints, the last ones. [default: the run's]",
            show_default=False,
        ),
    ] = None,
):
    """Make a run's translator of the mean weights of its last checkpoints.

    `train` ends with this. By itself it serves to try another number, or to have a
    translator of a training that is not at its end.

    Example: `keras-transformer average runs/en-de --last 5`
    """
    load_tensorflow()
    from keras_transformer.runs import Run

    opened = Run(run)
    paths = opened.average(last or opened.recipe().decoding.average)
    names = ", ".join(path.name for path in paths)
    typer.echo(f"The translator in {opened.translator_path} averages {names}.")
