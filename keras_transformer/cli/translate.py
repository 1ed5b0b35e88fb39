"""`keras-transformer translate`."""

import contextlib
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich import progress
from rich.console import Console

from keras_transformer.cli.loading import check_models, load_translator
from keras_transformer.cli.options import (
    BatchSize,
    BeamWidth,
    Glossary,
    Keep,
    LengthPenalty,
    MaxLength,
    MaxLengthRatio,
    MinLength,
    Model,
    NoRepeatNgramSize,
    RepetitionPenalty,
    changed_search,
    given_terms,
    say_where,
)
from keras_transformer.cli.plot import check_picture, write_attention
from keras_transformer.storage import replace_file
from keras_transformer.text_files import decode_lines, read_lines

LINES_PER_CHUNK = 8192


def translate(
    model: Model,
    text: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="Text to translate, one sentence per line, plain or gzipped. "
            "[default: standard input]",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="File to write to. [default: standard output]",
        ),
    ] = None,
    attention: Annotated[
        Path | None,
        typer.Option(
            help="Also draw the attention to each source: as a picture, out.png or "
            "out.pdf, or as an interactive page, out.html. Line 2 gets out-2.png.",
            metavar="FILE",
        ),
    ] = None,
    batch_size: BatchSize = None,
    jit_compile: Annotated[
        bool,
        typer.Option(
            "--jit-compile",
            help="Let XLA compile every search. By default it compiles long searches, "
            "where the seconds that compiling takes are saved.",
        ),
    ] = False,
    beam_width: BeamWidth = None,
    length_penalty: LengthPenalty = None,
    min_length: MinLength = None,
    max_length: MaxLength = None,
    max_length_ratio: MaxLengthRatio = None,
    no_repeat_ngram_size: NoRepeatNgramSize = None,
    repetition_penalty: RepetitionPenalty = None,
    glossary: Glossary = None,
    keep: Keep = None,
):
    """Translate a file or standard input, line by line.

    Line n of the output translates line n of the input; an empty line stays empty.
    Text of any size can be piped through: up to 8,192 lines are read and translated at
    a time. With `--batch-size 1`, or if the input is typed in, every line
    is translated as soon as it is read.

    Example: `echo "A man rides a bike." | keras-transformer translate runs/en-de`
    """
    if text is not None and output is not None and output.resolve() == text.resolve():
        raise ValueError(f"{output} is the input. Name another file to write to.")
    if text is not None and not text.exists():
        raise FileNotFoundError(
            f"{text} does not exist. Name a file, or pass a sentence through standard "
            f'input: echo "{text}" | keras-transformer translate {model}'
        )
    if attention is not None:
        check_picture(attention, page=True)
    terms = given_terms(glossary, keep)
    if attention is not None and terms is not None:
        raise typer.BadParameter(
            "draws translations without --glossary and --keep. Leave it out.",
            param_hint="--attention",
        )
    check_models(model)
    # Counting the lines finds a faulty one before anything is loaded or written.
    total = None if text is None else sum(1 for _ in read_lines(text))
    translator = load_translator(model)
    if attention is not None:
        from keras_transformer.translator import check_one_transformer

        check_one_transformer(translator, "--attention")
    if jit_compile:
        translator.model.compile(jit_compile=True)
    search = changed_search(
        translator.search,
        beam_width,
        length_penalty,
        min_length,
        max_length_ratio,
        no_repeat_ngram_size,
        repetition_penalty,
    )
    name = text or "standard input"
    lines = read_lines(text) if text else decode_lines(sys.stdin.buffer, name)
    line_by_line = batch_size == 1 or (text is None and sys.stdin.isatty())
    chunk_size = 1 if line_by_line else LINES_PER_CHUNK
    # On one terminal, the bar and the translations would overwrite each other.
    bar = progress_bar(shown=output is not None or not sys.stdout.isatty())
    # `translated` reports a line that was cut by its number, a picture by no number.
    warnings.filterwarnings("ignore", "`text` is longer", UserWarning)
    with bar, _opened(output) as file:
        task = bar.add_task("Translating", total=total)
        settings = search, batch_size, max_length, chunk_size, terms
        found = translated(translator, lines, name, *settings)
        for number, (line, translation) in enumerate(found, start=1):
            file.write(f"{translation}\n".encode())
            file.flush()
            bar.advance(task)
            if attention is not None and translation:
                suffix = f"-{number}" if number > 1 else ""
                picture = attention.with_stem(attention.stem + suffix)
                write_attention(picture, translator, line, search, max_length)
    if output is not None:
        say_where("The translations are", output)


@contextlib.contextmanager
def _opened(output):
    """Opens standard output, or a file that appears once the block has ended."""
    if output is None:
        yield sys.stdout.buffer
        return
    with replace_file(output) as unfinished, unfinished.open("wb") as file:
        yield file


def translated(
    translator,
    lines: Iterable[str],
    name,
    search,
    batch_size: int | None,
    max_length: int | None,
    chunk_size: int = LINES_PER_CHUNK,
    terms=None,
) -> Iterator[tuple[str, str]]:
    """Yields each line and its translation; warns of lines that were cut.

    Args:
        translator: A `Translator`.
        lines: What to translate.
        name: Name of the file that holds the lines, for warnings.
        search: As in `Translator.translate`.
        batch_size: As in `Translator.translate`.
        max_length: As in `Translator.translate`.
        chunk_size: Number of lines that are read and translated before the first of
            them is yielded.
        terms: As in `Translator.translate`.
    """
    from keras_transformer.translator.batching import chunks_of

    number = 0
    for chunk in chunks_of(lines, chunk_size):
        settings = search, batch_size, max_length, terms
        found = translator.translate_n_best(chunk, *settings)
        for line, (best, *_) in zip(chunk, found, strict=True):
            number += 1
            if best.is_cut:
                typer.echo(
                    f"Warning: {name}:{number} is cut: it is longer than the "
                    f"{translator.max_source_length} subwords that the model reads. "
                    "Split it.",
                    err=True,
                )
            yield line, best.text


def progress_bar(shown: bool = True) -> progress.Progress:
    """Returns a bar on standard error; it shows nothing where that is no terminal."""
    return progress.Progress(
        "{task.description}",
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not (shown and sys.stderr.isatty()),
        transient=True,
    )
