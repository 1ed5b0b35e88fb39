"""Writes the pages of the site, which `make docs` then builds.

    python docs/pages.py FOLDER

The pages are docs/*.md, the README and other Markdown of the repository, the tutorials
with what they print and draw, the settings of recipes, and the reference. Links that
lead to files of the repository become links to pages. What has no page is linked in the
repository if SOURCE_URL, such as https://github.com/owner/name/blob/main, says where
that is.
FOLDER.yml is mkdocs.yml with the navigation of the reference filled in.
"""

import argparse
import os
import re
import shutil
from pathlib import Path

import tutorial_notebooks as notebooks
from reference import PARTS, class_page, classes_of, link_names, part_page

from keras_transformer.runs.recipe import names_from_text
from keras_transformer.runs.reference import settings

ROOT = Path(__file__).parents[1]
SOURCE_URL = os.environ.get("SOURCE_URL", "")
# Folders of the site for what pages show, or offer to download.
FILES = {".png": "pictures", ".html": "pictures", ".ipynb": "notebooks"}
GITHUB = "https://github.com/"
COLAB = "https://colab.research.google.com/github/"
SETTINGS = "keras_transformer/runs/settings.py"
LINK = r"(!?)\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)"


def page_sources() -> dict[str, str]:
    """Returns the file of the repository that each page is made of."""
    sources = {
        "benchmarks.md": "benchmarks/RESULTS.md",
        "peers.md": "benchmarks/peers/README.md",
        "quality.md": "benchmarks/QUALITY.md",
        "saved_models.md": "saved_models/README.md",
        "changelog.md": "CHANGELOG.md",
        "contributing.md": "CONTRIBUTING.md",
        "settings.md": SETTINGS,
    }
    docs = ROOT / "docs"
    for path in sorted(docs.rglob("*.md")):
        sources[str(path.relative_to(docs))] = str(path.relative_to(ROOT))
    for path in sorted((ROOT / "tutorials").glob("*.py")):
        sources[f"tutorials/{path.stem}.md"] = f"tutorials/{path.name}"
    return sources


def outside_code(text: str, change) -> str:
    """Returns Markdown with `change` applied to what is not in fenced blocks."""
    parts = re.split(r"(^```.*?^```$)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part[:3] == "```" else change(part) for part in parts)


def title_of(source: str) -> str:
    """Returns the first heading of a file of the repository."""
    text = (ROOT / source).read_text("utf-8")
    return re.search(r"^(?:# )?# (.+)$", text, re.MULTILINE)[1]


class Pages:
    """The pages of the site, and the files that they link.

    Attributes:
        texts: The Markdown of each page by its path in the site.
        files: Each picture and notebook by its path in the site.
    """

    def __init__(self):
        self.pages = {source: page for page, source in page_sources().items()}
        self.texts, self.files = {}, {}
        for source, page in self.pages.items():
            if source == SETTINGS:
                text = settings_page()
            else:
                read = tutorial_text if source.endswith(".py") else file_text
                text = read(ROOT / source)
            self.texts[page] = outside_code(text, self._change(source))
        for part in PARTS:
            self.texts[f"reference/{part}/index.md"] = part_page(part)
            for name in classes_of(part):
                self.texts[f"reference/{part}/{name}.md"] = class_page(part, name)

    def write(self, folder: Path) -> None:
        """Writes all pages and files into a folder, which is emptied before.

        Beside it, writes the configuration that builds a site of them.
        """
        shutil.rmtree(folder, ignore_errors=True)
        for page, text in self.texts.items():
            path = folder / page
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        for copy, source in self.files.items():
            (folder / copy).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, folder / copy)
        shutil.copy(ROOT / "docs" / "site.css", folder)
        text = (ROOT / "mkdocs.yml").read_text("utf-8")
        folder.with_suffix(".yml").write_text(with_navigation(text), "utf-8")

    def _change(self, source):
        """Returns a function that changes the links of a file to those of its page."""

        def change(text):
            return re.sub(LINK, lambda found: self._link(source, *found.groups()), text)

        bare = source.startswith("tutorials/")  # where `Encoder` is always ours
        return lambda text: link_names(change(text), bare)

    def _link(self, source, picture, text, target, anchor):
        anchor = anchor or ""
        if not target or re.match(r"[a-z]+:", target):
            return f"{picture}[{text}]({target}{anchor})"
        path = (ROOT / source).parent.joinpath(target).resolve()
        if not path.exists():
            raise ValueError(f"{source} links to {target}, which does not exist.")
        inside = str(path.relative_to(ROOT))
        here = Path(self.pages[source]).parent
        if folder := FILES.get(path.suffix):
            copy = f"{folder}/{path.name}"
            self.files[copy] = path
            return f"{picture}[{text}]({os.path.relpath(copy, here)})"
        if inside in self.pages:
            page = os.path.relpath(self.pages[inside], here)
            # Where the text is a path, a reader of the site wants the title.
            text = title_of(inside) if text.endswith(".md") else text
            return f"[{text}]({page}{anchor})"
        if SOURCE_URL:
            return f"[{text}]({SOURCE_URL}/{inside}{anchor})"
        return text


def with_navigation(config: str) -> str:
    """Returns the text of mkdocs.yml with the pages of each part of the reference."""
    for part in PARTS:
        entry = f"      - reference/{part}/index.md\n"
        pages = "".join(
            f"          - {name}: reference/{part}/{name}.md\n"
            for name in classes_of(part)
        )
        config = config.replace(entry, f"      - kt.{part}:\n    {entry}{pages}")
    return config


def settings_page() -> str:
    """Returns the page of all settings of recipes."""
    lines = [
        "# Settings of a recipe\n",
        "Every setting that `keras-transformer train` takes, in a YAML file or by "
        "`--set NAME=VALUE`. `keras-transformer init --all` writes a recipe with all "
        "of them as comments, `keras-transformer train --help-settings` prints this "
        "list. Defaults *from the text* are chosen from the number of its pairs and "
        "words; `train` prints them before it begins, and keeps them in the run's "
        "settings.yaml.",
    ]
    for setting in settings():
        section, _, name = setting.name.partition(".")
        if not name:
            lines += ["", f"## {section}", "", setting.meaning, ""]
            lines += ["| setting | default | meaning |", "| --- | --- | --- |"]
        else:
            shown = f"`{setting.default}`" if setting.default else ""
            shown = "from the text" if setting.name in names_from_text() else shown
            lines.append(f"| `{name}` | {shown} | {setting.meaning} |")
    return "\n".join(lines) + "\n"


def file_text(path: Path) -> str:
    """Returns the text of a Markdown file."""
    return path.read_text("utf-8")


def tutorial_text(path: Path) -> str:
    """Returns a tutorial as Markdown, with what it printed and drew when recorded."""
    notebook = notebooks.read_tutorial(path)
    recorded = notebooks.recorded_lines(path)
    if recorded is None:
        print(f"{path.name} has changed since it was recorded: `make figures` runs it.")
    printed = iter(recorded or [[]] * len(notebooks.code_cells(notebook)))
    parts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        if lines := next(printed):
            parts.append("\n".join(["```{.text .output}", *lines, "```"]))
        name = notebooks.drawn(cell)
        if name and (notebooks.FIGURES / f"{name}.png").exists():
            parts.append(f"![What the code above draws](../docs/figures/{name}.png)")
        name = notebooks.written_page(cell)
        if name and (notebooks.FIGURES / f"{name}.html").exists():
            parts.append(f"[The page](../docs/figures/{name}.html):")
            # Paths in HTML begin at the folder that becomes the page's address.
            address = f"../../{FILES['.html']}/{name}.html"
            parts.append(f'<iframe src="{address}" title="The page"></iframe>')
    parts.insert(1, opening_line(path))
    return "\n\n".join(parts) + "\n"


def opening_line(tutorial: Path) -> str:
    """Returns a line with the places where a tutorial can be run."""
    links = [f"[notebook](../notebooks/{tutorial.stem}.ipynb)"]
    if SOURCE_URL.startswith(GITHUB):
        address = SOURCE_URL.replace(GITHUB, COLAB)
        links.insert(0, f"[in Colab]({address}/notebooks/{tutorial.stem}.ipynb)")
    return f"*Run it: {', '.join(links)}, or `python tutorials/{tutorial.name}`.*"


def main() -> None:
    """Writes the pages into the folder that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    Pages().write(parser.parse_args().folder)


if __name__ == "__main__":
    main()
