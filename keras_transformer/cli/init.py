"""`keras-transformer init`."""

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from keras_transformer.storage import write_text
from keras_transformer.tables import first_row, is_header, language_of, table_format
from keras_transformer.text_files import read_lines


def init(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILES] [RECIPE]",
            help="The text: two files, a sentence a line, or a table. And the recipe, "
            "a new YAML file. [default: recipe.yaml]",
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            help="Source language. [default: as the files are named]",
            metavar="LANGUAGE",
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Target language.", metavar="LANGUAGE")
    ] = None,
    everything: Annotated[
        bool,
        typer.Option(
            "--all", help="Write every other setting as a comment, with its meaning."
        ),
    ] = False,
):
    """Write a recipe to begin with.

    It names the files of the text and their languages; all else follows from the text.
    Without files, it names train.en and train.de, to be changed there.

    Example: `keras-transformer init train.en train.de`, or
    `keras-transformer init pairs.csv --source en --target fr`
    """
    paths = paths or []
    text = [path for path in paths if path.suffix not in (".yaml", ".yml")]
    recipe = next((path for path in paths if path not in text), Path("recipe.yaml"))
    if recipe.exists():
        raise ValueError(f"{recipe} exists. Name a new file, or remove this one.")
    if not text:
        source, target = source or "en", target or "de"
    languages, columns = _named_in(text) if text else ([], [])
    if len(languages) == 2 and {source, target} - {None} <= set(languages):
        rest = [language for language in languages if language not in (source, target)]
        source, target = source or rest.pop(0), target or rest.pop(0)
    if not (source and target):
        raise ValueError(
            f"{text[0]} does not tell the languages. Add --source en --target de, or "
            "whatever they are."
        )
    written = {"data.source": source, "data.target": target}
    if len(text) == 1:
        written["data.train"] = _quoted(str(text[0]))
    else:
        files = text or ("train.{source}", "train.{target}")
        for side, file in zip(("source", "target"), files, strict=True):
            written[f"data.train.{side}"] = _quoted(str(file))
    if len(columns) == 2:
        columns = columns[::-1] if languages == [target, source] else columns
        written["data.columns"] = _quoted(columns)
    from keras_transformer.runs.reference import as_recipe

    write_text(recipe, as_recipe(written, everything))
    folder = "" if text else " --data FOLDER"
    typer.echo(
        f"{recipe} names the files of your text. Train on them:\n"
        f"  keras-transformer train {recipe}{folder} --run runs/{source}-{target}"
    )


def _named_in(text: list[Path]) -> tuple[list[str], list[str]]:
    """Returns the languages of two files, or of a table and its columns, if named."""
    is_table = [table_format(path) is not None for path in text]
    if is_table not in ([True], [False, False]):
        raise ValueError(
            "A text is two files, or one .csv, .tsv, .jsonl or .parquet table. "
            f"Received: {', '.join(map(str, text))}."
        )
    if all(is_table):
        [row] = (first_row(path, read_lines(path)) for path in text)
        columns = {language_of(x): x for x in row}
        columns.pop(None, None)
        if len(columns) == 2:
            return list(columns), list(columns.values())
        return [], row if is_header(row) else []
    for path in text:
        next(read_lines(path), None)  # raises an error if it cannot be read
    parts = zip(*(re.split("[/._-]", str(path)) for path in text), strict=False)
    names = next((pair for pair in parts if pair[0] != pair[1]), ())
    return [code for code in map(language_of, names) if code], []


def _quoted(value):
    return json.dumps(value, ensure_ascii=False)  # which is YAML, too
