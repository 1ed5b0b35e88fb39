"""`keras-transformer train`, and `average`, with which it ends."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keras_transformer.cli.loading import load_tensorflow
from keras_transformer.cli.options import Data, Settings

if TYPE_CHECKING:  # pydantic takes a while, and most commands need no recipe
    from keras_transformer.runs import Recipe

RecipeName = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help="A YAML file, or one that comes with the package, such as `multi30k`.",
    ),
]


def _print_schema(is_asked: bool):
    if is_asked:
        from keras_transformer.runs.recipe import Recipe

        typer.echo(json.dumps(Recipe.model_json_schema(), indent=2))
        raise typer.Exit


def _print_settings(is_asked: bool):
    if is_asked:
        from keras_transformer.runs.reference import as_text

        typer.echo(as_text())
        raise typer.Exit


def train(
    recipe: RecipeName,
    run: Annotated[
        Path,
        typer.Option(
            help="Folder of the run: a new one, or one to resume.", metavar="DIR"
        ),
    ],
    pretrained: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Translator to continue from: a run, a saved translator, a checkpoint "
            "in Hugging Face's layout, a Marian model, or hf://user/model.",
            metavar="MODEL",
        ),
    ] = None,
    data: Data = None,
    source: Annotated[
        str | None,
        typer.Option(help="Source language, such as en.", metavar="LANGUAGE"),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="Target language, such as de.", metavar="LANGUAGE"),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the training text.")
    ] = None,
    settings: Settings = None,
    schema: Annotated[
        bool,
        typer.Option(
            "--schema",
            help="Print the JSON schema of recipes, with which editors check and "
            "complete them, and exit.",
            callback=_print_schema,
            is_eager=True,
        ),
    ] = False,
    help_settings: Annotated[
        bool,
        typer.Option(
            "--help-settings",
            help="Print every setting of a recipe, its meaning and default, and exit.",
            callback=_print_settings,
            is_eager=True,
        ),
    ] = False,
):
    """Train a translator on parallel text, or resume its training.

    Options override the recipe. The folder of the run holds everything about the
    translator: settings.yaml with every setting, the tokenizers, the last checkpoints,
    log.csv with one row per epoch, tensorboard, and at the end the translator.

    With `--from`, training continues from a translator, with its tokenizers; the model
    of the recipe must agree with it, or be left out.

    To resume an interrupted training after its last saved epoch, repeat the command.

    Example, in a clone of https://github.com/multi30k/dataset:
    `keras-transformer train multi30k --data data/task1 --run runs/en-de`

    Your own recipe needs only the lines below, as `keras-transformer init` writes them.
    Other settings follow from the size of the text: `train` prints them before it
    begins, and the settings.yaml of the run keeps them.

        data:
          source: en
          target: de
          train: {source: train.en, target: train.de}
    """
    from keras_transformer.runs.recipe import Recipe

    if pretrained and "://" not in pretrained:
        pretrained = str(Path(pretrained).resolve())
    options = {
        "model.pretrained": pretrained,
        "data.folder": str(data.resolve()) if data else None,
        "data.source": source,
        "data.target": target,
        "training.epochs": epochs,
    }
    overrides = {name: value for name, value in options.items() if value is not None}
    loaded = Recipe.load(recipe, overrides | parse_settings(settings))
    train_recipe(loaded, run, may_be_jax=True)
    typer.echo(f"The translator is in {run / 'translator'}.")


def average(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")],
    last: Annotated[
        int | None,
        typer.Option(
            help="Number of last checkpoints to average. [default: the run's]", min=1
        ),
    ] = None,
    best: Annotated[
        bool,
        typer.Option(
            "--best", help="Take the best checkpoint alone, by training.best."
        ),
    ] = False,
):
    """Average the last checkpoints of a run into its translator.

    `train` does this at its end. Use the command to average another number of
    checkpoints, to take the best one, or to get a translator before the training has
    finished.

    Example: `keras-transformer average runs/en-de --last 5`
    """
    if best and last:
        raise typer.BadParameter("cannot be combined with --last.", param_hint="--best")
    load_tensorflow()
    from keras_transformer.runs.run import Run
    from keras_transformer.runs.training import save_average, save_best

    opened = Run(run)
    if best:
        origin = f"is of epoch {opened.checkpoints().epoch_of(save_best(opened))}"
    else:
        paths = save_average(opened, last or opened.settings.decoding.average)
        origin = f"averages {', '.join(path.name for path in paths)}"
    typer.echo(f"The translator in {opened.translator_path} {origin}.")


def train_recipe(recipe: "Recipe", folder: Path, may_be_jax: bool = False):
    """Returns the trained `Run`; if interrupted, says how to resume it and exits."""
    is_worker = "TF_CONFIG" in os.environ
    is_worker |= recipe.training.strategy in ("multi_worker", "slurm")
    load_tensorflow(devices=not is_worker, may_be_jax=may_be_jax)
    from keras_transformer.runs import Run
    from keras_transformer.runs import train as train_in

    try:
        return train_in(recipe, folder)
    except KeyboardInterrupt:
        run = Run(folder)
        paths = run.checkpoints().paths() if run.has_trained() else []
        saved = f" {paths[-1].name} is saved." if paths else ""
        typer.echo(f"Stopped.{saved} Repeat the command to resume.", err=True)
        raise typer.Exit(130) from None


def parse_settings(settings: list[str] | None) -> dict[str, Any]:
    """Parses the arguments of `--set`, whose values are YAML."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    values = {}
    for text in settings or []:
        name, equals, value = text.partition("=")
        if not equals:
            problem = f"must be NAME=VALUE, such as training.epochs=3. Received: {text}"
            raise typer.BadParameter(problem, param_hint="--set")
        try:
            values[name] = YAML(typ="safe", pure=True).load(value)
        except (YAMLError, ValueError):  # the latter for a date such as 2024-02-30
            values[name] = value
    return values
