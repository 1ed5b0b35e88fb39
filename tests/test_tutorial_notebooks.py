"""Notebooks are in step with the tutorials, and run."""

from pathlib import Path

import nbformat
import pytest
import tutorial_notebooks as notebooks

TUTORIALS = sorted((notebooks.ROOT / "tutorials").glob("*.py"))
each_tutorial = pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)


@each_tutorial
def test_the_notebook_is_in_step_with_the_tutorial(path):
    committed = (notebooks.NOTEBOOKS / f"{path.stem}.ipynb").read_text("utf-8")
    assert committed == notebooks.make_notebook(path), "`make notebooks` writes it."


def test_there_is_a_notebook_for_every_tutorial_and_no_other():
    found = {path.stem for path in notebooks.NOTEBOOKS.glob("*.ipynb")}
    assert found == {path.stem for path in TUTORIALS}


def test_the_first_code_of_a_notebook_installs_the_package():
    notebook = nbformat.reads(notebooks.make_notebook(TUTORIALS[0]), as_version=4)
    first, *rest = notebooks.code_cells(notebook)
    assert first.source.endswith(" ..")
    assert first.metadata.tags == ["skip-execution"]
    assert not any("tags" in cell.metadata for cell in rest)


def test_the_log_of_tensorflow_is_not_what_a_cell_printed():
    lines = "INFO:tensorflow:Reduce to CPU\nreplicas: 2\n"
    outputs = [nbformat.v4.new_output("stream", name="stdout", text=lines)]
    cell = nbformat.v4.new_code_cell(outputs=outputs)
    assert notebooks.printed(cell) == "replicas: 2\n"


@each_tutorial
def test_a_record_has_the_lines_of_every_cell(path):
    lines = notebooks.recorded_lines(path)
    cells = notebooks.code_cells(notebooks.read_tutorial(path))
    assert lines is None or len(lines) == len(cells)


def test_a_record_of_other_code_is_not_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(notebooks, "OUTPUTS", tmp_path)
    path = tmp_path / "tutorial.py"
    path.write_text('# %%\nprint("a")\n', "utf-8")
    assert notebooks.recorded_lines(path) is None
    code = notebooks.digest(notebooks.read_tutorial(path))
    record = f'{{"code": "{code}", "printed": [["a"]]}}'
    (tmp_path / "tutorial.json").write_text(record, "utf-8")
    assert notebooks.recorded_lines(path) == [["a"]]
    path.write_text('# %%\nprint("b")\n', "utf-8")
    assert notebooks.recorded_lines(path) is None


@pytest.mark.slow
def test_a_notebook_runs_and_what_it_prints_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("TUTORIAL_EPOCHS", "1")
    path = notebooks.NOTEBOOKS / "01_attention_from_scratch.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebooks.run(notebook, tmp_path)
    printed = [notebooks.printed(cell) for cell in notebooks.code_cells(notebook)]
    assert any("correct" in text for text in printed)
    names = filter(None, map(notebooks.drawn, notebooks.code_cells(notebook)))
    assert all(Path(tmp_path, f"{name}.png").is_file() for name in names)
