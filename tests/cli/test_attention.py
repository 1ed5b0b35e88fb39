import json
import random
import re
import shutil

import pytest
from PIL import Image
from typer.testing import CliRunner

from keras_transformer.cli import app
from keras_transformer.decoding import BeamSearch
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


@pytest.fixture(scope="module")
def loaded(translator):
    return Translator.load(translator)


@pytest.fixture(autouse=True)
def loaded_once(loaded, monkeypatch):
    """Lets commands share one translator, which compiles no search twice."""
    monkeypatch.setattr(Translator, "load", lambda path: loaded)


def shell(*arguments, stdin=None):
    return CliRunner().invoke(app, list(map(str, arguments)), input=stdin)


def translate(*arguments, stdin):
    return shell("translate", *arguments, "--engine", "tensorflow", stdin=stdin)


def test_the_attention_of_a_line_is_drawn(translator, tmp_path):
    path = tmp_path / "out.png"
    result = translate(translator, "--attention", path, stdin="a dog\n")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == translate(translator, stdin="a dog\n").stdout
    warnings = result.stderr.splitlines()  # of a translator that has learnt nothing
    assert all("has a doubtful translation: " in line for line in warnings)
    assert list(tmp_path.iterdir()) == [path]
    with Image.open(path) as picture:
        assert picture.format == "PNG"
        assert min(picture.size) > 300


def test_what_is_drawn_is_as_long_as_what_is_written(translator, tmp_path):
    path = tmp_path / "out.html"
    options = "--attention", path, "--max-length", 2
    result = translate(translator, *options, stdin="a dog rides\n")
    assert result.exit_code == 0, result.stderr
    assert json.dumps(result.stdout.strip()) in path.read_text()
    uncut = translate(translator, stdin="a dog rides\n").stdout
    assert len(uncut) > len(result.stdout)


@pytest.mark.slow
def test_every_line_that_is_translated_has_a_picture_of_its_own(translator, tmp_path):
    lines = "a dog\n\u200b\na man\n" + "a bike " * 13
    path = tmp_path / "out.svg"
    result = translate(translator, "--attention", path, "--beam-width", 1, stdin=lines)
    assert result.exit_code == 0, result.stderr
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"out.svg", "out-3.svg", "out-4.svg"}
    # What looks wrong with translations is told line by line, and once.
    told = re.findall("^Warning: standard input:(\\d) ", result.stderr, re.MULTILINE)
    assert len(told) == len(set(told)) == len(result.stderr.splitlines())
    assert result.stderr.count("standard input:4 is cut") == 1


@pytest.mark.slow
def test_every_line_can_have_a_page(translator, tmp_path):
    path = tmp_path / "out.HTML"
    result = translate(translator, "--attention", path, stdin="a dog\na man\n")
    assert result.exit_code == 0, result.stderr
    translations = result.stdout.splitlines()
    paths = sorted(tmp_path.iterdir(), reverse=True)
    for page, translation in zip(paths, translations, strict=True):
        assert page.read_text().startswith("<!doctype html>")
        assert translations_of(page) == [("", translation)]


@pytest.mark.parametrize("name", ["out.svg", "out.html"])
def test_the_attention_of_a_sentence_is_drawn(translator, tmp_path, name):
    path = tmp_path / name
    result = shell("plot", "attention", translator, "a dog", "-o", path)
    assert result.exit_code == 0, result.stderr
    assert result.output == f"The attention is in {path}.\n"
    start = path.read_text("utf-8")[:20]
    assert start.startswith("<?xml" if path.suffix == ".svg" else "<!doctype html>")


def test_a_sentence_without_a_word_is_refused_in_a_line(translator, tmp_path):
    path = tmp_path / "out.html"
    result = shell("plot", "attention", translator, " ", "-o", path)
    assert result.exit_code == 1
    assert result.stderr == (
        "Error: `text` must be a str with a word. Received: text=' '.\n"
    )
    assert not path.exists()


@pytest.mark.parametrize("name", ["out", "out.txt"])
def test_a_file_that_is_not_a_picture_is_refused(translator, tmp_path, name):
    path = tmp_path / name
    result = translate(translator, "--attention", path, stdin="a dog\n")
    assert result.exit_code == 1
    assert result.stderr == (
        f"Error: {path} is not a picture file. Its name must end in .png, "
        ".svg, .pdf or .html.\n"
    )
    assert not result.stdout


def translations_of(path):
    page = path.read_text()
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    return [(each["name"], each["text"]) for each in data["translations"]]


def test_a_page_compares_the_best_of_a_beam(translator, loaded, tmp_path):
    path = tmp_path / "out.html"
    options = ("--beam-width", 3, "--num-hypotheses", 2)
    result = shell("plot", "attention", translator, "a dog", "-o", path, *options)
    assert result.exit_code == 0, result.stderr
    (found,) = loaded.translate_n_best(["a dog"], BeamSearch(3, num_hypotheses=2))
    assert translations_of(path) == [("", each.text) for each in found]


def test_a_page_compares_two_models(translator, loaded, tmp_path):
    path = tmp_path / "out.html"
    other = shutil.copytree(translator, tmp_path / "other")
    options = ("--against", other)
    result = shell("plot", "attention", translator, "a dog", "-o", path, *options)
    assert result.exit_code == 0, result.stderr
    (text,) = loaded.translate(["a dog"])
    assert translations_of(path) == [(str(translator), text), (str(other), text)]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("out.png", ["--against", "other"], "Comparing needs an .html file."),
        ("out.png", ["--num-hypotheses", "2"], "Comparing needs an .html file."),
    ],
)
def test_what_cannot_be_compared_is_refused(
    translator, tmp_path, name, options, message
):
    path = tmp_path / name
    result = shell("plot", "attention", translator, "a dog", "-o", path, *options)
    assert result.exit_code == 1
    assert message in result.stderr
    assert not path.exists()
