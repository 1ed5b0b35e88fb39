"""Pretrained word vectors: loading them, and setting them in an embedding layer."""

import math
import os
from collections import defaultdict
from collections.abc import Sequence

import keras
import numpy as np

from keras_transformer.layers.embeddings import TokenEmbedding
from keras_transformer.text_files import read_lines


def load_word_vectors(path: str | os.PathLike, tokens: Sequence[str]) -> np.ndarray:
    r"""Loads the pretrained vectors of a vocabulary's words.

    The file is text, plain or gzipped, with a word and its vector on each line, in the
    format of word2vec, GloVe and fastText (`.vec`). A first line with the numbers of
    words and dimensions is recognized automatically. The file is streamed: only the
    requested vectors are kept in memory.

    Args:
        path: The file.
        tokens: The words, in the order of their ids.

    Returns:
        A float32 array of shape `(tokens, width)`, zero for words not in the file.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a line is not a word and a vector of the same width as the others
            (the message names file and line), or if no word is in the file.

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
    rows = defaultdict(list)  # of each word that has no vector yet
    for row, token in enumerate(tokens):
        rows[token].append(row)
    num_words, vectors, width = len(rows), None, 0
    for number, line in enumerate(read_lines(path), start=1):
        location = f"{path}:{number}"
        # A word may contain any space but this one, and in GloVe even this one.
        fields = line.rstrip(" ").split(" ")
        if number == 1 and len(fields) == 2 and all(x.isdecimal() for x in fields):
            width = int(fields[1])
            continue
        width = width or len(fields) - 1
        if len(fields) <= max(width, 1):
            raise ValueError(
                f"{location} must be a word and its vector, with single spaces. "
                f"Received: {len(fields) - 1} numbers where others have {width}."
            )
        if vectors is None:
            vectors = np.zeros((len(tokens), width), "float32")
        word = " ".join(fields[:-width])
        if word in rows:  # of a repeated word the first vector counts
            try:
                vector = np.array(fields[-width:], "float32")
            except ValueError as error:
                raise ValueError(f"{location}: {error}.") from None
            if not np.isfinite(vector).all():
                raise ValueError(f"{location} has a number that is not finite.")
            vectors[rows.pop(word)] = vector
    if vectors is None or len(rows) == num_words:
        raise ValueError(
            f"{path} has no vector for any of the {num_words} words in `tokens`. Check "
            "the language, and that words are spelt and capitalized as in the file."
        )
    return vectors


def set_word_vectors(embedding, vectors, trainable: bool = True) -> None:
    """Sets the vectors of an embedding layer, and whether to train them further.

    Afterwards the layer returns `vectors[id]` for an id. An unknown token, with a
    vector of zeros, keeps its previous vector.

    Args:
        embedding: A `keras.layers.Embedding`, or a layer like it, such as
            `TokenEmbedding`; it is built if necessary. Compile the model afterwards,
            even if it was compiled before.
        vectors: Float array of shape `(tokens, width)`; see `load_word_vectors`.
        trainable: Whether training updates the table.

    Raises:
        ValueError: If `vectors` and the layer's table have different shapes.
    """
    if not embedding.built:
        embedding.build((None, None))
    table, vectors = embedding.embeddings, np.asarray(vectors, "float32")
    if vectors.shape != tuple(table.shape):
        raise ValueError(
            "`vectors` must have the shape of the table, (tokens, width). Received: "
            f"vectors of shape {vectors.shape} for a table of {tuple(table.shape)}. "
            "Create the layer with this vocabulary and width."
        )
    if isinstance(embedding, TokenEmbedding) and embedding.scale:
        vectors = vectors / math.sqrt(embedding.hidden_dim)  # its call multiplies
    known = vectors.any(axis=1, keepdims=True)
    table.assign(np.where(known, vectors, keras.ops.convert_to_numpy(table)))
    embedding.trainable = trainable
