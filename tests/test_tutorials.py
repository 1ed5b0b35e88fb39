import ast
import re
from pathlib import Path

import pytest
from forked import run_program

ROOT = Path(__file__).parents[1]
TUTORIALS = sorted((ROOT / "tutorials").glob("*.py"))
FIGURES = sorted((ROOT / "docs" / "figures").glob("*.png"))
README = (ROOT / "README.md").read_text("utf-8")
PICTURES = (ROOT / "docs" / "tutorials.md").read_text("utf-8")
each_tutorial = pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)


def cells(path):
    """Returns the cells of a script in percent format, as `(is_markdown, lines)`."""
    found = []
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("# %%"):
            assert line in ("# %%", "# %% [markdown]"), line
            found.append((line.endswith("[markdown]"), []))
        else:
            assert found, f"{path} must begin with a cell"
            found[-1][1].append(line)
    return found


def prose(path):
    """Returns the text of each Markdown cell."""
    return [
        "\n".join(line.removeprefix("#").strip() for line in lines)
        for is_markdown, lines in cells(path)
        if is_markdown
    ]


@pytest.mark.slow
@each_tutorial
def test_the_tutorial_runs_to_its_end(path, tmp_path):
    result = run_program(
        path,
        cwd=tmp_path,
        TUTORIAL_EPOCHS="1",
        TUTORIAL_PHRASES="1000",
        TUTORIAL_DOCUMENTS="20",
        TUTORIAL_TOPICS="12",
        TUTORIAL_FOLDER=str(tmp_path),
    )
    assert result.returncode == 0, result.stderr


@each_tutorial
def test_the_tutorial_is_a_notebook_too(path):
    for is_markdown, lines in cells(path):
        if is_markdown:
            text = [line for line in lines if line]
            assert text
            assert all(line == "#" or line.startswith("# ") for line in text), text
        else:
            # Each code cell parses by itself; a notebook displays only its last value.
            statements = ast.parse("\n".join(lines)).body
            assert statements
            shown = [ast.unparse(each).startswith("show(") for each in statements]
            assert not any(shown[:-1]), lines


@each_tutorial
def test_the_tutorial_says_what_it_costs_shows_a_figure_and_what_comes_next(path):
    first, *_, last = prose(path)
    assert first.startswith("# ")
    assert re.search(r"^show\(", path.read_text("utf-8"), re.MULTILINE)
    assert re.search(r"\b(minutes?|seconds)\b", first)
    assert last.startswith("## What to try next\n- ")
    assert path.name in README
    assert path.name in PICTURES


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.stem)
def test_the_figure_is_small_and_drawn_by_a_tutorial_or_the_shell(path):
    assert path.stat().st_size < 80_000  # in full colour
    drawn = f', "{path.stem}")'
    by_tutorial = any(drawn in tutorial.read_text("utf-8") for tutorial in TUTORIALS)
    by_shell = f"-o {path.name}`" in README
    assert by_tutorial or by_shell


def test_the_page_of_tutorials_shows_no_figure_that_is_not_there():
    shown = set(re.findall(r"figures/([\w-]+\.png)", PICTURES))
    assert shown
    assert shown <= {path.name for path in FIGURES}
