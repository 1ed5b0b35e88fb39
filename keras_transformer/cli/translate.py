"""`keras-transformer translate`."""

import contextlib
import itertools
import json
import math
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich import progress
from rich.console import Console

from keras_transformer.cli import loading, options
from keras_transformer.cli.plot import check_picture, write_attention
from keras_transformer.documents.sentences import end_within_sentences
from keras_transformer.documents.translation import (
    FORMATS,
    format_of,
    opened_output,
    plan,
    run,
)
from keras_transformer.text_files import chunks_of, decode_lines, read_lines

LINES_PER_CHUNK = 8192
LINES_PER_HINT = 1000
_OF_LINES = ("n-best", "scores", "json", "attention", "alignments")


@options.with_search_options
def translate(
    model: options.Model,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="Texts to translate: one sentence per line, plain or gzipped, or "
            "documents. [default: standard input]",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="File to write to, or a folder for the translations of several files. "
            "[default: standard output]",
        ),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            help=f"Format of the files: {', '.join(FORMATS)}. `lines` has one sentence "
            "per line, `text` has paragraphs. [default: from the file name; lines if "
            "it has no known ending, such as .txt]",
            metavar="FORMAT",
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            help="Column of a table to translate; a second one gets the translations. "
            "[default: source, then target]",
            metavar="NAME",
        ),
    ] = None,
    source_language: Annotated[
        str | None,
        typer.Option(
            help="Language whose rules split documents into sentences. [default: the "
            "recipe's, or en]",
            metavar="CODE",
        ),
    ] = None,
    target_language: Annotated[
        str | None,
        typer.Option(
            help="Language code of the translations in TMX and XLIFF. [default: the "
            "recipe's]",
            metavar="CODE",
        ),
    ] = None,
    n_best: Annotated[
        int | None,
        typer.Option(
            help="Number of translations per line, each after its line number.",
            min=1,
        ),
    ] = None,
    scores: Annotated[
        bool,
        typer.Option(
            "--scores", help="Write the score and a tab before each translation."
        ),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Write a JSON object for each line: its text and its translations, "
            "with scores and flags.",
        ),
    ] = False,
    attention: Annotated[
        Path | None,
        typer.Option(
            help="Also plot the attention to each source: out.png, out.pdf, or an "
            "interactive page, out.html. Line 2 gets out-2.png.",
            metavar="FILE",
        ),
    ] = None,
    alignments: Annotated[
        Path | None,
        typer.Option(
            help="Also write word alignments, line by line: 0-0 1-2 means that the "
            "translation's third word renders the source's second.",
            metavar="FILE",
        ),
    ] = None,
    markup: Annotated[
        bool,
        typer.Option(
            "--markup",
            help="Keep tags, such as `<b>` and `<x/>`, around what they enclose. "
            "Entities, such as `&amp;`, are translated as their characters. HTML, "
            "XLIFF, TMX and subtitles always keep their tags.",
        ),
    ] = False,
    mark_fuzzy: Annotated[
        bool,
        typer.Option(
            "--mark-fuzzy",
            help="Mark translations in PO files as fuzzy, for human review.",
        ),
    ] = False,
    engine: options.Engine = "auto",
    batch_size: options.BatchSize = None,
    jit_compile: Annotated[
        bool,
        typer.Option(
            "--jit-compile",
            help="Compile every search with XLA. By default only long searches are "
            "compiled, where this saves time.",
        ),
    ] = False,
    search_options: options.SearchOptions = options.UNCHANGED,
    glossary: options.Glossary = None,
    keep: options.Keep = None,
):
    """Translate files or standard input, line by line or as documents.

    Line n of the output translates line n of the input; an empty line stays empty. Text
    of any size can be piped through: up to 8,192 lines are read and translated at a
    time. With `--batch-size 1`, or when you type the input, each line is translated as
    soon as it is read.

    Files named .html, .json, .csv, .tsv, .srt, .vtt, .po, .xlf and .tmx are translated
    as documents of that format; use `--format` for others. With `--output`, repeat a
    command that was killed, and it continues where it stopped. Translations that look
    wrong are reported, each with the reason.

    Example: `echo "A man rides a bike." | keras-transformer translate runs/en-de`
    """
    files = files or []
    given: dict = {"n-best": n_best, "scores": scores, "json": as_json}
    given |= {"attention": attention, "alignments": alignments, "markup": markup}
    given |= {"glossary": glossary, "keep": keep, "jit-compile": jit_compile}
    are_lines = _check_options(model, files, output, format, given)
    reason = options.why_tensorflow(engine, given)
    terms = loading.given_terms(glossary, keep)
    loading.check_models(model)
    for path in files if format is None else ():
        first = itertools.islice(read_lines(path), LINES_PER_HINT)
        if format_of(path) == "lines" and end_within_sentences(first):
            note = f"Hint: most lines of {path} end within a sentence"
            typer.echo(f"{note}. --format text translates its paragraphs.", err=True)
    jobs, total = [], None
    if not are_lines:
        source, target = loading.languages_of_run(model) or ("en", None)
        languages = source_language or source, target_language or target
        jobs = plan(files, output, format, *languages, column or (), markup, mark_fuzzy)
        if num_left := len(files) - len(jobs):
            were = f"{num_left} of {len(files)} files were already in {output}"
            note = f"{were}. Delete them first to translate them again."
            typer.echo(note, err=True)
        for job in jobs if not reason else ():
            if job.has_codes():
                reason = f"{job.path} has tags, which attention places"
                if engine == "ctranslate2":
                    raise ValueError(f"{reason}: leave out --engine {engine}.")
            elif engine == "auto" and job.has_placeholders():
                reason = f"{job.path} has placeholders, which it keeps"
    elif files:
        # Counting the lines finds a faulty one before anything is loaded or written.
        total = sum(1 for _ in read_lines(files[0]))
    asked = model, engine, search_options, reason
    loaded = loading.load_engine(*asked, num_hypotheses=n_best)
    translator, search, max_length = loaded
    if attention is not None:
        from keras_transformer.translator.translator import check_one_transformer

        check_one_transformer(translator, "--attention")
    if jit_compile:
        translator.model.compile(jit_compile=True)
    # Truncated lines are reported by their numbers, which a plot does not know.
    warnings.filterwarnings("ignore", "`text` is longer", UserWarning)
    how = {"search": search, "batch_size": batch_size, "max_length": max_length}
    how["terms"] = terms
    # On one terminal, the bar and the translations would overwrite each other.
    with progress_bar(shown=output is not None or not sys.stdout.isatty()) as bar:
        if are_lines:
            text = files[0] if files else None
            _translate_lines(translator, text, output, bar, total, given, how)
        else:
            _translate_documents(translator, jobs, bar, how)
    if output is not None:
        typer.echo(f"The translations are in {output}.", err=True)
    if alignments is not None:
        typer.echo(f"The alignments are in {alignments}.", err=True)


def _check_options(model, files, output, format, given) -> bool:
    """Checks combinations of options before anything is loaded.

    Returns whether lines are translated as they are read, rather than documents.
    """
    paths = [x.resolve() for x in (*files, output, given["alignments"]) if x]
    if len(set(paths)) < len(paths):
        twice = max(paths, key=paths.count)
        raise ValueError(f"{twice} is used twice. Choose another output file.")
    for path in files:
        if not path.exists():
            raise FileNotFoundError(
                f"{path} does not exist. Pass a file, or pipe a sentence through "
                f'standard input: echo "{path}" | keras-transformer translate {model}'
            )
    if given["attention"]:
        check_picture(given["attention"], page=True)
        if given["glossary"] or given["keep"]:
            problem = "draws translations without --glossary and --keep. Leave it out."
            raise typer.BadParameter(problem, param_hint="--attention")
    formats = {format or format_of(path) for path in files} or {format or "lines"}
    is_one_text = len(files) < 2 and formats == {"lines"}
    needs_lines = [name for name in _OF_LINES if given[name]]
    if given["markup"]:
        if needs_lines:
            problem = "is not possible for text with --markup."
            raise ValueError(f"--{needs_lines[0]} {problem}")
        needs_lines += ["markup"] * ("lines" in formats)
    if not is_one_text and (needs_lines or not files):
        one = "one text with a sentence per line" if needs_lines else "a file"
        option = [*needs_lines, "format"][0]
        raise typer.BadParameter(f"needs {one}.", param_hint=f"--{option}")
    if len(files) > 1 and output is None:
        raise typer.BadParameter("is needed for several files.", param_hint="--output")
    # A text written to a file can be continued, like documents.
    return is_one_text and bool(needs_lines or not (files and output))


def _translate_documents(translator, jobs, bar, how):
    """Translates planned documents; reports translations that look wrong."""
    task = bar.add_task("Translating", total=sum(job.num_sentences for job in jobs))
    starts = [0, *itertools.accumulate(job.num_sentences for job in jobs)]
    for job, first, pairs in run(translator, jobs, **how):
        for number, (sentence, one) in enumerate(pairs, start=first):
            # In a document, a sentence is identified by its text.
            where = number if job.document is None else f" {sentence!r}"
            report_flags(f"{job.path}:{where}", one, translator)
        done = min(first + len(pairs) - 1, job.num_sentences)
        bar.update(task, completed=starts[jobs.index(job)] + done)


def _translate_lines(translator, path, output, bar, total, given, how):
    """Translates a text, standard input without a path, as it is read."""
    name = path or "standard input"
    lines = read_lines(path) if path else decode_lines(sys.stdin.buffer, name)
    line_by_line = how["batch_size"] == 1 or (not path and sys.stdin.isatty())
    size = 1 if line_by_line else LINES_PER_CHUNK
    lines, read = itertools.tee(lines)
    if given["markup"]:
        found = _with_markup(translator, lines, how, size)
    else:
        found = translator.translate_iterable(lines, **how, chunk_size=size)
    attention, alignments = given["attention"], given["alignments"]
    links = opened_output(alignments) if alignments else contextlib.nullcontext()
    with opened_output(output) as file, links as links_file:
        task = bar.add_task("Translating", total=total)
        # `read` ends first.
        both: Iterator[tuple[str, list]] = zip(read, found, strict=False)
        if links_file is not None:
            both = _aligned(translator, both, size, links_file)
        for number, (line, translations) in enumerate(both, start=1):
            report_flags(f"{name}:{number}", translations[0], translator)
            rows = _as_rows(number, line, translations, given)
            file.writelines(f"{row}\n".encode() for row in rows)
            file.flush()
            bar.advance(task)
            if attention is not None and translations[0].text:
                suffix = f"-{number}" if number > 1 else ""
                picture = attention.with_stem(attention.stem + suffix)
                drawn = line, how["search"], how["max_length"]
                write_attention(picture, translator, *drawn)


def _as_rows(number, line, translations, given):
    """Yields the lines to write for a line of text."""
    n_best = given["n-best"]
    translations = translations[: n_best or 1]  # the translator's search may find more
    # There may be fewer hypotheses than were asked for.
    found = [one for one in translations if one.score > -math.inf] or translations[:1]
    if given["json"]:
        rows = [one._asdict() for one in found]
        yield json.dumps({"text": line, "translations": rows}, ensure_ascii=False)
        return
    for one in found:
        columns = [number] * bool(n_best) + [one.score] * given["scores"] + [one.text]
        yield "\t".join(map(str, columns))


def report_flags(where: str, translation, translator) -> None:
    """Prints on standard error why a translation looks wrong."""
    problem = f"has a doubtful translation: {', '.join(translation.flags)}."
    if "cut source" in translation.flags:
        problem = (
            f"is cut: it is longer than the {translator.max_source_length} subwords "
            "that the model reads. Split it."
        )
    if translation.flags:
        typer.echo(f"Warning: {where} {problem}", err=True)


def _with_markup(translator, lines, how, size) -> Iterator[list]:
    """Yields the translation of each line, which keeps its tags, alone in a list."""
    from keras_transformer.translator import translate_markup

    for chunk in chunks_of(lines, size):
        yield from ([best] for best in translate_markup(translator, chunk, **how))


def _aligned(translator, found, chunk_size, file) -> Iterator[tuple[str, list]]:
    """Yields lines and translations; writes which words of the best are aligned."""
    from keras_transformer.translator import pharaoh, word_links

    for chunk in chunks_of(found, chunk_size):
        pairs = translator.align(
            [line for line, _ in chunk], [best.text for _, (best, *_) in chunk]
        )
        for (line, translations), aligned in zip(chunk, pairs, strict=True):
            links = word_links(line, translations[0].text, aligned)
            file.write(f"{pharaoh(links)}\n".encode())
            yield line, translations


def progress_bar(shown: bool = True) -> progress.Progress:
    """Returns a progress bar on standard error, hidden unless that is a terminal."""
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
