"""`keras-transformer ensemble`."""

from pathlib import Path
from typing import Annotated

import typer

from keras_transformer.cli.loading import load_translator
from keras_transformer.cli.options import argument, option
from keras_transformer.storage import create_folder


def ensemble(
    models: Annotated[
        list[str],
        argument("MODEL...", "Runs or translators with the same tokenizers."),
    ],
    output: Annotated[
        Path,
        option(
            "Folder to write, which does not exist yet.",
            "--output",
            "-o",
            metavar="FOLDER",
        ),
    ],
):
    """Make one translator of several: the mean of their probabilities.

    Runs of one recipe that differ in `training.seed` translate better together than
    each of them. It takes as long as all of them. The search is that of the first.

    Example: `keras-transformer ensemble runs/seed-1 runs/seed-2 -o runs/both`
    """
    if output.exists():
        raise FileExistsError(f"{output} exists already. Name a new folder.")
    translators = [load_translator(model) for model in models]
    from keras_transformer.translator import ensemble as make_ensemble

    with create_folder(output) as unfinished:
        make_ensemble(translators).save(unfinished)
    typer.echo(f"The translator is in {output}.")
