"""Translates files, each in its format, and goes on where a killed process stopped."""

import contextlib
import hashlib
import html
import importlib
import itertools
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from keras_transformer.documents.sentences import (
    MARKUP,
    Document,
    joined,
    split_long,
    split_sentences,
    unwrapped,
)
from keras_transformer.documents.unfinished import journal
from keras_transformer.storage import replace_file
from keras_transformer.text_files import Paths, as_paths, chunks_of, read_lines
from keras_transformer.translation import Translation

if TYPE_CHECKING:  # the shell reads documents before it loads TensorFlow
    from keras_transformer.translator import Translator

SENTENCES_PER_CHUNK = 8192
# Each format: its reader, and the endings of its files' names.
FORMATS: dict[str, tuple[str, tuple[str, ...]]] = {
    "lines": ("", ()),
    "text": ("in_place.read_text", ()),
    "srt": ("in_place.read_subtitles", (".srt",)),
    "vtt": ("in_place.read_subtitles", (".vtt",)),
    "html": ("in_place.read_html", (".html", ".htm", ".xhtml")),
    "json": ("in_place.read_json", (".json",)),
    "csv": ("in_place.read_csv", (".csv",)),
    "tsv": ("in_place.read_tsv", (".tsv",)),
    "po": ("stores.read_po", (".po", ".pot")),
    "xliff": ("stores.read_xliff", (".xlf", ".xliff")),
    "tmx": ("stores.read_tmx", (".tmx",)),
}


def translate(
    translator: "Translator",
    files: Paths,
    output: str | Path,
    format: str | None = None,
    source_language: str = "en",
    target_language: str | None = None,
    columns: Iterable[str] = (),
    **settings,
) -> list[Path]:
    """Translates files, and writes each translation in the format of its file.

    Everything but the translated text stays as it was; docs/documents.md tells what of
    each format is translated. Sentences that are too long for the model are translated
    in parts.

    Args:
        translator: A `Translator`.
        files: Path of a file, or of several.
        output: The file to write, or a folder that gets files of the same names. Files
            that the folder holds already are not translated again.
        format: `"lines"`, `"text"`, `"srt"`, `"vtt"`, `"html"`, `"json"`, `"csv"`,
            `"tsv"`, `"po"`, `"xliff"` or `"tmx"`; by default what the name of each file
            tells. Without a known ending, such as `.txt`, a file has one sentence a
            line; `"text"` has paragraphs.
        source_language: ISO 639 code, such as `"de"`; abbreviations that do not end a
            sentence depend on it.
        target_language: Code that TMX and XLIFF name the translations by.
        columns: Names of columns of a table: that to translate, or that of the texts
            and that of the translations. Default: `source` and `target`.
        **settings: Arguments of `Translator.translate`, such as `search`.

    Returns:
        The paths of the translated files. A warning tells how many translations look
        wrong; see `translator.Translation`.

    Raises:
        FileNotFoundError: If a file is missing.
        ImportError: If a format needs the extra `documents`, which is not installed.
        ValueError: If a file cannot be read in its format or has no text, before
            anything is written.

    While a file is translated, the finished translations are in a file beside the
    output, whose name ends in `.unfinished`. If the process is killed, the same call
    goes on after them.
    """
    jobs = plan(files, output, format, source_language, target_language, columns)
    for job in jobs:
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
                f"the first that of {sentence!r}: {', '.join(one.flags)}.",
                stacklevel=2,
            )
    return [path for _, path in _pairs(as_paths(files), output)]


class Job(NamedTuple):
    """A file to translate.

    Attributes:
        path: The file.
        output: What to write; None for standard output.
        document: What was read; None for lines, which are read again.
        parts: The parts of each text; see `sentences`.
        num_sentences: The number of sentences, or lines.
    """

    path: Path
    output: Path | None
    document: Document | None
    parts: list[list[str]]
    num_sentences: int

    @property
    def has_tags(self) -> bool:
        """Whether sentences may have inline tags."""
        return self.document is not None and self.document.has_tags

    def has_markup(self) -> bool:
        """Returns whether sentences have tags, which only attention can place."""
        sentences = itertools.chain.from_iterable(text[1::2] for text in self.parts)
        return self.has_tags and any(map(MARKUP.search, sentences))


def plan(
    files: Paths,
    output: str | Path | None,
    format: str | None,
    source_language: str,
    target_language: str | None,
    columns: Iterable[str],
) -> list[Job]:
    """Reads the files that are to be translated; see `translate`.

    Without an `output`, the one file is written to standard output.
    """
    if format is not None and format not in FORMATS:
        raise ValueError(
            f"`format` must be one of {', '.join(FORMATS)}. Received: format={format}."
        )
    jobs = []
    for path, written in _pairs(as_paths(files), output):
        if written and written.exists() and Path(output or "").is_dir():
            continue
        document, parts, count = None, [], 0
        one_format = format or format_of(path)
        if one_format == "lines":
            count = sum(1 for _ in read_lines(path))
        else:
            settings = {"target_language": target_language, "columns": tuple(columns)}
            document = _read(path, one_format, settings)
            parts = [
                split_sentences(
                    text, source_language, document.width, document.has_tags
                )
                for text in document.texts
            ]
            count = sum(len(one) // 2 for one in parts)
            if not count:
                raise ValueError(f"{path} has no text to translate.")
        jobs.append(Job(path, written, document, parts, count))
    return jobs


def format_of(path: Path) -> str:
    """Returns the format that a file's name tells, or `"lines"`."""
    ending = path.suffix.lower()
    return next((x for x, (_, known) in FORMATS.items() if ending in known), "lines")


def _pairs(paths, output):
    """Returns each path and the path of its translation."""
    if not paths:
        raise ValueError("`files` must be one file or more. Received: none.")
    if output is None:
        return [(path, None) for path in paths]
    output = Path(output)
    if len(paths) == 1 and not output.is_dir():
        pairs = [(paths[0], output)]
    else:
        if output.is_file():
            raise ValueError(
                "`output` must be a folder if there are several files. "
                f"Received: output={output}, which is a file."
            )
        pairs = [(path, output / path.name) for path in paths]
    for path, written in pairs:
        if written.resolve() == path.resolve():
            raise ValueError(f"{written} is the input. Name another file to write to.")
    if len({written for _, written in pairs}) < len(pairs):
        raise ValueError(
            f"`files` must have different names, because {output} gets a file of each "
            f"name. Received: {', '.join(str(path) for path, _ in pairs)}."
        )
    return pairs


def _read(path, format, settings) -> Document:
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist. Check the path.")
    module_name, name = FORMATS[format][0].split(".")
    module = importlib.import_module(f"keras_transformer.documents.{module_name}")
    data = path.read_bytes()
    try:
        return getattr(module, name)(data, **settings)
    except Exception as error:  # What a parser raises depends on the damage.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{path} cannot be read as {format}: {reason}.") from None


def run(
    translator: "Translator", jobs: list[Job], **settings
) -> Iterator[tuple[Job, int, list[tuple[str, Translation]]]]:
    """Translates what `plan` returned; `settings` are as in `translate`.

    Yields:
        For each chunk of sentences, or lines, that are translated together: the job;
        the number of the first of them in the file, from 1; and these sentences with
        their translations.
    """
    known = hashlib.blake2b(repr((translator.checksum(), settings)).encode())
    for job in jobs:
        parts = _short_parts(translator, job)

        def sentences(job=job, parts=parts):
            if job.document is None:
                return read_lines(job.path)
            return (unwrapped(one) for text in parts for one in text[1::2])

        question = known.copy()
        for sentence in sentences():
            question.update(f"{sentence}\n".encode("utf-8", "replace"))
        with journal(job.output, question.hexdigest()) as done:
            remaining = itertools.islice(sentences(), done.count, None)
            for chunk in chunks_of(remaining, SENTENCES_PER_CHUNK):
                first = done.count + 1
                found = _translated(translator, chunk, job.has_tags, **settings)
                done.append([one.text for one in found])
                yield job, first, list(zip(chunk, found, strict=True))
            with opened_output(job.output) as file:
                if job.document is None:
                    file.writelines(f"{line}\n".encode() for line in done)
                else:
                    file.write(_assembled(job.document, parts, iter(done)))


def _short_parts(translator, job):
    """Returns the parts of each text, with sentences that the model can read."""
    sentences = [one for text in job.parts for one in text[1::2]]
    pieces = iter(split_long(translator, sentences, job.has_tags))
    found = []
    for text in job.parts:
        found.append(text[:1])
        for gap in text[2::2]:
            found[-1] += [*next(pieces), gap]
    return found


def _translated(translator, sentences, has_tags, **settings):
    """Returns the `Translation` of each sentence; those with tags keep them."""
    is_tagged = [has_tags and bool(MARKUP.search(one)) for one in sentences]
    others = [x for x, has_tag in zip(sentences, is_tagged, strict=True) if not has_tag]
    plain = iter(translator.translate_n_best(others, **settings))
    if not any(is_tagged):
        return [best for best, *_ in plain]
    from keras_transformer.translator import translate_markup

    tagged = list(itertools.compress(sentences, is_tagged))
    marked = iter(translate_markup(translator, tagged, **settings))
    return [next(marked) if has_tag else next(plain)[0] for has_tag in is_tagged]


def _assembled(document, parts, translations) -> bytes:
    """Returns a document with the translations of its sentences."""
    texts = []
    for text, its_parts in zip(document.texts, parts, strict=True):
        found = [next(translations) for _ in its_parts[1::2]]
        if document.has_tags and MARKUP.search(text):
            # A sentence without tags may stand beside one with tags.
            found = [
                one if MARKUP.search(sentence) else html.escape(one, quote=False)
                for sentence, one in zip(its_parts[1::2], found, strict=True)
            ]
        texts.append(joined(its_parts, found))
    return document.assemble(texts)


@contextlib.contextmanager
def opened_output(output: Path | None):
    """Opens standard output, or a file that appears once the block has ended."""
    if output is None:
        yield sys.stdout.buffer
        return
    with replace_file(output) as unfinished, unfinished.open("wb") as file:
        yield file
