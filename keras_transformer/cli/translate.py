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
from keras_transformer.cli.models import (
    choose_processors,
    choose_search,
    load_translator,
)
from keras_transformer.cli.options import (
    BatchSize,
    BeamWidth,
    LengthPenalty,
    MaxLength,
    MaxLengthRatio,
    MinLength,
    Model,
    NoRepeatNgramSize,
    RepetitionPenalty,
)
from keras_transformer.cli.pictures import check_picture, write_attention
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
    attention: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Picture to draw, such as out.png or out.pdf: which parts of a line "
            "its translation comes from; or out.html, a page to explore that. Line 2 "
            "is drawn in out-2.png, and so on.",
            show_default=False,
        ),
    ] = None,
    beam_width: BeamWidth = None,
    length_penalty: LengthPenalty = None,
    min_length: MinLength = None,
    max_length: MaxLength = None,
    max_length_ratio: MaxLengthRatio = None,
    no_repeat_ngram_size: NoRepeatNgramSize = None,
    repetition_penalty: RepetitionPenalty = None,
    batch_size: BatchSize = 32,
    jit_compile: Annotated[
        bool,
        typer.Option(
            "--jit-compile",
            help="Let XLA compile the search: some seconds for every new length of "
            "sentences, and about twice as fast afterwards. It pays from some 10,000 "
            "lines on.",
        ),
    ] = False,
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
    if attention is not None:
        check_picture(attention, page=True)
    translator = load_translator(model)
    if jit_compile:
        translator.model.compile(jit_compile=True)
    from keras_transformer.text import read_lines

    place = "standard input" if text is None else str(text)
    lines = _standard_input() if text is None else read_lines(text)
    # A faulty file is found before anything is written.
    total = None if text is None else sum(1 for _ in read_lines(text))
    at_once = batch_size == 1 or (text is None and sys.stdin.isatty())
    processors = choose_processors(
        min_length, max_length_ratio, no_repeat_ngram_size, repetition_penalty
    )
    search = choose_search(model, beam_width, length_penalty, processors)
    translated = _translated(
        translator,
        lines,
        place,
        chunk_size=1 if at_once else 32 * batch_size,
        search=search,
        batch_size=batch_size,
        max_length=max_length,
    )
    # Both on one terminal would be in each other's way.
    alone = output is not None or not sys.stdout.isatty()
    with _open(output) as file:
        shown = track(translated, total, shown=alone)
        for number, (line, translation) in enumerate(shown, start=1):
            file.write(f"{translation}\n".encode())
            file.flush()
            if attention is not None and translation:
                _draw(translator, line, search, _numbered(attention, number))


def _translated(
    translator, lines: Iterable[str], place: str, chunk_size: int, **settings
) -> Iterator[tuple[str, str]]:
    """Yields each line and its translation, and tells which lines had to be cut."""
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
        yield from zip(chunk, translations, strict=True)
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


def _numbered(path, number):
    return path if number == 1 else path.with_stem(f"{path.stem}-{number}")


def _draw(translator, line, search, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a line that is cut was told
        write_attention(translator, line, search, path)
