"""`keras-transformer translate`."""

import contextlib
import itertools
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from keras_transformer.cli.errors import say
from keras_transformer.cli.models import choose_search, load_translator
from keras_transformer.cli.options import BatchSize, BeamWidth, LengthPenalty, Model
from keras_transformer.cli.progress import track


def translate(
    model: Model,
    text: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="Text to translate, a sentence a line, plain or gzipped; standard "
            "input if left out.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where to write; standard output if left out.",
            show_default=False,
        ),
    ] = None,
    beam_width: BeamWidth = None,
    length_penalty: LengthPenalty = None,
    batch_size: BatchSize = 32,
):
    """Translate a file or standard input, line by line.

    A line of the output is the translation of the same line of the input; an empty
    line stays empty. Text of any size can be piped through: 32 batches are read,
    sorted by length and translated at a time. With `--batch-size 1` every line is
    answered at once, and so is what is typed in.

    Example: `echo "A man rides a bike." | keras-transformer translate runs/en-de`
    """
    if text is not None and output is not None and output.resolve() == text.resolve():
        raise ValueError(f"{output} is the text itself. Name another file to write to.")
    translator = load_translator(model)
    from keras_transformer.text import read_lines

    place = "standard input" if text is None else str(text)
    lines = _standard_input() if text is None else read_lines(text)
    # A faulty file is found before anything is written.
    total = None if text is None else sum(1 for _ in read_lines(text))
    at_once = batch_size == 1 or (text is None and sys.stdin.isatty())
    translations = _translations(
        translator,
        lines,
        place,
        chunk_size=1 if at_once else 32 * batch_size,
        search=choose_search(model, beam_width, length_penalty),
        batch_size=batch_size,
    )
    # Both on one terminal would be in each other's way.
    alone = output is not None or not sys.stdout.isatty()
    with _open(output) as file:
        for translation in track(translations, total, shown=alone):
            file.write(f"{translation}\n".encode())
            file.flush()


def _translations(
    translator, lines: Iterable[str], place: str, chunk_size: int, **settings
) -> Iterator[str]:
    """Yields the translation of each line, and tells which lines had to be cut."""
    lines = iter(lines)
    number = 0
    while chunk := list(itertools.islice(lines, chunk_size)):
        _, is_cut = translator.encode(chunk)
        for index in is_cut.numpy().nonzero()[0]:
            say(
                f"Warning: {place}:{number + index + 1} is cut: it is longer than the "
                f"{translator.max_source_length} subwords that the model reads. Split "
                "it."
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # says that without the line
            translations = translator.translate(chunk, **settings)
        yield from translations
        number += len(chunk)


def _standard_input():
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            yield line.decode("utf-8").replace("\r", "").removesuffix("\n")
        except UnicodeDecodeError:
            raise ValueError(
                f"standard input:{number} is not UTF-8. Convert it, for example with "
                "iconv."
            ) from None


def _open(output):
    """Returns a binary file to write to, as a context manager."""
    if output is None:
        return contextlib.nullcontext(sys.stdout.buffer)
    return open(output, "wb")
