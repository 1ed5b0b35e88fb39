"""Notebooks of the tutorials: makes them, runs them, records what they print and draw.

    python docs/tutorial_notebooks.py make
    python docs/tutorial_notebooks.py run notebooks/*.ipynb
    python docs/tutorial_notebooks.py record tutorials/*.py

`make` writes notebooks/, without outputs. `run` only runs notebooks; TUTORIAL_EPOCHS=1
and the like shorten that. `record` runs tutorials in full, and writes what they print
and draw to docs/outputs and docs/figures, which the site shows, HTML pages too.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import tempfile
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "notebooks"
OUTPUTS = ROOT / "docs" / "outputs"
FIGURES = ROOT / "docs" / "figures"
INSTALL = "# The checkout that this notebook is in.\n%pip install -q .."
FOLDER_SHOWN = "/tmp/tutorial"


def read_tutorial(tutorial: Path):
    """Returns a tutorial as a notebook without outputs."""
    notebook = jupytext.read(tutorial)
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook.metadata = {"kernelspec": kernel}
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{number}", {}
    return notebook


def make_notebook(tutorial: Path) -> str:
    """Returns the file of a notebook, in which a cell installs the package.

    `run` skips that cell, by its tag.
    """
    notebook = read_tutorial(tutorial)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = re.sub(r"\((\d\d_\w+)\.py\)", r"(\1.ipynb)", cell.source)
    install = nbformat.v4.new_code_cell(INSTALL, id="install")
    install.metadata["tags"] = ["skip-execution"]
    notebook.cells.insert(1, install)
    nbformat.validate(notebook)
    return nbformat.writes(notebook) + "\n"


def run(notebook, folder: Path) -> None:
    """Runs all cells of a notebook, which may write to `folder`.

    Raises:
        nbclient.exceptions.CellExecutionError: If a cell fails.
    """
    client = NotebookClient(notebook, timeout=None)
    client.execute(cwd=folder, env={**os.environ, "TUTORIAL_FOLDER": str(folder)})


def code_cells(notebook):
    """Returns the code cells of a notebook."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def digest(notebook) -> str:
    """Returns a digest of a notebook's code."""
    code = "\n".join(cell.source for cell in code_cells(notebook))
    return hashlib.sha256(code.encode("utf-8")).hexdigest()[:16]


def printed(cell) -> str:
    """Returns what a cell that has run printed on standard output.

    In a notebook, TensorFlow's log is printed there too: it is left out.
    """
    streams = [each for each in cell.outputs if each.get("name") == "stdout"]
    text = "".join(each.text for each in streams)
    return re.sub(r"^INFO:tensorflow:.*\n", "", text, flags=re.MULTILINE)


def drawn(cell) -> str | None:
    """Returns the name of the figure that a cell shows, or None."""
    found = re.search(r'^show\(.*, "(\w+)"\)$', cell.source, re.MULTILINE)
    return found[1] if found else None


def written_page(cell) -> str | None:
    """Returns the name of the HTML page that a cell writes, or None."""
    found = re.search(r'FOLDER / "(\w+)\.html"', cell.source)
    return found[1] if found else None


def recorded_lines(tutorial: Path) -> list[list[str]] | None:
    """Returns the lines that each code cell of a tutorial printed when it was recorded.

    Returns None where no record of today's code is kept.
    """
    path = OUTPUTS / f"{tutorial.stem}.json"
    found = json.loads(path.read_text("utf-8")) if path.exists() else {"code": None}
    is_current = found["code"] == digest(read_tutorial(tutorial))
    return found["printed"] if is_current else None


def record(tutorial: Path) -> None:
    """Runs a tutorial, and writes what it prints and draws into docs/."""
    notebook = read_tutorial(tutorial)
    with tempfile.TemporaryDirectory() as folder:
        run(notebook, Path(folder))
        lines = [
            printed(cell).replace(folder, FOLDER_SHOWN).splitlines()
            for cell in code_cells(notebook)
        ]
        for name in filter(None, map(drawn, code_cells(notebook))):
            shutil.copy(Path(folder, f"{name}.png"), FIGURES)
        for name in filter(None, map(written_page, code_cells(notebook))):
            shutil.copy(Path(folder, f"{name}.html"), FIGURES)
    found = {"code": digest(notebook), "printed": lines}
    text = json.dumps(found, ensure_ascii=False, indent=1)
    (OUTPUTS / f"{tutorial.stem}.json").write_text(text + "\n", "utf-8")


def main() -> None:
    """Runs one of the commands of this file's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("make")
    for name in ("run", "record"):
        commands.add_parser(name).add_argument("paths", type=Path, nargs="+")
    arguments = parser.parse_args()
    if arguments.command == "make":
        for tutorial in sorted((ROOT / "tutorials").glob("*.py")):
            path = NOTEBOOKS / f"{tutorial.stem}.ipynb"
            path.write_text(make_notebook(tutorial), "utf-8")
        return
    for path in arguments.paths:
        print(path, flush=True)
        if arguments.command == "record":
            record(path)
        else:
            with tempfile.TemporaryDirectory() as folder:
                run(nbformat.read(path, as_version=4), Path(folder))


if __name__ == "__main__":
    main()
