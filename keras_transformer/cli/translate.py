"""`keras-transformer translate`."""

import contextlib
import functools
import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer

from keras_transformer.cli.decoding import (
    DecodingOptions,
    check_one_choice,
    choice,
    takes_decoding_options,
)
from keras_transformer.cli.loading import load_translator, reranked
from keras_transformer.cli.options import (
    BatchSize,
    MinimumBayesRisk,
    Model,
    Rerank,
    argument,
    option,
    output_file,
)
from keras_transformer.cli.plot import check_picture, write_attention
from keras_transformer.cli.progress import track

_LINES_PER_CHUNK = 8192


@takes_decoding_options
def translate(
    model: Model,
    decoding: DecodingOptions,
    text: Annotated[
        Path | None,
        argument(
            "FILE",
            "Text to translate, one sentence per line, plain or gzipped. "
            "[default: standard input]",
        ),
    ] = None,
    output: Annotated[
        Path | None, output_file("File to write to. [default: standard output]")
    ] = None,
    attention: Annotated[
        Path | None,
        option(
            "Also draw the attention to each source: as a picture, out.png or out.pdf, "
            "or as an interactive page, out.html. Line 2 gets out-2.png.",
            metavar="FILE",
        ),
    ] = None,
    batch_size: BatchSize = None,
    mbr: MinimumBayesRisk = None,
    rerank: Rerank = None,
    jit_compile: Annotated[
        bool,
        option(
            "Let XLA compile every search. By default it compiles long searches, where "
            "the seconds that compiling takes are saved.",
            "--jit-compile",
        ),
    ] = False,
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
        for flag, value in {"--mbr": mbr, "--rerank": rerank}.items():
            if value:
                raise typer.BadParameter(
                    "cannot be combined with --attention.", param_hint=flag
                )
        check_picture(attention, page=True)
    check_one_choice(mbr, rerank)
    translator = load_translator(model)
    if attention is not None:
        from keras_transformer.translator.checks import check_one_transformer

        check_one_transformer(translator, "--attention")
    if jit_compile:
        translator.model.compile(jit_compile=True)
    from keras_transformer.text.files import decode_lines, read_lines

    name = text or "standard input"
    lines = read_lines(text) if text else decode_lines(sys.stdin.buffer, name)
    # Counting the lines finds a faulty one before anything is written.
    total = None if text is None else sum(1 for _ in read_lines(text))
    line_by_line = batch_size == 1 or (text is None and sys.stdin.isatty())
    chunk_size = 1 if line_by_line else _LINES_PER_CHUNK
    search = decoding.search(translator, mbr)
    translate_texts = functools.partial(
        reranked(translator, rerank, search).translate,
        search=search,
        batch_size=batch_size,
        max_length=decoding.max_length,
        choose=choice(mbr),
    )
    translated = _translated(translator, translate_texts, lines, name, chunk_size)
    # On one terminal, the bar and the translations would overwrite each other.
    shows_progress = output is not None or not sys.stdout.isatty()
    standard_output = contextlib.nullcontext(sys.stdout.buffer)
    # Those about cut lines, which `_translated` reports by their numbers.
    warnings.simplefilter("ignore", UserWarning)
    with standard_output if output is None else output.open("wb") as file:
        tracked = track(translated, total, shows_progress)
        for number, (line, translation) in enumerate(tracked, start=1):
            file.write(f"{translation}\n".encode())
            file.flush()
            if attention is not None and translation:
                suffix = f"-{number}" if number > 1 else ""
                picture = attention.with_stem(attention.stem + suffix)
                write_attention(picture, translator, line, search, decoding.max_length)


def _translated(translator, translate_texts, lines, name, chunk_size):
    """Yields each line and its translation, and warns about lines that were cut."""
    from keras_transformer.translator.batching import chunks_of

    number = 0
    for chunk in chunks_of(lines, chunk_size):
        _, is_cut = translator.encode(chunk)
        for index in is_cut.numpy().nonzero()[0]:
            typer.echo(
                f"Warning: {name}:{number + index + 1} is cut: it is longer than the "
                f"{translator.max_source_length} subwords that the model reads. Split "
                "it.",
                err=True,
            )
        yield from zip(chunk, translate_texts(chunk), strict=True)
        number += len(chunk)
