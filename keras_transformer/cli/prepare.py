"""`keras-transformer prepare`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from keras_transformer.cli.loading import load_tensorflow
from keras_transformer.cli.options import Data, Settings
from keras_transformer.cli.train import RecipeName, parse_settings


def prepare(
    recipe: RecipeName,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="Folder for the ids: a new one, or one to continue.",
            metavar="DIR",
        ),
    ],
    data: Data = None,
    num_shards: Annotated[
        int,
        typer.Option(
            "--shards",
            help="Number of shards, at least one for each worker that will read them.",
            min=1,
        ),
    ] = 16,
    max_length_ratio: Annotated[
        float | None,
        typer.Option(
            help="Leave out pairs where one side has more than this many times the "
            "subwords of the other, such as 3.",
            min=1,
        ),
    ] = None,
    keep_duplicates: Annotated[
        bool,
        typer.Option("--keep-duplicates", help="Keep duplicates of earlier pairs."),
    ] = False,
    settings: Settings = None,
):
    """Tokenize the training text of a recipe once, for many training runs.

    It trains the tokenizers, and writes the text as ids, using all cores. Training then
    starts at once, and each of several workers reads its part of the ids. If `prepare`
    is interrupted, repeat the command to continue.

    Example: `keras-transformer prepare recipe.yaml -o ids`, and then
    `keras-transformer train recipe.yaml --run runs/en-de --set data.prepared=ids`
    """
    from keras_transformer.runs.recipe import Recipe

    overrides = {"data.folder": str(data.resolve())} if data else {}
    loaded = Recipe.load(recipe, overrides | parse_settings(settings))
    load_tensorflow()
    from keras_transformer import runs

    limits = num_shards, max_length_ratio, keep_duplicates, int(sys.stdout.isatty())
    shards = runs.prepare_recipe(loaded, output, *limits)["shards"]
    pairs = sum(sum(shard["pairs"]) for shard in shards)
    reasons = {
        "duplicates": "equal to an earlier pair",
        "long": f"longer than {loaded.training.max_length} subwords",
        "unbalanced": "of unequal lengths",
    }
    omitted = ", ".join(
        f"{sum(shard[x] for shard in shards):,} {what}" for x, what in reasons.items()
    )
    typer.echo(
        f"{output} holds {pairs:,} pairs in {len(shards)} shards. Left out: {omitted}."
    )
