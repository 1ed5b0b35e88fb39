"""Which engine translates: CTranslate2 where it can, else TensorFlow."""

import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from interop.random_translator import make_translator
from typer.testing import CliRunner

import keras_transformer as kt
from keras_transformer.cli import app
from keras_transformer.cli.loading import _export, _export_path, load_engine
from keras_transformer.cli.options import SearchOptions
from keras_transformer.decoding import BeamSearch
from keras_transformer.storage import _UNFINISHED

pytest.importorskip("ctranslate2")

from keras_transformer.interop.ctranslate2_translator import CTranslate2Translator

TEXTS = "two dog plays\n\na\n"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("engines") / "saved"
    translator = make_translator()
    translator.search = kt.decoding.BeamSearch(2)
    translator.save(folder)
    return folder


@pytest.fixture
def model(saved, tmp_path):
    """A copy, without an export."""
    ignored = shutil.ignore_patterns("ctranslate2")
    return shutil.copytree(saved, tmp_path / "saved", ignore=ignored)


def translate(*arguments, stdin=TEXTS):
    arguments = ["translate", *map(str, arguments)]
    return CliRunner().invoke(app, arguments, input=stdin)


def choice(model, *arguments, capsys, **options):
    """Returns the kind of translator that is loaded, and the last line about it."""
    options = SearchOptions(**options)
    found, *_ = load_engine(str(model), "auto", options, *arguments)
    return type(found), capsys.readouterr().err.splitlines()[-1]


def test_ctranslate2_is_chosen_where_it_can_and_its_export_is_made_once(model):
    explicit = translate(model, "--engine", "ctranslate2")
    assert explicit.exit_code == 0, explicit.stderr
    assert "Engine" not in explicit.stderr
    shutil.rmtree(model / "ctranslate2")
    first, second = translate(model), translate(model)
    assert first.stdout == second.stdout == explicit.stdout
    lines = first.stderr.splitlines()
    assert "was exported once for CTranslate2, to" in lines[0]
    assert lines[1] == second.stderr.splitlines()[0] == "Engine: CTranslate2."
    assert "exported" not in second.stderr


def test_what_ctranslate2_cannot_express_is_searched_by_tensorflow(model, capsys):
    kind, line = choice(model, max_length_ratio=1.5, capsys=capsys)
    assert kind is kt.Translator
    assert line.startswith(
        "Engine: TensorFlow (CTranslate2 cannot express the search's"
    )
    assert not any(path.is_dir() for path in (model / "ctranslate2").iterdir())
    kind, line = choice(model, "--markup needs it", capsys=capsys)
    assert (kind, line) == (kt.Translator, "Engine: TensorFlow (--markup needs it).")


def test_a_search_that_draws_is_tensorflows_whose_seed_holds(capsys, tmp_path):
    translator = make_translator()
    translator.search = kt.decoding.Sampling(seed=7)
    translator.save(tmp_path / "model")
    for _ in range(2):
        kind, line = choice(tmp_path / "model", capsys=capsys)
        assert kind is kt.Translator
        assert line == "Engine: TensorFlow (CTranslate2 draws without a seed)."
        explicit = load_engine(str(tmp_path / "model"), "ctranslate2", SearchOptions())
        assert isinstance(explicit[0], CTranslate2Translator)


def test_an_export_that_cannot_be_written_leaves_it_to_tensorflow(model, capsys):
    (model / "ctranslate2").touch()  # no folder can be made there, even by root
    kind, line = choice(model, capsys=capsys)
    assert kind is kt.Translator
    assert re.fullmatch(r"Engine: TensorFlow \(.*/ctranslate2.*\)\.", line)
    with pytest.raises(FileExistsError):
        load_engine(str(model), "ctranslate2", SearchOptions())


def test_without_ctranslate2_or_with_a_gpu_tensorflow_is_chosen(
    model, capsys, monkeypatch
):
    import ctranslate2

    with monkeypatch.context() as patch:
        patch.setattr(ctranslate2, "get_cuda_device_count", lambda: 1)
        kind, line = choice(model, capsys=capsys)
        assert kind is kt.Translator
        assert "without a GPU" in line
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    kind, line = choice(model, capsys=capsys)
    assert kind is kt.Translator
    assert line == "Engine: TensorFlow (CTranslate2 is not installed)."
    assert not (model / "ctranslate2").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--markup"], "--markup needs it"),
        (["--jit-compile"], "--jit-compile needs it"),
        (["--keep", "url"], "--keep needs it"),
        (["--alignments", "links"], "--alignments needs it"),
        (["page.html"], "page.html has tags, which attention places"),
        (["app.po"], "app.po has placeholders, which it keeps"),
    ],
)
@pytest.mark.quick("arguments4")
def test_options_and_tags_choose_tensorflow(
    model, tmp_path, monkeypatch, arguments, reason
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "page.html").write_text("<p>a <b>dog</b></p>")
    (tmp_path / "app.po").write_text('msgid "a %s"\nmsgstr ""\n')
    done = translate(model, *arguments, "--beam-width", 1, stdin="a\n")
    assert done.exit_code == 0, done.stderr
    assert done.stderr.splitlines()[0] == f"Engine: TensorFlow ({reason})."
    assert not (model / "ctranslate2").exists()


def test_threads_that_export_the_same_model_at_once_share_one_export(model):
    def load(_):
        found, *_ = load_engine(str(model), "ctranslate2", SearchOptions())
        return found.translate_n_best(["two dog plays"])

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(load, range(2))
    assert first == second
    (only,) = (x for x in (model / "ctranslate2").iterdir() if x.is_dir())
    assert {path.name for path in only.iterdir()} > {"model.bin", "translator.json"}


def test_exports_of_a_run_and_of_its_checkpoints_stand_side_by_side(tmp_path):
    """Replaced weights take only the place of their own export."""
    run, folder = tmp_path / "run", tmp_path / "run" / "ctranslate2"
    (run / "checkpoints").mkdir(parents=True)
    (run / "translator").mkdir()
    (run / "settings.yaml").touch()
    files = [run / "checkpoints" / f"{name}.keras" for name in ("best", "epoch-0001")]
    translator, found = make_translator(), []
    (folder / f"{_UNFINISHED}killed").mkdir(parents=True)
    for content in ("one", "two"):
        for model, file in zip(
            [run, *files], [run / "translator/x", *files], strict=True
        ):
            file.write_text(content)
            path = _export_path(str(model), SearchOptions(), {})
            _export(translator, BeamSearch(2), 11, path, model)
        found.append({x.name for x in folder.iterdir() if x.is_dir()})
    assert [len(names) for names in found] == [3, 3]
    assert not found[0] & found[1]
    assert not any(x.name.startswith(_UNFINISHED) for x in folder.iterdir())


@pytest.mark.slow
def test_processes_that_export_the_same_model_at_once_both_translate(model):
    arguments = ["translate", str(model), "--engine", "ctranslate2"]
    command = [sys.executable, "-m", "keras_transformer.cli", *arguments]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    # With other options of the search, too, whose export stands beside the first.
    started = [
        subprocess.Popen([*command, *options], text=True, **pipes)
        for options in ([], [], ["--beam-width", "1"])
    ]
    found = [process.communicate(TEXTS) for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], found
    assert found[0][0] == found[1][0]
    notes = "".join(stderr for _, stderr in found)
    assert notes.count("was exported once for CTranslate2, to") == 2
    folders = [x for x in (model / "ctranslate2").iterdir() if x.is_dir()]
    assert len(folders) == 2
    assert all((folder / "translator.json").is_file() for folder in folders)
