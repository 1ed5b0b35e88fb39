"""The command line: `keras-transformer`."""

import os
import sys

import typer

from keras_transformer.cli.demo import demo
from keras_transformer.cli.errors import OneLineErrors
from keras_transformer.cli.evaluate import evaluate
from keras_transformer.cli.export import convert, ensemble, export
from keras_transformer.cli.options import Debug, Version
from keras_transformer.cli.plot import plot
from keras_transformer.cli.prepare import prepare
from keras_transformer.cli.serve import serve
from keras_transformer.cli.train import average, init, train
from keras_transformer.cli.translate import translate

__all__ = ["app", "main"]

app = typer.Typer(
    cls=OneLineErrors,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    demo,
    init,
    prepare,
    train,
    translate,
    evaluate,
    serve,
    export,
    convert,
    average,
    ensemble,
):
    app.command()(command)
app.add_typer(plot, name="plot")


@app.callback()
def shell(debug: Debug = False, version: Version = False):
    """Train Transformers on parallel text, and translate with them."""


def main() -> None:
    """Runs the command line; the entry point of `keras-transformer`."""
    # Python has None for streams that the shell has closed.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115
            setattr(sys, name, stream)
    try:
        app()
    except SystemExit as error:
        if error.code != 130:
            raise
        # A training step may still run in TensorFlow's threads. Python's own shutdown
        # sometimes aborts then.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(130)
