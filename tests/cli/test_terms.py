import os
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from keras_transformer.cli import app, loading


def shell(*arguments, stdin=None):
    return CliRunner().invoke(app, list(map(str, arguments)), input=stdin)


@pytest.mark.slow
def test_translate_takes_a_glossary_and_patterns(trained_by_the_shell, tmp_path):
    glossary = tmp_path / "terms.tsv"
    glossary.write_text("dog\tKatze\n", "utf-8")
    options = ["--glossary", glossary, "--keep", "url", "--keep", r"#\w+"]
    arguments = ["translate", trained_by_the_shell / "run", *options]
    lines = "A dog.\n\nSee http://x.org/?a=1 #dog\n"
    result = shell(*arguments, "--batch-size", 1, stdin=lines)
    assert result.exit_code == 0, result.stderr
    first, second, third, rest = result.stdout.split("\n")
    assert re.search(r"\bKatze\b", first)
    assert (second, rest) == ("", "")
    assert "http://x.org/?a=1" in third
    assert "#dog" in third
    assert "Katze" not in third


def test_terms_load_tensorflow_without_its_log_lines(tmp_path, monkeypatch):
    def loaded():
        raise InterruptedError

    monkeypatch.setattr(loading, "load_tensorflow", loaded)
    with pytest.raises(InterruptedError):
        loading.given_terms(None, ["url"])
    assert loading.given_terms(None, []) is None


@pytest.mark.slow
def test_terms_log_nothing(trained_by_the_shell):
    arguments = ["translate", str(trained_by_the_shell / "run"), "--keep", "url"]
    command = [sys.executable, "-m", "keras_transformer.cli", *arguments]
    how = {"input": "ba\n", "capture_output": True, "text": True}
    unset = {x: y for x, y in os.environ.items() if x != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run(command, env=unset, **how)
    first, *others = done.stderr.splitlines()
    assert first == "Engine: TensorFlow (--keep needs it)."
    assert all("doubtful translation" in line for line in others)


def test_what_is_wrong_with_terms_is_said_before_a_model_is_loaded(tmp_path):
    glossary = tmp_path / "terms.tsv"
    glossary.write_text("dog\n", "utf-8")
    for options, message in (
        (["--glossary", glossary], "terms.tsv:1 must have a source term, a tab"),
        (["--keep", "a("], "`keep` must be names of patterns"),
        (["--keep", "url", "--attention", "out.html"], "without --glossary"),
    ):
        for command in ("translate", "export"):
            if command == "export" and "--attention" in options:
                continue
            places = [tmp_path / "none"] + [tmp_path / "x"] * (command == "export")
            result = shell(command, *places, *options, stdin="a\n")
            assert result.exit_code != 0
            assert message in " ".join(f"{result.stderr} {result.exception}".split())
