"""`keras-transformer prepare`, and what `train` makes of it."""

from pathlib import Path

import pytest
from small_corpus import write_corpus
from typer.testing import CliRunner

from keras_transformer.cli import app


def shell(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def text(tmp_path):
    """The small corpus, whose first two pairs are equal, and whose third is unequal."""
    write_corpus(tmp_path)
    for side, words in (("aa", 7), ("bb", 1)):
        path = tmp_path / f"train.{side}"
        lines = path.read_text().splitlines()
        lines[:3] = ["ko mu", "ko mu", " ".join(["ba"] * words)]
        path.write_text("".join(f"{line}\n" for line in lines))
    return tmp_path


def test_prepare_says_what_it_wrote_and_what_it_left_out(text, small_text):
    command = ["prepare", small_text / "small.yaml", "--data", text, "-o", text / "ids"]
    command += ["--shards", 3, "--max-length-ratio", 3]
    result = shell(*command)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == (
        f"{text / 'ids'} holds 51 pairs in 3 shards. Left out: 1 equal to an earlier "
        "pair, 0 longer than 16 subwords, 1 of unequal lengths.\n"
    )
    assert not result.stderr
    assert shell(*command).stdout == result.stdout
    result = shell(*command[:-2])
    assert result.exit_code == 1
    assert "`max_length_ratio` was 3.0 and is None" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_train_says_in_one_line_what_is_no_prepared_text(text, small_text):
    arguments = [
        "train",
        small_text / "small.yaml",
        "--data",
        text,
        "--run",
        text / "r",
    ]
    result = shell(*arguments, "--set", f"data.prepared={text / 'none'}")
    assert result.exit_code == 1
    [line] = result.stderr.splitlines()
    assert "none/ids holds no ids: there is no manifest.json. Pass a folder" in line
    assert not Path(text / "r").exists()
