"""Translates files in their formats, and continues where a killed process stopped."""

import contextlib
import fcntl
import functools
import hashlib
import importlib
import itertools
import json
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from keras_transformer.documents.document import Document
from keras_transformer.documents.sentences import (
    joined,
    split_long,
    split_sentences,
    unwrapped,
)
from keras_transformer.markup import (
    Fragment,
    has_codes,
    merged,
    plain_text,
    read_markup,
    shown,
    write_markup,
)
from keras_transformer.placement import translate_coded
from keras_transformer.storage import replace_file
from keras_transformer.text_files import Paths, as_paths, chunks_of, read_lines
from keras_transformer.translation import PLACEHOLDER, Translation

if TYPE_CHECKING:  # the shell reads documents before it loads TensorFlow
    from keras_transformer.translator import Translator

SENTENCES_PER_CHUNK = 8192
# Each format: its reader, and the endings of its files' names.
FORMATS: dict[str, tuple[str, tuple[str, ...]]] = {
    "lines": ("", ()),
    "text": ("sentences.read_text", ()),
    "srt": ("subtitles.read_srt", (".srt",)),
    "vtt": ("subtitles.read_vtt", (".vtt",)),
    "html": ("html.read_html", (".html", ".htm", ".xhtml")),
    "json": ("tables.read_json", (".json",)),
    "csv": ("tables.read_csv", (".csv",)),
    "tsv": ("tables.read_tsv", (".tsv",)),
    "po": ("po.read_po", (".po", ".pot")),
    "xliff": ("xliff.read_xliff", (".xlf", ".xliff")),
    "tmx": ("xliff.read_tmx", (".tmx",)),
}
# Formats whose texts are plain, unless they are said to have tags.
PLAIN_FORMATS = {"text", "json", "csv", "tsv", "po"}
# Endings of files whose syntax is not supported.
_UNREAD = re.compile(
    r"\.(adoc|arb|ass|css|docx?|epub|ini|ipynb|js|jsonl|md|mo|ndjson|od[pst]|parquet|pdf|"
    r"php|pptx?|properties|py|resx|rst|rtf|sbv|sql|ssa|strings|sub|svg|tex|toml|ts|ttml|"
    r"wiki|xlsx?|xml|ya?ml|zip)"
)


def translate(
    translator: "Translator",
    files: Paths,
    output: str | Path,
    format: str | None = None,
    source_language: str = "en",
    target_language: str | None = None,
    columns: Iterable[str] = (),
    markup: bool = False,
    mark_fuzzy: bool = False,
    **settings,
) -> list[Path]:
    """Translates files, and writes each translation in the format of its file.

    Everything but the translated text stays as it was; docs/documents.md lists what is
    translated in each format. Sentences that are too long for the model are translated
    in parts.

    Args:
        translator: A `Translator`.
        files: Path of a file, or of several.
        output: The file to write, or a folder that gets files of the same names. Files
            that are already there are not translated again.
        format: `"lines"`, `"text"`, `"srt"`, `"vtt"`, `"html"`, `"json"`, `"csv"`,
            `"tsv"`, `"po"`, `"xliff"` or `"tmx"`; by default, chosen by the name of
            each file. A file with no such ending, such as `.txt`, has one sentence per
            line; `"text"` has paragraphs.
        source_language: ISO 639 code, such as `"de"`; abbreviations that do not end a
            sentence depend on it.
        target_language: Language code of the translations in TMX and XLIFF.
        columns: Names of a table's columns: one to translate, or one with the texts and
            one for the translations. Default: `source` and `target`.
        markup: Whether the texts of JSON, tables, catalogues and `"text"` have tags and
            entities, as in HTML.
        mark_fuzzy: Whether to mark translations in catalogues as fuzzy, for human
            review.
        **settings: Arguments of `Translator.translate`, such as `search`.

    Returns:
        The paths of the translated files. A warning says how many translations look
        wrong; see `translator.Translation`.

    Raises:
        FileNotFoundError: If a file is missing.
        ImportError: If a format needs the extra `documents`, which is not installed.
        ValueError: If a file cannot be read in its format or has no text, before
            anything is written.

    While a file is translated, the finished translations are in a file beside the
    output, whose name ends in `.unfinished`. If the process is killed, the same call
    continues after them.
    """
    reading = source_language, target_language, columns, markup, mark_fuzzy
    for job in plan(files, output, format, *reading):
        flagged = [
            (sentence, one)
            for _, _, pairs in run(translator, [job], **settings)
            for sentence, one in pairs
            if one.flags
        ]
        if flagged:
            sentence, one = flagged[0]
            warnings.warn(
                f"{len(flagged)} translations of sentences in {job.path} look wrong, "
                f"the first for {sentence!r}: {', '.join(one.flags)}.",
                stacklevel=2,
            )
    return [path for _, path in _pairs(as_paths(files), output)]


class Job(NamedTuple):
    """A file to translate."""

    path: Path
    output: Path | None  # none for standard output
    document: Document | None  # none for lines, which are read again
    parts: list[list[Fragment]]  # of each text; see `sentences`
    num_sentences: int  # or lines

    def has_codes(self) -> bool:
        """Returns whether sentences have codes, which only attention can place."""
        return any(has_codes(one) for text in self.parts for one in text[1::2])

    def has_placeholders(self) -> bool:
        """Returns whether there are placeholders, which only `Terms` can keep."""
        keeps = self.document is not None and self.document.keeps_placeholders
        sentences = (plain_text(one) for text in self.parts for one in text[1::2])
        return keeps and any(re.search(PLACEHOLDER, one) for one in sentences)


def plan(
    files: Paths,
    output: str | Path | None,
    format: str | None,
    source_language: str,
    target_language: str | None = None,
    columns: Iterable[str] = (),
    markup: bool = False,
    mark_fuzzy: bool = False,
) -> list[Job]:
    """Reads the files to translate; see `translate`.

    Without an `output`, the one file is written to standard output.
    """
    settings: dict = {"columns": tuple(columns), "mark_fuzzy": mark_fuzzy}
    settings |= {"source_language": source_language, "target_language": target_language}
    jobs = []
    for path, written in _pairs(as_paths(files), output):
        if written and written.exists() and Path(output or "").is_dir():
            continue
        document, parts, count = None, [], 0
        one_format = format or format_of(path)
        if one_format == "lines":
            count = sum(1 for _ in read_lines(path))
        else:
            if not path.exists():
                raise FileNotFoundError(f"{path} does not exist. Check the path.")
            data = path.read_bytes()
            document = read_document(data, one_format, str(path), markup, **settings)
            parts = split(document, source_language)
            count = sum(len(one) // 2 for one in parts)
            if not count:
                raise ValueError(f"{path} has no text to translate.")
        jobs.append(Job(path, written, document, parts, count))
    return jobs


def format_of(path: Path) -> str:
    """Returns the format by a file's name, or `"lines"`."""
    ending = path.suffix.lower()
    if _UNREAD.fullmatch(ending):
        raise ValueError(
            f"{path} cannot be translated: {ending} is not supported. Convert it to "
            "HTML or text; --format lines translates it line by line as it is."
        )
    return next((x for x, (_, known) in FORMATS.items() if ending in known), "lines")


def read_document(
    data: bytes, format: str, name: str, markup: bool = False, **settings
) -> Document:
    """Reads a file of any format but `"lines"`; errors have its name.

    `markup` and `settings` are arguments of `translate`, by their names.
    """
    if format not in FORMATS:
        raise ValueError(
            f"`format` must be one of {', '.join(FORMATS)}. Received: format={format}."
        )
    module_name, reader = FORMATS[format][0].split(".")
    module = importlib.import_module(f"keras_transformer.documents.{module_name}")
    try:
        document = getattr(module, reader)(data, **settings)
    except (RecursionError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{name} cannot be read as {format}: {reason}.") from None
    return _with_tags(document) if markup and format in PLAIN_FORMATS else document


def _with_tags(document: Document) -> Document:
    """Returns a document whose texts are read as HTML is."""
    old = list(map(plain_text, document.texts))
    texts = list(map(read_markup, old))

    def assemble(translations):
        found = zip(old, texts, translations, strict=True)
        return document.assemble(
            [[x if new == read else write_markup(new, x)] for x, read, new in found]
        )

    return document._replace(texts=texts, assemble=assemble)


def _pairs(paths, output):
    """Returns each path and the path of its translation."""
    if not paths:
        raise ValueError("`files` must be one file or more. Received: none.")
    if output is None:
        return [(path, None) for path in paths]
    output = Path(output)
    is_folder = len(paths) > 1 or output.is_dir()
    if is_folder and output.is_file():
        raise ValueError(
            "`output` must be a folder if there are several files. "
            f"Received: output={output}, which is a file."
        )
    pairs = [(path, output / path.name if is_folder else output) for path in paths]
    for path, written in pairs:
        if written.resolve() == path.resolve():
            raise ValueError(f"{written} is an input file. Choose another output file.")
    if len({written for _, written in pairs}) < len(pairs):
        raise ValueError(
            f"`files` must have different names, because {output} gets a file of each "
            f"name. Received: {', '.join(str(path) for path, _ in pairs)}."
        )
    return pairs


def split(document: Document, language: str) -> list[list[Fragment]]:
    """Returns the parts of each text; see `sentences`."""
    return [split_sentences(text, language, document.width) for text in document.texts]


def sentences_of(parts: list[list[Fragment]]) -> Iterator[Fragment]:
    """Yields the sentences of all texts, each in one line."""
    return (unwrapped(one) for text in parts for one in text[1::2])


def assembled(
    document: Document, parts: list[list[Fragment]], translations: Iterable[Fragment]
) -> bytes:
    """Returns a document with the translations of its sentences."""
    remaining = iter(translations)
    return document.assemble([joined(text, remaining) for text in parts])


def run(
    translator: "Translator", jobs: list[Job], **settings
) -> Iterator[tuple[Job, int, list[tuple[str, Translation]]]]:
    """Translates what `plan` returned; `settings` are as in `translate`.

    For each chunk of sentences, or lines, it yields the job, the number of the first
    one in the file, from 1, and the sentences with their translations.
    """
    known = hashlib.blake2b(repr((translator.checksum(), settings)).encode())
    for job in jobs:
        parts = split_long(translator, job.parts)
        keeps = job.document is not None and job.document.keeps_placeholders

        def sentences(job=job, parts=parts) -> Iterator[Fragment]:
            if job.document is None:
                return ([line] for line in read_lines(job.path))
            return sentences_of(parts)

        question = known.copy()
        for sentence in sentences():
            question.update(f"{sentence}\n".encode("utf-8", "replace"))
        with journal(job.output, question.hexdigest()) as done:
            remaining = itertools.islice(sentences(), done.count, None)
            for chunk in chunks_of(remaining, SENTENCES_PER_CHUNK):
                first = done.count + 1
                rows = translate_sentences(translator, chunk, keeps, **settings)
                found = [(one, *row[0]) for one, row in zip(chunk, rows, strict=True)]
                done.append(
                    [x if isinstance(x, str) else one.index(x) for x in text]
                    for one, text, _ in found
                )
                yield job, first, [(shown(one), best) for one, _, best in found]
            translations = (
                merged(x if isinstance(x, str) else one[x] for x in items)
                for one, items in zip(sentences(), done, strict=True)
            )
            with opened_output(job.output) as file:
                if job.document is None:
                    file.writelines(f"{shown(x)}\n".encode() for x in translations)
                else:
                    file.write(assembled(job.document, parts, translations))


def translate_sentences(
    translator, sentences: Sequence[Fragment], keeps: bool, terms=None, **settings
) -> list[list[tuple[Fragment, Translation]]]:
    """Returns the translations of each sentence, as `translate_coded` does.

    With `keeps`, translations have the same placeholders, such as `%s`.
    """
    # `Terms` keeps them, which needs places in texts.
    for side in ("source", "target"):
        tokenizer = getattr(translator, f"{side}_tokenizer", None)
        keeps &= getattr(tokenizer, "has_offsets", False)
    groups: dict[bool, list[int]] = {}
    for index, one in enumerate(sentences):
        is_kept = keeps and re.search(PLACEHOLDER, plain_text(one)) is not None
        groups.setdefault(is_kept, []).append(index)
    found: dict[int, list] = {}
    for is_kept, indices in groups.items():
        its_terms = _keeping_placeholders(terms) if is_kept else terms
        how = {**settings, "terms": its_terms} if its_terms else settings
        rows = translate_coded(translator, [sentences[x] for x in indices], **how)
        found.update(zip(indices, rows, strict=True))
    return [found[index] for index in range(len(sentences))]


@functools.lru_cache(4)  # for which TensorFlow may trace
def _keeping_placeholders(terms):
    from keras_transformer.translator import Terms

    keep = [*(terms.keep if terms else ()), "placeholder"]
    return Terms(terms and terms.glossary, keep)


@contextlib.contextmanager
def opened_output(output: Path | None):
    """Opens standard output, or a file that appears once the block has ended."""
    if output is None:
        yield sys.stdout.buffer
        return
    with replace_file(output) as unfinished, unfinished.open("wb") as file:
        yield file


class Journal:
    """A file that translations are appended to, one per line.

    Translations of another `question`, which says what is translated and how, are
    removed, and so is a line that a killed process has not completed.
    """

    def __init__(self, file, question: str):
        self._file, self.count = file, -1
        file.seek(0)
        size = 0
        for line in file:
            is_whole = line.endswith(b"\n")
            if not is_whole or (self.count < 0 and json.loads(line) != question):
                break
            size += len(line)
            self.count += 1
        file.truncate(size)
        if self.count < 0:
            self.append([question])

    def append(self, lines: Iterable) -> None:
        """Writes translations, each a line of JSON, and counts them."""
        written = [f"{json.dumps(line)}\n".encode() for line in lines]
        self._file.seek(0, os.SEEK_END)
        self._file.writelines(written)
        self._file.flush()
        self.count += len(written)

    def __iter__(self) -> Iterator:
        """Yields the translations."""
        self._file.seek(0)
        next(self._file)
        yield from map(json.loads, self._file)


@contextlib.contextmanager
def journal(output: Path | None, question: str) -> Iterator[Journal]:
    """Opens the journal of an output, which is removed once the block has ended.

    If the block raises an error, the journal stays if it holds translations. Without an
    output, or for one that is not a file, such as a pipe, it is a temporary file.
    """
    if output is None or (output.exists() and not output.is_file()):
        with tempfile.TemporaryFile() as file:
            yield Journal(file, question)
        return
    path = output.with_name(f"{output.name}.unfinished")
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"{output} is being written by another process. Wait for it, or choose "
                "another output."
            ) from None
        except OSError:
            pass  # a file system without locks
        kept = None
        try:
            kept = Journal(file, question)
            yield kept
        except BaseException:
            if kept is None or kept.count == 0:
                path.unlink(missing_ok=True)
            raise
        path.unlink()
