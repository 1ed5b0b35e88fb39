"""The commands of the shell and their options."""

from pathlib import Path
from typing import Annotated

import typer
import yaml

from keras_transformer.cli.errors import OneLineErrors, say
from keras_transformer.cli.loading import load_tensorflow
from keras_transformer.recipe import Recipe

app = typer.Typer(
    cls=OneLineErrors,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def shell(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where in the code an error arose.")
    ] = False,
):
    """Trains Transformers on parallel text, and translates with them."""


@app.command()
def train(
    recipe: Annotated[
        str,
        typer.Argument(
            help="A recipe: a YAML file, or `multi30k`, which comes along.",
            show_default=False,
        ),
    ],
    run: Annotated[
        Path,
        typer.Option(
            help="Folder of the run. A run that is there already is resumed.",
            show_default=False,
        ),
    ],
    data: Annotated[
        Path | None,
        typer.Option(help="Folder that the recipe's file names start from."),
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="Language to translate from, such as en.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Language to translate into, such as de.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the training text.")
    ] = None,
    tokens_per_batch: Annotated[
        int | None, typer.Option(help="Positions of a batch, padding included.")
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="The highest learning rate.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of weights, dropout and order.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Any other setting, such as training.early_stopping=5. May be given "
            "several times.",
        ),
    ] = None,
):
    """Train a translator on parallel text, or resume its training.

    The run's folder holds all that made it: settings.yaml, tokenizers, checkpoints,
    log.csv, tensorboard, and at the end the translator. The same command again goes
    on after the last epoch that was saved.
    """
    named = {
        "data.folder": str(data.resolve()) if data else None,
        "data.source": source,
        "data.target": target,
        "training.epochs": epochs,
        "training.tokens_per_batch": tokens_per_batch,
        "training.learning_rate": learning_rate,
        "training.seed": seed,
    }
    overrides = {name: value for name, value in named.items() if value is not None}
    settled = Recipe.load(recipe, overrides | dict(map(_parse_setting, settings or [])))
    load_tensorflow()
    from keras_transformer.run import train

    try:
        train(settled, run)
    except KeyboardInterrupt:
        say(f"Stopped. What was saved is in {run}: the same command goes on from it.")
        raise typer.Exit(130) from None
    typer.echo(f"The translator is in {run / 'translator'}.")


def _parse_setting(text):
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(
            f"must be NAME=VALUE, such as training.epochs=3. Received: {text}.",
            param_hint="--set",
        )
    return name, yaml.safe_load(value)
