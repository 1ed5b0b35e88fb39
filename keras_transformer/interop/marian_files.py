"""Files of Marian's models: weights in NumPy's format, settings, vocabularies."""

import io
import re
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from keras_transformer.interop.checkpoint import (
    as_float32,
    read_bytes,
    read_sentencepiece,
)

_YAML = YAML(typ="safe", pure=True)


def read_yaml(data: bytes, path) -> dict:
    """Reads names and values; raises `ValueError` with the path if it holds others."""
    try:
        values = _YAML.load(data)
    except (YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path} is not YAML: {reason}.") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold names and values. Received: {values!r}.")
    return values


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Reads arrays by name: floats as float32, other dtypes as they are.

    Raises:
        FileNotFoundError: If the file is missing.
        ValueError: If it is damaged.
    """
    data = read_bytes(path)
    try:
        with np.load(io.BytesIO(data)) as file:
            arrays = dict(file.items())
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, AttributeError) as error:
        raise ValueError(f"{path} is damaged ({error}). Download it again.") from None
    return {name: as_float32(array) for name, array in arrays.items()}


def read_vocabulary(path: Path) -> dict[str, int]:
    """Reads the ids of subwords: of a .yml file, or of a SentencePiece model, .spm.

    Raises:
        FileNotFoundError: If the file is missing.
        ValueError: If it is damaged.
    """
    if path.suffix == ".spm":
        _, pieces = read_sentencepiece(path)
        return {piece: index for index, piece in enumerate(pieces)}
    try:
        lines = read_bytes(path).decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error}.") from None
    vocabulary, long = {}, None
    # Line by line: YAML would read the subword no as a boolean.
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\r")
        if line.startswith("? "):  # a long subword, its id on the next line
            long = line[2:]
        elif line:
            piece, _, index = line.rpartition(":")
            piece, long = piece if long is None else long, None
            try:
                is_quoted = piece[:1] in ("'", '"')
                piece = _YAML.load(piece) if is_quoted else piece
                vocabulary[piece] = int(index)
            except (ValueError, YAMLError):
                raise ValueError(
                    f"{path}, line {number}, is not a subword and its id: {line!r}."
                ) from None
    return vocabulary


def language_prefix(
    vocabulary: Iterable[str], source_language: str | None, target_language: str | None
) -> list[str]:
    """Returns the subword of the target language, which begins every source, if any.

    A multilingual model reads the language of the target from the text, as in
    `">>fra<< A man rides a bike."`; `target_language="fra"` puts it there.

    Raises:
        ValueError: If there is no such language, or a `source_language`.
    """
    if source_language is not None:
        raise ValueError(
            "A Marian model reads its source language from the text: leave out "
            f"`source_language`. Received: source_language={source_language!r}."
        )
    if target_language is None:
        return []
    prefix = f">>{target_language}<<"
    if prefix not in vocabulary:
        known = sorted(x[2:-2] for x in vocabulary if re.fullmatch(">>.*<<", x))
        raise ValueError(
            f"`target_language` must be one of {known}. "
            f"Received: target_language={target_language!r}."
        )
    return [prefix]
