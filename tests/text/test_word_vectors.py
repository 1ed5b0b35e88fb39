import gzip

import keras
import numpy as np
import pytest

from keras_transformer.layers import TokenEmbedding
from keras_transformer.text import load_word_vectors, set_word_vectors

WORDS = ["the", "man", "rides", "a", "bike", "2", "é", "a\u00a0b"]
VECTORS = np.random.default_rng(0).normal(size=(8, 3)).round(4).astype("float32")
TOKENS = ["[pad]", "bike", "man", "unheard", "é", "a\u00a0b", "2", "man"]
EXPECTED = np.zeros((8, 3), "float32")
for row, token in enumerate(TOKENS):
    if token in WORDS:
        EXPECTED[row] = VECTORS[WORDS.index(token)]


def lines(end=""):
    return [
        " ".join([word, *map(str, vector)]) + end
        for word, vector in zip(WORDS, VECTORS, strict=True)
    ]


FORMATS = {
    "GloVe": lines(),
    "word2vec": ["8 3", *lines(" ")],
    "fastText": ["8 3", *lines()],
}


@pytest.fixture
def write(tmp_path):
    def write(lines, open_file=open):
        path = tmp_path / "vectors"
        with open_file(path, "wt", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))
        return path

    return write


@pytest.mark.parametrize("open_file", [open, gzip.open], ids=["plain", "gzipped"])
@pytest.mark.parametrize("name", FORMATS)
def test_every_token_gets_its_vector_or_zeros(write, name, open_file):
    path = write(FORMATS[name], open_file)
    vectors = load_word_vectors(path, TOKENS)
    assert vectors.dtype == "float32"
    np.testing.assert_array_equal(vectors, EXPECTED)


def test_words_may_hold_spaces(write):
    path = write(["a 1 2 3", ". . . 5 7 11", "at name@domain.com 1 0 0"])
    vectors = load_word_vectors(path, [". . .", "at name@domain.com"])
    np.testing.assert_array_equal(vectors, [[5, 7, 11], [1, 0, 0]])


def test_a_repeated_word_gets_its_first_vector(write):
    path = write(["a 1 2", "a 3 4"])
    np.testing.assert_array_equal(load_word_vectors(path, ["a"]), [[1, 2]])


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["a 1 2 3", "b 1 2"], "vectors:2 .* 2 numbers where others have 3"),
        (["5 3", "b 1 2"], "vectors:2 .* 2 numbers where others have 3"),
        (["a 1 2", "", "b 1 2"], "vectors:2 .* 0 numbers where others have 2"),
        (["a 1 2", "b 1 x2"], "vectors:2: .* 'x2'"),
        (["a 1 2", "b nan 2"], "vectors:2 has a number that is not finite"),
        (["a", "b"], "vectors:1 must be a word and its vector"),
        (["c 1 2"], "vectors has no vector for any of the 2 words in `tokens`"),
        ([], "vectors has no vector for any of the 2 words"),
    ],
    ids=lambda x: "/".join(x) if isinstance(x, list) else "",
)
def test_faults_are_named_by_file_and_line(write, lines, message):
    path = write(lines)
    with pytest.raises(ValueError, match=message) as caught:
        load_word_vectors(path, ["a", "b"])
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"vectors.vec does not exist"):
        load_word_vectors(tmp_path / "vectors.vec", ["a"])


@pytest.mark.quick("trained on-TokenEmbedding")
@pytest.mark.parametrize("kind", [keras.layers.Embedding, TokenEmbedding])
@pytest.mark.parametrize("trainable", [True, False], ids=["trained on", "frozen"])
def test_a_layer_gives_the_vectors_and_keeps_them_if_frozen(kind, trainable):
    layer = kind(8, 3)
    set_word_vectors(layer, EXPECTED, trainable)
    ids = np.arange(8)[None]
    outputs = layer(ids).numpy()[0]
    known = EXPECTED.any(axis=1)
    np.testing.assert_allclose(outputs[known], EXPECTED[known], 1e-6)
    assert np.all(outputs[~known].any(axis=1)), "unknown words lost their vectors"

    model = keras.Sequential(
        [keras.Input((None,), dtype="int32"), layer, keras.layers.Dense(1)]
    )
    model.compile(keras.optimizers.SGD(1.0), loss="mse")
    model.fit(ids, np.ones((1, 8, 1)), verbose=0)
    assert np.any(layer(ids).numpy()[0] != outputs) == trainable


def test_vectors_must_have_the_shape_of_the_table():
    message = r"Received: vectors of shape \(8, 3\) for a table of \(8, 5\)"
    with pytest.raises(ValueError, match=message):
        set_word_vectors(TokenEmbedding(8, 5), EXPECTED)
