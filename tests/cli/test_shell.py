import contextlib
import functools
import gzip
import importlib.util
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from small_corpus import sentences, write_corpus, write_lines, write_recipe
from typer.testing import CliRunner

from keras_transformer import Translator, __version__, datasets
from keras_transformer.cli import app, main
from keras_transformer.cli.errors import _in_one_line
from keras_transformer.decoding import (
    BeamSearch,
    GreedySearch,
    MaximumLength,
    NoRepeatNgram,
    RepetitionPenalty,
)
from keras_transformer.runs import Recipe, Run
from keras_transformer.translator import pharaoh, word_links

ROOT = Path(__file__).parents[2]
COMMANDS = ["demo", "train", "translate", "evaluate", "export", "average"]


def shell(*arguments, stdin=None):
    return CliRunner().invoke(app, list(map(str, arguments)), input=stdin)


def translate(model, *arguments, stdin=None):
    """Calls the command on TensorFlow, whose numbers are those of a `Translator`."""
    return shell("translate", model, "--engine", "tensorflow", *arguments, stdin=stdin)


def in_one_line(result):
    """Returns the one line on standard error, which no traceback follows."""
    assert result.exception is None or isinstance(result.exception, SystemExit)
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    return lines[0]


def test_streams_that_the_shell_has_closed_are_empty(trained_by_the_shell, monkeypatch):
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    arguments = ["translate", str(trained_by_the_shell / "run")]
    monkeypatch.setattr(sys, "argv", ["keras-transformer", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    for name in ("stdin", "stdout", "stderr"):
        getattr(sys, name).close()
    assert not ended.value.code


@contextlib.contextmanager
def process(*arguments):
    """A Python of its own, which is gone when the block ends."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    started = subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3"},
        text=True,
    )
    with started:
        try:
            yield started
        finally:
            started.kill()


@pytest.fixture
def default_ctrl_c():
    """Lets Ctrl-C stop processes, even if the tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def text(small_text):
    return small_text


@pytest.fixture(scope="session")
def recipe(text):
    return text / "small.yaml"


@pytest.fixture(scope="session")
def run(trained_by_the_shell):
    """A run that the shell trained for three epochs; copy it rather than change it."""
    return trained_by_the_shell / "run"


@pytest.fixture(scope="module")
def translator(run):
    """The translator of the run, with the searches that it has compiled."""
    return Run(run).translator()


@pytest.fixture
def loaded(translator, monkeypatch):
    """Lets commands go on with `translator`, which compiles no search twice."""
    monkeypatch.setattr(Run, "translator", lambda self, checkpoint=None: translator)
    return translator


def test_a_training_tells_its_epochs_and_where_its_translator_is(run):
    stdout = (run.parent / "stdout").read_text()
    assert "Epoch 3/3" in stdout
    (measured,) = (line for line in stdout.splitlines() if "val_bleu" in line)
    assert "val_loss" in measured
    assert "val_chrf" in measured
    assert stdout.endswith(f"The translator is in {run / 'translator'}.\n")


@pytest.mark.slow
def test_the_same_command_goes_on_after_the_last_epoch(text, recipe, run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run")
    result = shell(
        "train", recipe, "--data", text, "--run", folder, "--set", "training.epochs=4"
    )
    assert result.exit_code == 0, result.stderr
    assert "Epoch 4/4" in result.stdout
    assert "Epoch 3/4" not in result.stdout
    rows = (folder / "log.csv").read_text().splitlines()
    assert [row.partition(",")[0] for row in rows] == ["epoch", "1", "2", "3", "4"]


@pytest.mark.slow
def test_ctrl_c_leaves_the_last_epoch_and_says_how_to_go_on(
    text, recipe, tmp_path, default_ctrl_c
):
    arguments = ("train", recipe, "--data", text, "--run", tmp_path / "run")
    with process("-m", "keras_transformer.cli", *arguments, "--epochs", 999) as train:
        for line in train.stdout:
            if line.startswith("Epoch 2/"):
                break
        train.send_signal(signal.SIGINT)
        _, stderr = train.communicate()
    assert train.returncode == 130, stderr
    assert len(stderr.splitlines()) == 1, stderr
    assert "is saved. Repeat the command to resume" in stderr
    assert (tmp_path / "run" / "checkpoints" / "epoch-0001.keras").is_file()


def test_standard_input_is_translated_line_by_line(run):
    result = shell("translate", run, stdin="ba ko li\n\nmu ne\nri")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.split("\n")
    assert len(lines) == 5
    assert lines[1] == lines[4] == ""
    alone = shell("translate", run, "--batch-size", 1, stdin="ba ko li\n")
    assert alone.stdout.splitlines() == lines[:1]


@pytest.mark.usefixtures("loaded")
def test_a_file_gives_what_standard_input_gives(run, tmp_path):
    lines = "".join(f"{line}\n" for line in sentences(5, seed=11))
    with gzip.open(tmp_path / "text.gz", "wt") as file:
        file.write(lines)
    output = tmp_path / "output"
    result = translate(run, tmp_path / "text.gz", "--output", output)
    assert (result.exit_code, result.stdout) == (0, "")
    *warnings, where = result.stderr.splitlines()
    assert where == f"The translations are in {output}."
    assert all("has a doubtful translation: " in line for line in warnings)
    assert output.read_text() == translate(run, stdin=lines).stdout


@pytest.mark.usefixtures("loaded")
def test_documents_go_to_a_folder_and_are_told_apart_by_their_names(run, tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"ba": "mu ne", "n": 7}))
    (tmp_path / "a.txt").write_text("mu ne\n")
    files = tmp_path / "a.json", tmp_path / "a.txt"
    result = translate(run, *files, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    (line,) = (tmp_path / "out" / "a.txt").read_text().splitlines()
    found = json.loads((tmp_path / "out" / "a.json").read_text())
    assert found == {"ba": line, "n": 7}
    assert translate(run, files[0]).stdout == json.dumps(found)
    (tmp_path / "out" / "a.txt").unlink()
    result = translate(run, *files, "-o", tmp_path / "out")
    assert "1 of 2 files were already in" in result.stderr
    assert (tmp_path / "out" / "a.txt").read_text() == f"{line}\n"


@pytest.mark.usefixtures("loaded")
def test_paragraphs_are_asked_for(run, tmp_path):
    (tmp_path / "book.txt").write_text("  Mu ne! Ba ko!\r\n\r\nRi li")
    written = translate(run, tmp_path / "book.txt", "--format", "text").stdout
    lines = "Mu ne!\nBa ko!\nRi li\n"
    one, two, three = translate(run, stdin=lines).stdout.splitlines()
    assert written == f"  {one} {two}\n\n{three}"  # the test's runner drops \\r


@pytest.mark.usefixtures("loaded")
def test_paragraphs_that_are_taken_for_lines_are_hinted_at(run, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("Mu ne ba ko\nli ri. Ba ko\nmu ne ri\nsa to.\n")
    hint = f"Hint: most lines of {text} end within a sentence. --format text"
    for options, is_there in (([], True), (["--format", "lines"], False)):
        result = translate(run, text, *options)
        assert result.exit_code == 0, result.stderr
        assert result.stderr.startswith(hint) == is_there


def test_hypotheses_scores_and_flags_are_written(run, loaded):
    text = "ba ko li\n\nmu ne\n"
    search = BeamSearch(5, length_penalty=0.6, num_hypotheses=5)
    expected = loaded.translate_n_best(text.splitlines(), search)
    result = translate(run, "--n-best", 5, "--scores", stdin=text)
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert [(int(row[0]), float(row[1]), row[2]) for row in rows] == [
        (number, one.score, one.text)
        for number, found in enumerate(expected, start=1)
        for one in found
    ]
    result = translate(run, "--n-best", 5, "--json", stdin=text)
    objects = [json.loads(line) for line in result.stdout.splitlines()]
    assert [one["text"] for one in objects] == text.splitlines()
    for one, found in zip(objects, expected, strict=True):
        assert [tuple(x.values()) for x in one["translations"]] == [
            (best.text, best.score, [*best.flags]) for best in found
        ]
    result = translate(run, "--scores", stdin=text)
    scores = [float(line.split("\t")[0]) for line in result.stdout.splitlines()]
    best = loaded.translate_n_best(text.splitlines())
    assert scores == [one.score for (one,) in best]
    flagged = [number for number, (one,) in enumerate(best, start=1) if one.flags]
    assert flagged
    for line, number in zip(result.stderr.splitlines(), flagged, strict=True):
        start = f"Warning: standard input:{number} has a doubtful translation: "
        assert line.startswith(start)


def test_a_line_has_one_translation_whatever_the_saved_search_finds(
    run, loaded, monkeypatch
):
    text = "ba ko li\n\nmu ne\n"
    monkeypatch.setattr(loaded, "search", BeamSearch(3, num_hypotheses=3))
    expected = loaded.translate(text.splitlines())
    assert translate(run, stdin=text).stdout.splitlines() == expected


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.json", "--scores"], "--scores: needs one text with a sentence per line"),
        (["a.txt", "b.txt", "--json", "-o", "out"], "--json: needs one text"),
        (["--format", "text"], "--format: needs a file"),
        (["a.txt", "b.txt"], "--output: is needed for several files"),
        (["a.txt", "--format", "doc"], "must be one of lines, text"),
        (["a.json"], "a.json cannot be read as json"),
    ],
)
def test_what_does_not_go_together_is_reported(
    run, tmp_path, monkeypatch, arguments, message
):
    for name in ("a.json", "a.txt", "b.txt"):
        (tmp_path / name).write_text("ba")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    result = translate(run, *arguments, stdin="ba\n")
    assert result.exit_code in (1, 2)
    assert message in " ".join(result.stderr.replace("│", " ").split())
    assert not Path("out").exists()


@pytest.mark.quick("options1-search1")
@pytest.mark.parametrize(
    ("options", "search"),
    [
        ([], BeamSearch(2, length_penalty=0.6)),  # as the recipe says
        (["--beam-width", 1], GreedySearch()),
        pytest.param(
            ["--beam-width", 3, "--length-penalty", 7],
            BeamSearch(3, length_penalty=7),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_options_choose_the_search(run, loaded, options, search):
    lines = sentences(3, seed=5)
    wanted = loaded.translate(lines, search)
    result = translate(run, *options, stdin="\n".join(lines))
    assert result.stdout.splitlines() == wanted


@pytest.mark.quick("option3-processors3-None")
@pytest.mark.parametrize(
    ("option", "processors", "max_length"),
    [
        (["--max-length", 3], [], 3),
        (["--max-length-ratio", 0.5], [MaximumLength(0.5)], None),
        (["--no-repeat-ngram-size", 1], [NoRepeatNgram(1)], None),
        (["--repetition-penalty", 5], [RepetitionPenalty(5.0)], None),
    ],
)
def test_options_control_what_is_produced(run, loaded, option, processors, max_length):
    search = BeamSearch(2, length_penalty=0.6, processors=processors)
    lines = sentences(3, seed=5)
    wanted = loaded.translate(lines, search, max_length=max_length)
    assert wanted != loaded.translate(lines, BeamSearch(2, length_penalty=0.6))
    result = translate(run, *option, stdin="\n".join(lines))
    assert result.stdout.splitlines() == wanted


@pytest.mark.slow
def test_xla_compiles_the_search_where_it_is_asked_to(run, monkeypatch):
    compiled = []
    original = Translator.translate_n_best

    def watched(self, *args, **kwargs):
        compiled.append(self.model.compiled and self.model.jit_compile)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(Translator, "translate_n_best", watched)
    text = "\n".join(sentences(3, seed=5))
    wanted = translate(run, stdin=text).stdout
    assert translate(run, "--jit-compile", stdin=text).stdout == wanted
    assert compiled == [False, True]


def test_alignments_are_written_line_by_line(run, loaded, tmp_path):
    source, links = ["ba ko li", "", "  ne ne"], tmp_path / "links"
    stdin = "".join(f"{line}\n" for line in source)
    result = translate(run, "--alignments", links, stdin=stdin)
    assert result.stderr.splitlines()[-1] == f"The alignments are in {links}."
    translations = result.stdout.split("\n")[:-1]
    expected = [
        pharaoh(word_links(*texts, pairs))
        for *texts, pairs in zip(
            source, translations, loaded.align(source, translations), strict=True
        )
    ]
    assert links.read_text().split("\n")[:-1] == expected
    assert expected[1] == ""
    assert re.fullmatch(r"(\d-\d ?)+", expected[0])


@pytest.mark.usefixtures("loaded")
def test_tags_are_kept_where_the_text_is_markup(run, tmp_path):
    result = translate(run, "--markup", stdin="<b>ba ko</b>\nba ko\n")
    marked, plain = result.stdout.splitlines()
    assert marked == f"<b>{plain}</b>"
    options = ["--markup", "--alignments", tmp_path / "links"]
    result = translate(run, *options, stdin="ba\n")
    assert result.exit_code == 1
    assert "--alignments is not possible for text with --markup" in in_one_line(result)


@pytest.mark.usefixtures("loaded")
def test_a_sentence_that_is_too_long_is_reported_by_its_line(run):
    result = translate(run, stdin="ba\n" + "ba ko li " * 50 + "\n")
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 2
    *_, warning = result.stderr.splitlines()
    assert "standard input:2 is cut: it is longer than the 32" in warning


@pytest.mark.usefixtures("loaded")
def test_a_sentence_that_is_cut_to_be_evaluated_is_reported_by_its_line(run, tmp_path):
    write_lines(tmp_path / "lines", ["ba", "ba ko li " * 50])
    files = ["--source-file", tmp_path / "lines", "--reference", tmp_path / "lines"]
    result = shell("evaluate", run, *files)
    assert result.exit_code == 0, result.stderr
    assert f"{tmp_path / 'lines'}:2 is cut" in in_one_line(result)


def test_every_figure_comes_with_its_signature(run, tmp_path):
    output = tmp_path / "output"
    options = ("--split", "test", "--output", output, "--repetition-penalty", 1.2)
    result = shell("evaluate", run, *options)
    assert result.exit_code == 0, result.stderr
    cased, chrf, paper, count = result.stdout.splitlines()
    assert cased.startswith("cased BLEU")
    assert "tok:13a" in cased
    assert chrf.startswith("chrF")
    assert "nc:6" in chrf
    assert paper.startswith("paper-protocol BLEU")
    assert "tok:none" in paper
    assert count.startswith("7 sentences")
    assert len(output.read_text().splitlines()) == 7


@pytest.mark.slow
def test_a_saved_translator_is_evaluated_by_a_recipe(run, recipe, text):
    arguments = ("evaluate", run / "translator", "--data", text)
    result = shell(*arguments, "--split", "validation", "--recipe", recipe)
    assert result.exit_code == 0, result.stderr
    cased, chrf, count = result.stdout.splitlines()  # it names no tokenized references
    assert "cased BLEU" in cased
    assert "chrF" in chrf
    assert "--recipe" in in_one_line(shell(*arguments))


def figures(result, name):
    """Returns the numbers in the line of a result that begins with `name`."""
    assert result.exit_code == 0, result.stderr
    (line,) = (x for x in result.stdout.splitlines() if x.startswith(name))
    return [float(x) for x in re.findall(r"\d+\.\d+", line.partition("nrefs")[0])]


@pytest.mark.usefixtures("loaded")
def test_any_files_are_evaluated_with_any_number_of_references(run, text, tmp_path):
    files = ["--source-file", text / "val.aa", "--reference", text / "val.bb"]
    output = tmp_path / "output"
    result = shell("evaluate", run, *files, "--output", output)
    by_recipe = shell("evaluate", run, "--split", "validation")
    for name in ("cased BLEU", "chrF"):
        assert figures(result, name) == figures(by_recipe, name)
    result = shell("evaluate", run, *files, "--reference", output)
    assert figures(by_recipe, "chrF") < figures(result, "chrF") == [100]
    assert result.stdout.count("nrefs:2|") == 2
    assert result.stdout.splitlines()[-1].startswith("7 sentences")


@pytest.mark.slow
def test_two_translators_are_compared_with_each_other(run):
    first, best = (run / "checkpoints" / f"{x}.keras" for x in ("epoch-0001", "best"))
    result = shell("evaluate", best, "--against", first, "--examples", 3)
    alone = {path: shell("evaluate", path) for path in (best, first)}
    for name in ("cased BLEU", "chrF", "paper-protocol BLEU"):
        score, _, _, other, _, _, p_value = figures(result, name)
        assert [score] == figures(alone[best], name)
        assert [other] == figures(alone[first], name)
        assert 0 < p_value <= 1
    assert result.stdout.count("|bs:1000|seed:12345|") == 3
    assert len(re.findall(r"^line \d: chrF", result.stdout, re.MULTILINE)) <= 3


@pytest.mark.usefixtures("loaded")
def test_a_file_of_translations_is_compared_and_its_differences_shown(
    run, text, tmp_path
):
    output = tmp_path / "output"
    files = ["--source-file", text / "val.aa", "--reference", text / "val.bb"]
    shell("evaluate", run, *files, "--output", output)
    lines = output.read_text().splitlines()
    sources, references = (
        (text / name).read_text().splitlines() for name in ("val.aa", "val.bb")
    )
    write_lines(tmp_path / "other", [*lines[:3], references[3], *lines[4:]])
    same = shell("evaluate", run, *files, "--against", output)
    assert figures(same, "chrF")[-1] == 1
    assert "line" not in same.stdout
    result = shell("evaluate", run, *files, "--against", tmp_path / "other")
    assert figures(result, "chrF")[0] == figures(same, "chrF")[0]
    _, shown = result.stdout.split("\n\n")
    heading, *shown = shown.splitlines()
    assert heading.startswith("line 4: chrF ")
    assert heading.endswith(" against 100.0")
    assert [line.split(maxsplit=1) for line in shown] == [
        ["source", sources[3]],
        ["reference", references[3]],
        ["MODEL", lines[3]],
        ["--against", references[3]],
    ]


@pytest.mark.usefixtures("loaded")
def test_faulty_files_to_evaluate_are_reported(run, text, tmp_path):
    few, none = tmp_path / "few", tmp_path / "none"
    write_lines(few, sentences(5, seed=3))
    files = text / "val.aa", "--reference", text / "val.bb"
    for options, message in [
        ([text / "val.aa", "--reference", few], "val.aa:6 has no counterpart"),
        ([text / "val.aa", "--reference", none], "none does not exist"),
        (
            [*files, "--against", few],
            "few must hold one translation of each of the 7 sentences. Received: 5",
        ),
        ([few, "--reference", few, "-o", few], "few is an input file. Choose another"),
        ([*files, "--against", few, "-o", few], "few is an input file. Choose another"),
    ]:
        result = shell("evaluate", run, "--source-file", *options)
        assert result.exit_code == 1
        assert message in in_one_line(result)
    assert few.read_text()
    result = shell("evaluate", run, "--data", tmp_path)
    assert result.exit_code == 1
    wanted = f"{tmp_path} holds few. Set the folder of the text with `data.folder`"
    assert wanted in in_one_line(result)
    if not importlib.util.find_spec("MeCab"):  # which is told before translating
        recipe, output = tmp_path / "ja.yaml", tmp_path / "translations"
        sides = {"source": str(text / "val.aa"), "target": str(text / "val.bb")}
        data = {"source": "aa", "target": "ja", "train": sides, "validation": sides}
        write_recipe(recipe, {"data": data})
        how = "--recipe", recipe, "--split", "validation", "-o", output
        result = shell("evaluate", run, *how)
        assert "BLEU of ja needs MeCab" in in_one_line(result)
        assert not output.exists()


@pytest.mark.slow  # as test_training.py shows of `save_average`
def test_averaging_makes_the_translator_anew(run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run")
    result = shell("average", folder, "--last", 1)
    assert result.exit_code == 0, result.stderr
    assert "averages epoch-0003.keras." in result.stdout
    checkpoints = Run(folder).checkpoints()
    last = checkpoints.load(checkpoints.latest()).get_weights()
    for weight, wanted in zip(
        Run(folder).translator().model.get_weights(), last, strict=True
    ):
        np.testing.assert_array_equal(weight, wanted)


@pytest.mark.slow  # as test_training.py shows of `save_best`
def test_the_best_checkpoint_becomes_the_translator(run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run")
    best = folder / "checkpoints" / "best.keras"
    shutil.copy(folder / "checkpoints" / "epoch-0001.keras", best)
    shutil.rmtree(folder / "translator")
    text = "\n".join(sentences(3, seed=5))
    wanted = shell("translate", best, stdin=text)  # works without a translator
    assert wanted.exit_code == 0, wanted.stderr
    for path in (folder / "checkpoints").glob("epoch-*"):
        path.unlink()
    result = shell("average", folder, "--best")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.endswith("is of epoch 1.\n")
    assert shell("translate", folder, stdin=text).stdout == wanted.stdout


def test_a_damaged_checkpoint_is_reported(run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run")
    path = folder / "checkpoints" / "epoch-0001.keras"
    path.write_bytes(path.read_bytes()[:1000])
    result = shell("translate", path, stdin="ba")
    assert result.exit_code == 1
    assert "epoch-0001.keras is damaged" in in_one_line(result)


@pytest.mark.slow
def test_exports_are_numbered(run, tmp_path):
    (tmp_path / "served" / "4").mkdir(parents=True)
    options = ("--beam-width", 1, "--min-length", 2, "--max-length", 11)
    result = shell("export", run, tmp_path / "served", *options)
    assert result.exit_code == 0, result.stderr
    path = tmp_path / "served" / "5"
    assert f"in {path}, and computes in float32." in result.stdout
    assert (tmp_path / "served" / "5" / "saved_model.pb").is_file()
    settings = tmp_path / "served" / "5" / "assets.extra" / "translator.json"
    settings = json.loads(settings.read_text())
    assert settings["max_target_length"] == 11
    assert settings["search"]["processors"][0]["config"] == {"length": 2}


def test_the_demo_leaves_a_text_of_yours_alone(tmp_path):
    path = tmp_path / "run-data" / "train.en"
    path.parent.mkdir()
    path.write_text("mine\n")
    result = shell("demo", "--run", tmp_path / "run")
    assert result.exit_code == 1
    assert f"{path} holds another text. Choose another --run." in result.stderr
    assert path.read_text() == "mine\n"
    assert len(list(path.parent.iterdir())) == 1


@pytest.mark.slow
def test_the_demo_trains_translates_and_exports(tmp_path, monkeypatch):
    few = functools.partial(datasets.locale_phrases, train=503, validation=7, test=11)
    monkeypatch.setattr(datasets, "locale_phrases", few)
    small = [
        *("--set", "training.epochs=1", "--set", "tokenizer.vocabulary_size=211"),
        *("--set", "training.jit_compile=false", "--set", "model.num_layers=1"),
        *("--set", "model.hidden_dim=8", "--set", "model.num_heads=2"),
        *("--set", "model.intermediate_dim=11"),
    ]
    result = shell(
        *("demo", "--run", tmp_path / "run", "--export", tmp_path / "served", *small)
    )
    assert result.exit_code == 0, result.stderr
    assert "val_loss" in result.stdout
    assert "of 11 held-out phrases" in result.stdout
    assert f"keras-transformer translate {tmp_path / 'run'}" in result.stdout
    assert result.stdout.endswith("keras-transformer init train.en train.de\n")
    assert (tmp_path / "served" / "1" / "saved_model.pb").is_file()


@pytest.mark.quick(
    "files0-train.aa does not exist, wh",
    "files1-train.bb does not exist, wh",
    "files2-val.aa does not exist, whic",
)
@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"train.aa": None}, "train.aa does not exist, which `data.train.source`"),
        ({"train.bb": None}, "train.bb does not exist, which `data.train.target`"),
        ({"val.aa": None}, "val.aa does not exist, which `data.validation.source`"),
        ({"train.bb": []}, "train.bb is empty"),
        ({"val.bb": sentences(5, seed=3)}, "val.aa:6 has no counterpart"),
        ({"train.aa": ["ba"] * 17 + [""] + ["ko"] * 35}, "train.aa:18 is an empty"),
        ({"train.aa": [b"ba", b"b\xe4"]}, "train.aa:2 is not UTF-8"),
    ],
)
def test_faulty_text_is_reported_by_file_and_line(tmp_path, files, message):
    write_corpus(tmp_path)
    for name, lines in files.items():
        if lines is None:
            (tmp_path / name).unlink()
        elif lines and isinstance(lines[0], bytes):
            (tmp_path / name).write_bytes(b"\n".join(lines))
        else:
            write_lines(tmp_path / name, lines)
    recipe = write_recipe(tmp_path / "small.yaml")
    result = shell("train", recipe, "--data", tmp_path, "--run", tmp_path / "run")
    assert result.exit_code == 1
    assert message in in_one_line(result)
    assert in_one_line(result).startswith("Error: ")


@pytest.mark.quick(
    "options0-Received: tokens_per_batc",
    "options1-`vocabulary_size` must be",
    "options3-must be 'tiny', 'base' or",
)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "training.tokens_per_batch=13"], "Received: tokens_per_batch=13, m"),
        (["--set", "tokenizer.vocabulary_size=5000"], "`vocabulary_size` must be at m"),
        (["--set", "model.hidden_dim=9"], "num_heads=2, hidden_dim=9"),
        (["--set", "model.preset=small"], "must be 'tiny', 'base' or 'big'. Received"),
        (["--set", "model.activation=rellu"], "rellu"),
        (["--set", "training.precision=float7"], "Received: 'float7'"),
        (["--set", "training.strategy=hope"], "hope"),
        (["--set", "training.epoch=3"], "Did you mean `training.epochs`?"),
        (["--set", "training.max_length=3"], "longer than max_length=3"),
        (["--target", "dd"], "train.dd does not exist"),
    ],
)
def test_invalid_settings_are_reported(recipe, text, tmp_path, options, message):
    result = shell(
        *("train", recipe, "--data", text, "--run", tmp_path / "run", *options)
    )
    assert result.exit_code == 1, result.output
    assert message in in_one_line(result)


def test_every_setting_of_a_recipe_is_printed():
    result = shell("train", "--help-settings")
    assert result.exit_code == 0, result.stderr
    assert "training.warmup_steps (default: from the text)\n" in result.stdout


def test_a_first_recipe_names_the_languages_and_replaces_nothing(tmp_path):
    path = tmp_path / "recipe.yaml"
    result = shell("init", path, "--source", "es", "--target", "ru")
    assert result.exit_code == 0, result.stderr
    assert f"keras-transformer train {path}" in result.stdout
    written = path.read_text()
    assert len(written.splitlines()) == 7
    data = Recipe.load(path).data
    assert [x.path.name for x in data.paths("train", "target")] == ["train.ru"]
    again = shell("init", path)
    assert again.exit_code == 1
    assert f"{path} already exists. Choose a new file" in in_one_line(again)
    assert path.read_text() == written
    result = shell("init", tmp_path / "long.yml", "--all", "--source", "es")
    assert result.exit_code == 0, result.stderr
    assert "# early_stopping:" in (tmp_path / "long.yml").read_text()


@pytest.mark.parametrize(
    ("names", "languages"),
    [
        (["train.en", "train.de"], ("en", "de")),
        (["en/a.txt.gz", "fr/a.txt.gz"], ("en", "fr")),
        (["english-1.txt", "Greek-1.txt"], ("en", "el")),
    ],
)
def test_a_first_recipe_names_the_files(tmp_path, monkeypatch, names, languages):
    monkeypatch.chdir(tmp_path)
    for name in names:
        Path(name).parent.mkdir(exist_ok=True)
        write_lines(Path(name), ["ba"])
    result = shell("init", *names)
    assert result.exit_code == 0, result.stderr
    assert "train recipe.yaml --run runs/" in result.stdout
    data = Recipe.load("recipe.yaml").data
    assert (data.source, data.target) == languages
    sides = data.check_files("train")
    assert [str(file) for side in sides for file in side] == names


@pytest.mark.parametrize(
    ("row", "options", "expected"),
    [
        ("english,french", "", ["en", "fr", "english", "french"]),
        ("de,id,en", "", ["de", "en", "de", "en"]),
        ("de,id,en", "--source en", ["en", "de", "en", "de"]),
        ("A dog.,Un chien.", "--source en --target fr", ["en", "fr", 0, 1]),
    ],
)
def test_a_first_recipe_names_the_columns_of_a_table(
    tmp_path, monkeypatch, row, options, expected
):
    monkeypatch.chdir(tmp_path)
    write_lines(Path("pairs.csv"), [row, "ba,ko,li"])
    result = shell("init", "pairs.csv", *options.split())
    assert result.exit_code == 0, result.stderr
    data = Recipe.load("recipe.yaml").data
    sides = data.check_files("train")
    columns = [file.column for side in sides for file in side]
    assert [data.source, data.target, *columns] == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("one", "The text must be two files, or one .csv"),
        ("one none", "none does not exist"),
        ("one two", "from one. Add them, such as --source en --target de."),
        ("pairs.csv", "The languages are not clear from pairs.csv."),
        ("pairs.csv --source xx", "The languages are not clear from pairs.csv."),
    ],
)
def test_what_a_first_recipe_cannot_tell_is_asked(
    tmp_path, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two", "pairs.csv"):
        write_lines(Path(name), ["Hi,Hallo"])
    result = shell("init", *arguments.split())
    assert result.exit_code == 1
    assert message in in_one_line(result)
    assert not Path("recipe.yaml").exists()


def test_a_folder_that_cannot_be_written_to_is_reported(recipe, text):
    # Nobody may make a folder there, not even root.
    result = shell("train", recipe, "--data", text, "--run", "/sys/run")
    assert result.exit_code == 1
    assert "/sys/run: " in in_one_line(result)


def test_a_run_of_another_model_is_reported(recipe, text, run):
    seed = "--set", "training.seed=7"
    result = shell("train", recipe, "--data", text, "--run", run, *seed)
    assert result.exit_code == 1
    assert "training.seed was 1 and is 7. Choose another run" in in_one_line(result)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "nothing", "--run", "run"], "nothing is not a recipe. Pass a YAML"),
        (["translate", "nothing"], "nothing does not exist. Pass a run, a saved"),
        (["evaluate", "nothing"], "nothing is not a run"),
        (["export", "nothing", "served"], "nothing does not exist. Pass a run"),
        (["average", "nothing"], "nothing is not a run"),
    ],
)
def test_a_missing_file_or_folder_is_reported(
    arguments, message, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    result = shell(*arguments)
    assert result.exit_code == 1
    assert message in in_one_line(result)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("loaded")
def test_text_to_translate_must_be_there_and_utf_8(run, tmp_path):
    result = shell("translate", run, tmp_path / "none")
    assert result.exit_code == 1
    assert "none does not exist. Pass a file, or pipe a sent" in in_one_line(result)
    result = translate(run, stdin=b"ba\nb\xe4\n")
    assert result.exit_code == 1
    assert "standard input:2 is not UTF-8" in in_one_line(result)


def test_a_backend_that_the_shell_does_not_run_on_is_reported(run, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    result = translate(run, stdin="ba\n")
    assert result.exit_code == 1
    assert "must be tensorflow in the shell, or jax for `train`" in in_one_line(result)


def test_a_full_disk_is_reported_with_what_to_do(run, tmp_path):
    # Every write to this device finds the disk full.
    (tmp_path / "out.png").symlink_to("/dev/full")
    result = shell("plot", "training", run, "-o", tmp_path / "out.png")
    assert result.exit_code == 1
    assert "No space left on device. Free some space" in in_one_line(result)


@pytest.mark.slow
def test_an_ensemble_translates_and_is_not_trained(run, small_text, tmp_path):
    both, other = tmp_path / "both", shutil.copytree(run, tmp_path / "other")
    result = shell("ensemble", run, other, "-o", both)
    assert result.exit_code == 0, result.stderr
    lines = "ba be\nda\n"
    alone, together = (translate(x, stdin=lines) for x in (run, both))
    assert together.stdout == alone.stdout
    (tmp_path / "output").write_text("precious")
    output = ("-o", tmp_path / "output", "--attention", tmp_path / "picture.png")
    result = translate(both, *output, stdin=lines)
    assert "--attention needs a translator of one Transformer" in in_one_line(result)
    assert (tmp_path / "output").read_text() == "precious"
    recipe = small_text / "small.yaml"
    train = ("train", recipe, "--data", small_text, "--run", tmp_path / "tuned")
    result = shell(*train, "--from", both)
    assert "Training needs a translator of one Transformer" in in_one_line(result)
    result = shell("ensemble", run, "-o", both)
    assert "already exists" in in_one_line(result)


@pytest.mark.usefixtures("loaded")
def test_a_length_penalty_needs_a_beam(run):
    options = "--length-penalty", 2, "--beam-width", 1
    result = translate(run, *options, stdin="ba\n")
    assert result.exit_code == 2
    assert "needs a beam" in " ".join(result.stderr.split())
    assert not result.stdout


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["translate", "RUN", "TEXT", "-o"], "out.txt"),
        (["translate", "RUN", "TEXT", "--attention"], "out.html"),
        (["evaluate", "RUN", "-o"], "out.txt"),
        (["plot", "attention", "RUN", "ba", "-o"], "out.svg"),
        (["plot", "attention", "RUN", "ba", "--against", "RUN", "-o"], "out.html"),
        (["plot", "training", "RUN", "-o"], "out.png"),
    ],
)
def test_a_command_that_fails_leaves_the_file_that_was_there(
    run, text, tmp_path, arguments, name
):
    (tmp_path / name).write_text("precious")
    names = {"RUN": run, "TEXT": text / "val.aa"}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2, limits[1]))  # as on a full disk
    try:
        result = shell(*(names.get(x, x) for x in arguments), tmp_path / name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert result.exit_code == 1
    assert "File too large" in result.stderr.splitlines()[-1]
    assert [path.read_text() for path in tmp_path.iterdir()] == ["precious"]


def test_a_pipe_is_refused_where_text_is_read_twice(run, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    result = shell("translate", run, tmp_path / "pipe")
    assert result.exit_code == 1
    assert "pipe is a pipe or a device" in in_one_line(result)


def test_a_disk_that_is_full_is_not_taken_for_a_small_memory():
    full = tf.errors.ResourceExhaustedError(None, None, "a/b; No space left on device")
    assert _in_one_line(full).startswith("No space left on device. Free some space")
    memory = tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")
    for error in (memory, MemoryError()):
        assert _in_one_line(error).startswith("Out of memory.")


@pytest.mark.slow
def test_an_interrupted_training_continues_after_its_origin_has_moved(
    run, small_text, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(run, "origin")
    train = ("train", small_text / "small.yaml", "--data", small_text, "--run", "tuned")
    result = shell(*train, "--from", "origin", "--epochs", 1)
    assert result.exit_code == 0, result.stderr
    shutil.rmtree("origin")
    result = shell(*train, "--from", "origin", "--epochs", 2)
    assert result.exit_code == 0, result.stderr
    assert len(Run("tuned").log.rows()) == 2


@pytest.mark.parametrize("option", ["--output", "--alignments"])
def test_a_text_is_not_overwritten_by_what_is_made_of_it(run, tmp_path, option):
    write_lines(tmp_path / "text", ["ba"])
    result = shell("translate", run, tmp_path / "text", option, tmp_path / "text")
    assert result.exit_code == 1
    assert "Choose another output file" in in_one_line(result)
    assert (tmp_path / "text").read_text() == "ba\n"


@pytest.mark.slow
def test_an_error_from_inside_of_keras_comes_with_a_word_of_debug(
    recipe, text, tmp_path
):
    train = ("train", recipe, "--data", text, "--run", tmp_path / "run", "--set")
    hint = "(To see the traceback: keras-transformer --debug ...)"
    for setting, is_of_keras in [
        ("model.activation=rellu", True),
        ("model.hidden_dim=9", False),
    ]:
        assert in_one_line(shell(*train, setting)).endswith(hint) == is_of_keras


def test_debug_shows_where_an_error_arose(tmp_path):
    result = shell("--debug", "train", tmp_path, "--run", tmp_path)
    assert isinstance(result.exception, FileNotFoundError)


@pytest.mark.parametrize(
    "arguments",
    [
        ["train"],
        ["train", "multi30k"],
        ["train", "multi30k", "--run", "run", "--set", "epochs"],
        ["translate", "run", "--beam-width", "0"],
        ["evaluate", "run", "--split", "training"],
        ["average", "run", "--best", "--last", "3"],
        ["evaluate", "run", "--source-file", "text"],
        ["evaluate", "run", "--reference", "text"],
        ["evaluate", "run", "--source-file=a", "--reference=b", "--split=test"],
        ["dance"],
    ],
)
def test_wrong_usage_exits_with_2(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = shell(*arguments)
    assert result.exit_code == 2
    assert "Usage" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_help_explains_every_option(command):
    result = shell(command, "--help")
    assert result.exit_code == 0
    assert "Usage" in result.stdout


@pytest.mark.quick(
    "train --help---epochs", "translate b a-a:1 is not", "plot attention b ba --again"
)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("train --help", "--epochs"),
        ("--version", f"keras-transformer {__version__}\n"),
        ("translate b a", "a:1 is not UTF-8"),
        ("translate run b", "run does not exist"),
        ("evaluate b --source-file b --reference c", "b:2 has no counterpart"),
        ("evaluate b --against d --source-file b --reference b", "d does not exist"),
        ("ensemble b d -o e", "d does not exist"),
        ("plot attention b ba --against d -o e.html", "d does not exist"),
        ("plot training d -o e.png", "d does not exist"),
    ],
)
def test_help_and_what_is_wrong_with_arguments_come_without_loading_tensorflow(
    tmp_path, arguments, message
):
    for name, text in {"a": b"b\xe4\n", "b": b"ba\nko\n", "c": b"ba\n"}.items():
        (tmp_path / name).write_bytes(text)
    code = (
        "import atexit, os, sys; sys.argv[0] = 'keras-transformer';"
        f"os.chdir({str(tmp_path)!r});"
        "atexit.register(lambda: print({'keras', 'tensorflow'} & {*sys.modules}));"
        "from keras_transformer.cli import app;"
        f"app({arguments.split()})"
    )
    with process("-c", code) as shown:
        stdout, stderr = shown.communicate()
    assert message in stdout + stderr
    assert stdout.endswith("set()\n")
