"""`keras-transformer demo`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from keras_transformer.cli.export import next_version
from keras_transformer.cli.models import choose_search
from keras_transformer.cli.options import Settings
from keras_transformer.cli.train import parse_settings, train_recipe
from keras_transformer.runs.recipe import Recipe

_NUM_SHOWN = 10


def demo(
    run: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the run.")] = Path(
        "runs/demo"
    ),
    folder: Annotated[
        Path,
        typer.Option(
            "--export",
            metavar="DIR",
            help="Folder of the served model; the export becomes its next version.",
        ),
    ] = Path("saved_models/demo"),
    settings: Settings = None,
):
    """Train, translate and export, with data that are built in.

    Learns to turn English dates, times, amounts, units and names into German ones,
    which takes a few minutes; shows held-out phrases with their translations and the
    share that is exactly right; and exports a SavedModel for TensorFlow Serving.

    What it trained stays in the folder of the run, and the demo does not train again.
    """
    from keras_transformer.datasets import locale_phrases

    data = run.with_name(f"{run.name}-data")
    overrides = {"data.folder": str(data.resolve())} | parse_settings(settings)
    recipe = Recipe.load("demo", overrides)
    languages = recipe.data.source, recipe.data.target
    typer.echo(f"Writing phrases in two languages to {data}.")
    splits = locale_phrases(*languages)
    data.mkdir(parents=True, exist_ok=True)
    for name, text in splits._asdict().items():
        for language, lines in zip(languages, text, strict=True):
            path = data / f"{name}.{language}"
            path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    translator = train_recipe(recipe, run).translator()
    search = choose_search(run, None, None)
    translations = translator.translate(splits.test.source, search)
    _show(splits.test, translations)
    path = next_version(folder)
    translator.export(path, search=search)
    typer.echo(f"The SavedModel is in {path}, for TensorFlow Serving.")


def _show(text, translations):
    """Prints the first phrases and the share gone right."""
    rows = list(zip(*text, translations, strict=True))
    num_right = sum(wanted == found for _, wanted, found in rows)
    table = Table("Phrase never seen before", "Translation", "Exactly right")
    for phrase, wanted, found in rows[:_NUM_SHOWN]:
        table.add_row(phrase, found, "yes" if found == wanted else f"no: {wanted}")
    Console().print(table)
    typer.echo(
        f"{num_right} of {len(rows)} held-out phrases ({num_right / len(rows):.1%}) "
        "are exactly right."
    )
