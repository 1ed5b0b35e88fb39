"""`keras-transformer demo`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from keras_transformer.cli.options import Settings
from keras_transformer.cli.train import parse_settings, train_recipe
from keras_transformer.storage import write_text


def demo(
    run: Annotated[Path, typer.Option(help="Folder of the run.", metavar="DIR")] = Path(
        "runs/demo"
    ),
    folder: Annotated[
        Path,
        typer.Option(
            "--export",
            help="Folder of the served model; the export becomes its next version.",
            metavar="DIR",
        ),
    ] = Path("saved_models/demo"),
    settings: Settings = None,
):
    """Train, translate and export on built-in data.

    Learns to translate English dates, times, amounts, units and names into German,
    which takes a few minutes. Then it shows held-out phrases with their translations
    and the percentage that is exactly right, and exports a SavedModel for TensorFlow
    Serving.

    The demo trains only once: the trained model stays in the folder of the run.
    """
    from keras_transformer.datasets import locale_phrases
    from keras_transformer.runs import Recipe

    data = run.resolve().with_name(f"{run.resolve().name}-data")
    overrides = {"data.folder": str(data)} | parse_settings(settings)
    recipe = Recipe.load("demo", overrides)
    languages = recipe.data.source, recipe.data.target
    typer.echo(f"Writing phrases in two languages to {data}.")
    splits = locale_phrases(*languages)
    for name, text in splits._asdict().items():
        for language, lines in zip(languages, text, strict=True):
            path, phrases = data / f"{name}.{language}", "\n".join([*lines, ""])
            if path.exists() and path.read_text("utf-8", "replace") != phrases:
                raise ValueError(f"{path} holds another text. Choose another --run.")
            write_text(path, phrases)
    translator = train_recipe(recipe, run).translator()
    translations = translator.translate(splits.test.source)
    rows = list(zip(*splits.test, translations, strict=True))
    num_right = sum(expected == found for _, expected, found in rows)
    table = Table("Phrase never seen before", "Translation", "Exactly right")
    for phrase, expected, found in rows[:10]:
        table.add_row(phrase, found, "yes" if found == expected else f"no: {expected}")
    Console().print(table)
    typer.echo(
        f"{num_right} of {len(rows)} held-out phrases ({num_right / len(rows):.1%}) "
        "are exactly right."
    )
    from keras_transformer.serving import next_version

    path = translator.export(next_version(folder))
    typer.echo(
        f"The SavedModel is in {path}, for TensorFlow Serving.\n"
        "Try next:\n"
        f"  a phrase of your own: "
        f'echo "May 3, 2031" | keras-transformer translate {run}\n'
        "  serve the export: saved_models/README.md\n"
        "  train on your own text: keras-transformer init train.en train.de"
    )
