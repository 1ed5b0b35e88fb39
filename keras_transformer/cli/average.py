"""`keras-transformer average`."""

from pathlib import Path

import typer

from keras_transformer.cli.loading import load_tensorflow
from keras_transformer.cli.options import argument, option


def average(
    run: argument(Path, "RUN", "Folder of a run."),
    last: option(
        int | None, "Number of last checkpoints to average. [default: the run's]", min=1
    ) = None,
):
    """Average the last checkpoints of a run into its translator.

    `train` does this at its end. Use the command to average another number of
    checkpoints, or to get a translator before the training has finished.

    Example: `keras-transformer average runs/en-de --last 5`
    """
    load_tensorflow()
    from keras_transformer.runs import Run
    from keras_transformer.runs.training import save_average

    opened = Run(run)
    paths = save_average(opened, last or opened.recipe().decoding.average)
    names = ", ".join(path.name for path in paths)
    typer.echo(f"The translator in {opened.translator_path} averages {names}.")
