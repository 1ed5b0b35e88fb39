"""Training of SentencePiece models: learning subwords from text."""

import io
import itertools
import os
import re
from collections.abc import Iterable, Iterator

import sentencepiece

from keras_transformer.text_files import Files, TextFile, as_files, read_lines

# SentencePiece keeps a uniform sample of this many lines in memory.
_MAX_SAMPLED_LINES = 2_000_000
_LINES_READ_AT_ONCE = 1000


class VocabularySizeError(ValueError):
    """A vocabulary size that does not suit the text; `nearest` is one that does."""

    def __init__(self, message: str, nearest: int):
        super().__init__(message)
        self.nearest = nearest


def train_model(
    files_or_lines: Files | Iterable[str], vocab_size: int, model_type: str, **settings
) -> bytes:
    """Returns a SentencePiece model; arguments have the names of its trainer."""
    if model_type not in ("bpe", "unigram"):
        raise ValueError(
            '`model_type` must be "bpe" or "unigram". '
            f"Received: model_type={model_type!r}."
        )
    model = io.BytesIO()
    input_errors: list[BaseException] = []
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_record_errors(_lines(files_or_lines), input_errors),
            model_writer=model,
            vocab_size=vocab_size,
            model_type=model_type,
            input_sentence_size=_MAX_SAMPLED_LINES,
            max_sentence_length=1 << 20,  # bytes; longer lines are skipped
            minloglevel=2,
            **settings,
        )
    except RuntimeError as error:
        raise (input_errors or [_explained(str(error), vocab_size)])[0] from None
    return model.getvalue()


def _lines(files_or_lines) -> Iterator[str]:
    """Returns the given lines, or the lines of the given files."""
    if isinstance(files_or_lines, (str, os.PathLike, TextFile)):
        return itertools.chain.from_iterable(map(read_lines, as_files(files_or_lines)))
    items = iter(files_or_lines)
    first = next(items, "")
    items = itertools.chain([first], items)
    is_file = isinstance(first, str) and os.path.isfile(first)
    if is_file or isinstance(first, (os.PathLike, TextFile)):
        return itertools.chain.from_iterable(map(read_lines, as_files(items)))
    return items


def _record_errors(lines, errors: list) -> Iterator[str]:
    """Yields lines; records the exception that SentencePiece replaces by its own."""
    try:
        while block := list(itertools.islice(lines, _LINES_READ_AT_ONCE)):
            for line in block:
                if not isinstance(line, str):
                    raise ValueError(
                        "`files_or_lines` must be paths or lines of text. "
                        f"Received: a line that is {type(line).__name__}."
                    )
            yield from block
    except (Exception, KeyboardInterrupt) as error:
        errors.append(error)
        raise


def _explained(message: str, vocabulary_size: int) -> ValueError:
    """Translates a message of SentencePiece's into the arguments of `train`."""
    received = f"Received: vocabulary_size={vocabulary_size}."
    if most := re.search(r"size too high.* <= (\d+)", message):
        return VocabularySizeError(
            f"`vocabulary_size` must be at most {most[1]} for this text. {received} "
            "Lower it, or give more text. If you passed file names, check that the "
            "first exists: strings are lines of text unless the first names a file.",
            int(most[1]),
        )
    if least := re.search(r"smaller than required_chars. \d+ vs (\d+)", message):
        return VocabularySizeError(
            f"`vocabulary_size` must be at least {least[1]} for the characters of this "
            f"text. {received} Raise it, or lower `character_coverage`.",
            int(least[1]),
        )
    if "sentences_.empty" in message or "all_chars_count" in message:
        return ValueError("`files_or_lines` holds no text. Pass at least one line.")
    return ValueError(f"SentencePiece cannot train on these settings: {message}")
