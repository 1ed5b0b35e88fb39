"""`keras-transformer train`; `init`, which writes a recipe; and `average`."""

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keras_transformer.cli.loading import load_tensorflow
from keras_transformer.cli.options import Data, Settings
from keras_transformer.storage import write_text
from keras_transformer.tables import first_row, language_of, table_format
from keras_transformer.text_files import read_lines

if TYPE_CHECKING:  # pydantic takes a while, and most commands need no recipe
    from keras_transformer.runs import Recipe

Source = Annotated[
    str | None, typer.Option(help="Source language, such as en.", metavar="LANGUAGE")
]
Target = Annotated[
    str | None, typer.Option(help="Target language, such as de.", metavar="LANGUAGE")
]
RecipeName = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help="A YAML file, or one that comes with the package, such as `multi30k`.",
    ),
]


def _print_settings(is_asked: bool):
    if is_asked:
        from keras_transformer.runs.reference import as_text

        typer.echo(as_text())
        raise typer.Exit


def init(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILES] [RECIPE]",
            help="The text: two files with one sentence per line, or a table. Then the "
            "recipe, a new YAML file. [default: recipe.yaml]",
        ),
    ] = None,
    source: Source = None,
    target: Target = None,
    everything: Annotated[
        bool,
        typer.Option(
            "--all", help="Add every other setting as a comment, with its meaning."
        ),
    ] = False,
):
    """Write a recipe to start from.

    It names your text files and their languages; all else is chosen from the text.
    Without arguments, it names train.en and train.de, for you to change.

    Example: `keras-transformer init train.en train.de`, or
    `keras-transformer init pairs.csv --source en --target fr`
    """
    paths = paths or []
    text = [path for path in paths if path.suffix not in (".yaml", ".yml")]
    recipe = next((path for path in paths if path not in text), Path("recipe.yaml"))
    found = _languages_of(text) if text else {source or "en": "", target or "de": ""}
    if recipe.exists():
        raise ValueError(f"{recipe} already exists. Choose a new file, or delete it.")
    if len(found) == 2 and {source, target} - {None} <= found.keys():
        others = [language for language in found if language not in (source, target)]
        source, target = source or others.pop(0), target or others.pop(0)
    if not (source and target):
        raise ValueError(
            f"The languages are not clear from {text[0]}. Add them, such as --source "
            "en --target de."
        )
    files = [json.dumps(str(x), ensure_ascii=False) for x in text]  # which is YAML, too
    written = {"data.source": source, "data.target": target}
    if len(files) == 1:
        written["data.train"] = files[0]
    else:
        sides = files or ['"train.{source}"', '"train.{target}"']
        written["data.train.source"], written["data.train.target"] = sides
    columns = [found[x] for x in (source, target) if found.get(x)]
    if len(columns) == 2:
        written["data.columns"] = json.dumps(columns, ensure_ascii=False)
    from keras_transformer.runs.reference import as_recipe

    write_text(recipe, as_recipe(written, everything))
    folder = "" if text else " --data FOLDER"
    typer.echo(
        f"Wrote {recipe}. {'Train' if text else 'Change its file names, and train'}:\n"
        f"  keras-transformer train {recipe}{folder} --run runs/{source}-{target}"
    )


def _languages_of(text: list[Path]) -> dict[str | None, str]:
    """Returns the languages that two files, or the columns of a table, are named by.

    Each comes with its column, which is empty for a file.
    """
    is_table = [table_format(path) is not None for path in text]
    if is_table not in ([True], [False, False]):
        raise ValueError(
            "The text must be two files, or one .csv, .tsv, .jsonl or .parquet table. "
            f"Received: {', '.join(map(str, text))}."
        )
    if all(is_table):
        columns = {language_of(x): x for x in first_row(text[0], read_lines(text[0]))}
    else:
        for path in text:
            next(read_lines(path), None)  # raises an error if it cannot be read
        parts = zip(*(re.split("[/._-]", str(path)) for path in text), strict=False)
        names = next((both for both in parts if both[0] != both[1]), ())
        columns = {language_of(name): "" for name in names}
    columns.pop(None, None)
    return columns


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
            "in Hugging Face's layout, or hf://user/model.",
            metavar="MODEL",
        ),
    ] = None,
    data: Data = None,
    source: Source = None,
    target: Target = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the training text.")
    ] = None,
    settings: Settings = None,
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

    With `--from`, training continues from a translator, with its tokenizers; the
    recipe's model settings must agree with it, or be left out.

    To resume interrupted training after its last saved epoch, repeat the command.

    Example, in a clone of https://github.com/multi30k/dataset:
    `keras-transformer train multi30k --data data/task1 --run runs/en-de`

    `keras-transformer init train.en train.de` writes a recipe for your own text. Unset
    options are chosen from the size of your text: `train` prints them before it begins,
    and keeps them in the run's settings.yaml.
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
            "--best", help="Use only the best checkpoint, as measured by training.best."
        ),
    ] = False,
):
    """Average the last checkpoints of a run into its translator.

    `train` does this when it ends. Use this command to average a different number of
    checkpoints, to use only the best one, or to get a translator before training has
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
