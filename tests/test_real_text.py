"""What a translator is put to work with, on captions of Multi30k."""

import html
import importlib.util
import random
import re
from pathlib import Path

import pytest

import keras_transformer as kt

pytestmark = pytest.mark.slow
BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "flags.py"


@pytest.fixture(scope="module")
def captions(multi30k):
    names = (multi30k / "raw" / f"val.{side}.gz" for side in ("en", "de"))
    return [list(kt.text.read_lines(name)) for name in names]


@pytest.fixture(scope="module")
def translator(captions):
    """A translator that has learnt nothing: what it keeps, it keeps by rule."""
    train = kt.text.SubwordTokenizer.train
    tokenizers = [train(lines, vocabulary_size=1000) for lines in captions]
    sizes = {"hidden_dim": 16, "num_heads": 2, "intermediate_dim": 32}
    model = kt.models.Transformer(1000, 1000, num_layers=2, **sizes)
    search = kt.decoding.GreedySearch()
    return kt.Translator(model, *tokenizers, max_source_length=64, search=search)


def test_a_book_of_captions_keeps_its_paragraphs(translator, captions, tmp_path):
    pytest.importorskip("sentencex")
    lines = [line for line in captions[0][:120] if line.endswith(".")]
    pages = [lines[start : start + 4] for start in range(0, len(lines), 4)]
    book = "\r\n\r\n".join(f"  {' '.join(page)}" for page in pages)
    (tmp_path / "book.txt").write_bytes(book.encode())
    output = tmp_path / "book.de.txt"
    settings = {"format": "text", "max_length": 16}
    with pytest.warns(UserWarning, match="look wrong"):
        kt.documents.translate(translator, tmp_path / "book.txt", output, **settings)
    found = output.read_bytes().decode()
    translated = dict(
        zip(lines, translator.translate(lines, max_length=16), strict=True)
    )
    expected = [f"  {' '.join(translated[line] for line in page)}" for page in pages]
    found = found.split("\r\n\r\n")
    assert len(found) == len(expected)
    # The splitter takes some abbreviations for the ends of sentences.
    assert sum(map(str.__eq__, found, expected)) >= 0.9 * len(expected)


def test_tags_in_captions_return_around_the_same_translations(translator, captions):
    draw, tagged = random.Random(1), []
    for line in captions[0][:100]:
        words = html.escape(line, quote=False).split()
        start = draw.randrange(len(words))
        end = draw.randint(start + 1, len(words))
        marked = ["<b>" + " ".join(words[start:end]) + "</b>"]
        tagged.append(" ".join([*words[:start], *marked, *words[end:]]))
    found = [
        best.text
        for best in kt.translator.translate_markup(translator, tagged, max_length=16)
    ]
    plain = translator.translate(
        [" ".join(line.split()) for line in captions[0][:100]], max_length=16
    )
    for one, expected in zip(found, plain, strict=True):
        assert re.findall("</?b>", one) == ["<b>", "</b>"]
        assert html.unescape(re.sub("</?b>", "", one)) == expected


@pytest.mark.parametrize("width", [1, 4])
def test_words_of_the_references_are_in_the_translations(translator, captions, width):
    sources, references = (side[:60] for side in captions)
    search = kt.decoding.BeamSearch(width)
    for source, reference in zip(sources, references, strict=True):
        word = max(re.findall(r"\w+", reference), key=len)
        first = source.split()[0]
        terms = kt.translator.Terms({first: word})
        settings = {"search": search, "max_length": 24, "terms": terms}
        (found,) = translator.translate([source], **settings)
        assert re.search(rf"\b{word}\b", found)


def test_spoiled_translations_are_flagged(translator, captions):
    spec = importlib.util.spec_from_file_location("flags_benchmark", BENCHMARK)
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    pairs = list(zip(*captions, strict=True))
    for precision, recall in benchmark.measure(translator, pairs).values():
        assert precision >= 0.95
        assert recall >= 0.8
