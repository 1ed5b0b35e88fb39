"""CTranslate2 translates from within the package, without TensorFlow."""

import re
import subprocess
import sys

import numpy as np
import pytest
from interop.random_translator import MAX_LENGTH, TEXTS, make_translator
from typer.testing import CliRunner

import keras_transformer as kt
from keras_transformer.cli import app

pytest.importorskip("ctranslate2")

from keras_transformer.interop.ctranslate2_translator import CTranslate2Translator

pytestmark = pytest.mark.needs_tensorflow
BEAM = kt.decoding.BeamSearch(4, kt.decoding.PowerLengthPenalty(0.8), num_hypotheses=2)


@pytest.fixture(scope="module")
def translator():
    return make_translator()


@pytest.fixture(scope="module")
def engine(translator, tmp_path_factory):
    folder = tmp_path_factory.mktemp("engine") / "export"
    translator.export(folder, BEAM, MAX_LENGTH, format="ctranslate2")
    return CTranslate2Translator(folder)


def test_translations_are_those_of_the_translator(translator, engine):
    # Else CTranslate2 stops when any four have ended, however good the others.
    engine._arguments["patience"] = MAX_LENGTH
    texts = [
        *TEXTS,
        "",
        " \u00a0\t",
        "two\x85dog\x1fplays",
        "t\u00adwo \ufeffdog",
        "\u2603" * 2000,
        "one " * 900,
        "dog \ud800",
    ]
    live = translator.translate_n_best(texts, BEAM, max_length=MAX_LENGTH)
    found = engine.translate_n_best(texts)
    assert [row[0].text for row in found] == [row[0].text for row in live]
    assert [row[0].flags for row in found] == [row[0].flags for row in live]
    assert engine.are_cut(texts) == translator.are_cut(texts)
    assert {len(row) for row in found} == {2}
    scores = [[row[0].score for row in each] for each in (found, live)]
    np.testing.assert_allclose(*scores, atol=1e-4)


@pytest.mark.slow
def test_what_a_checkpoint_has_no_word_for_is_flagged(originals, tmp_path):
    # Marian's SentencePiece model knows subwords that its vocabulary lacks.
    translator = kt.Translator.from_preset(originals / "models" / "marian")
    translator.export(tmp_path / "ct2", translator.search, format="ctranslate2")
    engine = CTranslate2Translator(tmp_path / "ct2")
    texts = ["All human beings are born free", "au", "\N{GRINNING FACE}"]
    found, expected = (
        ["unknown words" in row[0].flags for row in one.translate_n_best(texts)]
        for one in (engine, translator)
    )
    assert found == expected == [True, False, True]


@pytest.mark.parametrize(("count", "size"), [(0, 1), (2, 1), (7, 3), (300, 32)])
def test_every_core_gets_a_share_of_few_texts(engine, monkeypatch, count, size):
    sizes = []

    class Watched:
        def translate_batch(self, *args, max_batch_size, **kwargs):
            sizes.append(max_batch_size)
            how = {**kwargs, "max_batch_size": max_batch_size}
            return real.translate_batch(*args, **how)

    real = engine._engine
    monkeypatch.setattr(engine, "_engine", Watched())
    monkeypatch.setattr(engine, "_num_workers", 3)
    texts = (TEXTS * 60)[:count]
    found = engine.translate_n_best(texts)
    assert sizes == [size]
    assert len(found) == count


@pytest.mark.slow
def test_a_limit_of_the_length_holds(translator, engine):
    live = translator.translate_n_best(TEXTS, BEAM, max_length=3)
    found = engine.translate_n_best(TEXTS, max_length=3)
    assert [row[0].text for row in found] == [row[0].text for row in live]


def test_what_is_no_export_or_no_list_of_texts_is_refused(engine, tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no translator for CTranslate2"):
        CTranslate2Translator(tmp_path)
    with pytest.raises(ValueError, match="`texts` must be a list of str"):
        engine.translate_n_best("a dog")


@pytest.mark.filterwarnings("ignore:2 translations of sentences")
def test_documents_are_translated_as_by_the_translator(translator, engine, tmp_path):
    table = tmp_path / "a.csv"
    table.write_text('text,number\n"two dog plays, a dog",1\na,2\n')
    kt.documents.translate(engine, table, tmp_path / "b.csv", columns=["text"])
    sentence, word = engine.translate_n_best(["two dog plays, a dog", "a"])
    expected = f'text,number\n"{sentence[0].text}",1\n{word[0].text},2\n'
    assert (tmp_path / "b.csv").read_text() == expected
    assert engine.checksum() != translator.checksum()


def test_what_only_tensorflow_can_do_is_refused_before_anything_is_loaded(tmp_path):
    page = tmp_path / "page.html"
    page.write_text("<p>a <b>dog</b></p>")
    for options, message in (
        ([page], "page.html has tags, which attention places: leave out --engine"),
        (["--markup"], "--markup: needs TensorFlow. Leave out --engine"),
        (["--keep", "url"], "--keep: needs TensorFlow. Leave out --engine"),
    ):
        arguments = ["translate", tmp_path, *options, "--engine", "ctranslate2"]
        done = CliRunner().invoke(app, [*map(str, arguments)], input="a")
        assert done.exit_code
        assert re.search(message, " ".join(done.stderr.split()))


@pytest.mark.slow
def test_the_shell_exports_once_and_then_needs_no_tensorflow(translator, tmp_path):
    folder, text = tmp_path / "translator", tmp_path / "text"
    text.write_text("two dog plays\n\na\n")
    translator.search = BEAM
    translator.save(folder)

    def shell(*options, text=text):
        code = (
            "import sys\n"
            f"sys.argv = ['keras-transformer', 'translate', {str(folder)!r}, "
            f"{str(text)!r}, '--engine', 'ctranslate2', *{list(options)!r}]\n"
            "from keras_transformer.cli import app\n"
            "app(standalone_mode=False)\n"
            "sys.stderr.write('TensorFlow' if 'tensorflow' in sys.modules else 'none')"
        )
        command = [sys.executable, "-c", code]
        found = subprocess.run(command, capture_output=True, check=True, text=True)
        made = (folder / "ctranslate2").iterdir()
        exports = sorted(x.name for x in made if x.is_dir())
        return found.stdout, found.stderr, exports

    output, notes, exports = shell()
    assert "was exported once for CTranslate2, to" in notes
    again, notes, same = shell()
    assert (again, same) == (output, exports)
    assert notes.endswith("none")
    table = tmp_path / "a.csv"
    table.write_text("text\ntwo dog plays\n")
    translated, notes, same = shell("--column", "text", text=table)
    assert translated.splitlines() == ["text", output.splitlines()[0]]
    assert notes.endswith("none")
    assert output.splitlines()[1] == ""
    greedy, notes, both = shell("--beam-width", "1")
    assert greedy == "".join(
        f"{x}\n"
        for x in translator.translate(
            ["two dog plays", "", "a"], kt.decoding.GreedySearch()
        )
    )
    assert set(both) > set(exports)
    make_translator(num_decoder_layers=1).save(folder)
    other, notes, exports = shell()
    assert "was exported once for CTranslate2, to" in notes
    assert len(exports) == 1
    assert other != output
