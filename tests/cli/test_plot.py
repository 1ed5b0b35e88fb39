import pytest
from PIL import Image
from typer.testing import CliRunner

from keras_transformer.cli import app


def plot(*arguments):
    return CliRunner().invoke(app, ["plot", *map(str, arguments)])


@pytest.fixture
def run(tmp_path):
    """Folder with the log of a run."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "log.csv").write_text("epoch,loss,val_loss\n1,7,6\n2,5,4\n", "utf-8")
    return folder


@pytest.mark.parametrize("log", ["run", "run/log.csv"])
def test_a_picture_is_drawn(run, monkeypatch, log):
    monkeypatch.chdir(run.parent)
    result = plot("training", log, "-o", "out.png")
    assert result.exit_code == 0, result.stderr
    assert result.output == "The curves are in out.png.\n"
    with Image.open("out.png") as picture:
        assert picture.format == "PNG"
        assert min(picture.size) > 300


def test_a_file_that_is_not_a_picture_is_refused(run):
    path = run / "out.html"
    result = plot("training", "run", "--output", path)
    assert result.exit_code == 1
    assert result.stderr == (
        f"Error: {path} is not a picture file. Its name must end in .png, "
        ".svg or .pdf.\n"
    )


def test_a_run_without_a_log_is_reported_in_one_line(tmp_path):
    result = plot("training", tmp_path, "-o", tmp_path / "out.png")
    assert result.exit_code == 1
    wanted = f"Error: {tmp_path}/log.csv does not exist. Pass a run that has begun.\n"
    assert result.stderr == wanted


@pytest.mark.parametrize("name", ["attention", "training"])
def test_help_shows_an_example(name):
    result = plot(name, "--help")
    assert result.exit_code == 0
    assert f"keras-transformer plot {name}" in result.output
