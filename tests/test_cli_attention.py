import random

import pytest
from PIL import Image
from typer.testing import CliRunner

from keras_transformer.cli import app
from keras_transformer.models import Transformer
from keras_transformer.text import SubwordTokenizer
from keras_transformer.translator import Translator

LINES = ["a man rides a bike", "a dog rides a man", "a bike"]


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    """The folder of a translator that was saved."""
    random.seed(7)  # of the model's weights, whichever tests ran before
    folder = tmp_path_factory.mktemp("translators") / "small"
    tokenizer = SubwordTokenizer.train(LINES, vocabulary_size=25)
    model = Transformer(
        25, num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=11
    )
    Translator(model, tokenizer, max_source_length=17).save(folder)
    return folder


def translate(*arguments, stdin):
    return CliRunner().invoke(app, ["translate", *map(str, arguments)], input=stdin)


def test_the_attention_of_a_line_is_drawn(translator, tmp_path):
    path = tmp_path / "out.png"
    result = translate(translator, "--attention", path, stdin="a dog\n")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == translate(translator, stdin="a dog\n").stdout
    assert not result.stderr
    assert list(tmp_path.iterdir()) == [path]
    with Image.open(path) as picture:
        assert picture.format == "PNG"
        assert min(picture.size) > 300


def test_every_line_that_is_translated_has_a_picture_of_its_own(translator, tmp_path):
    lines = "a dog\n\u200b\na man\n" + "a bike " * 13
    path = tmp_path / "out.svg"
    result = translate(translator, "--attention", path, "--beam-width", 1, stdin=lines)
    assert result.exit_code == 0, result.stderr
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"out.svg", "out-3.svg", "out-4.svg"}
    assert result.stderr.count("standard input:4 is cut") == 1
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", ["out", "out.txt"])
def test_a_name_that_no_picture_can_have_is_refused(translator, tmp_path, name):
    path = tmp_path / name
    result = translate(translator, "--attention", path, stdin="a dog\n")
    assert result.exit_code == 1
    assert result.stderr == (
        f"Error: {path} is no name of a picture. End it in .png or .pdf.\n"
    )
    assert not result.stdout
