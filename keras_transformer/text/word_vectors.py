"""Word vectors that others have trained, read from text and put to use."""

import math
import os
from collections.abc import Sequence

import keras
import numpy as np

from keras_transformer.layers.embeddings import TokenEmbedding
from keras_transformer.text.files import read_lines


def load_word_vectors(path: str | os.PathLike, tokens: Sequence[str]) -> np.ndarray:
    r"""Reads the vectors of some words from a file of many.

    The file is text, a word and its numbers on each line, as word2vec, GloVe and
    fastText (`.vec`) publish them, plain or gzipped; a first line that counts words
    and numbers is told by itself. It is streamed: no more is kept than the vectors
    asked for.

    Args:
        path: The file.
        tokens: The words, in the order of their ids.

    Returns:
        A float32 array of shape `(tokens, width)`. Words that are not in the file
        have zeros.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a line is not a word and as many numbers as the others have
            (the message names file and line), or no word is in the file.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "vectors.txt")
        ...     _ = path.write_text("a 0.1 0.2\ndog 0.5 -0.7\n")
        ...     load_word_vectors(path, ["[pad]", "dog"])
        array([[ 0. ,  0. ],
               [ 0.5, -0.7]], dtype=float32)

    Reference:
        [Mikolov et al., 2013](https://arxiv.org/abs/1310.4546);
        [Pennington et al., 2014](https://aclanthology.org/D14-1162);
        [Bojanowski et al., 2017](https://arxiv.org/abs/1607.04606)
    """
    rows = {}
    for row, token in enumerate(tokens):
        rows.setdefault(token, []).append(row)
    wanted, vectors, width = set(rows), None, None
    for number, line in enumerate(read_lines(path), start=1):
        # A word may hold any space but this one, and in GloVe even this one.
        fields = line.rstrip(" ").split(" ")
        if number == 1 and len(fields) == 2 and all(x.isdecimal() for x in fields):
            width = int(fields[1])
            continue
        width = width or len(fields) - 1
        if vectors is None:
            if width < 1:
                raise ValueError(
                    f"{path}:{number} has no numbers. Each line must be a word and its "
                    "vector, parted by single spaces."
                )
            vectors = np.zeros((len(tokens), width), "float32")
        if len(fields) - 1 < width or (
            len(fields) - 1 > width and _is_number(fields[-width - 1])
        ):
            raise ValueError(
                f"{path}:{number} has {len(fields) - 1} numbers where others have "
                f"{width}. The file may be cut short or damaged."
            )
        word = " ".join(fields[:-width])
        if word in wanted:
            wanted.remove(word)  # the first counts, as it is the most frequent
            vectors[rows[word]] = _vector(fields[-width:], f"{path}:{number}")
    if len(wanted) == len(rows):
        raise ValueError(
            f"{path} has a vector for none of the {len(rows)} words in `tokens`. "
            "Check the language, and whether words are spelt and cased as there."
        )
    return vectors


def set_word_vectors(embedding, vectors, trainable: bool = True) -> None:
    """Puts word vectors into an embedding layer, to be kept or trained on.

    Afterwards the layer gives `vectors[id]` for an id. Tokens whose vector is all
    zeros, of which nothing is known, keep what they had.

    Args:
        embedding: A `keras.layers.Embedding`, or a layer like it, such as
            `TokenEmbedding`; it is built if need be. A model compiled before must
            be compiled again.
        vectors: Float array of shape `(tokens, width)`; see `load_word_vectors`.
        trainable: Whether training is to change the table.

    Raises:
        ValueError: If the shape of `vectors` is not that of the table.
    """
    if not embedding.built:
        embedding.build((None, None))
    table = embedding.embeddings
    vectors = np.asarray(vectors, "float32")
    if vectors.shape != tuple(table.shape):
        raise ValueError(
            "`vectors` must have the shape of the table, (tokens, width). Received: "
            f"vectors of shape {vectors.shape} for a table of {tuple(table.shape)}. "
            "Make the layer with this vocabulary and width."
        )
    if isinstance(embedding, TokenEmbedding):
        vectors = vectors / math.sqrt(embedding.hidden_dim)  # which its call undoes
    known = vectors.any(axis=1, keepdims=True)
    table.assign(np.where(known, vectors, keras.ops.convert_to_numpy(table)))
    embedding.trainable = trainable


def _is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


def _vector(fields, place):
    try:
        vector = np.array(fields, "float32")
    except ValueError:
        wrong = next(x for x in fields if not _is_number(x))
        raise ValueError(f"{place}: {wrong!r} is not a number.") from None
    if not np.all(np.isfinite(vector)):
        wrong = fields[int(np.argmin(np.isfinite(vector)))]
        raise ValueError(f"{place}: {wrong!r} is not a finite number.")
    return vector
