"""The text that `keras-transformer evaluate` translates, and its references."""

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import typer

from keras_transformer.cli.loading import run_folder
from keras_transformer.runs import Recipe


class EvaluatedText(NamedTuple):
    """Parallel text; each side is a list of files, which are read one after another.

    Attributes:
        sources: Files to translate.
        references: For each set of correct translations, its files.
        tokenized: Files of the references as papers compute BLEU on them. If empty,
            the references are tokenized as the papers did.
        language: Language of the references, for paper-protocol BLEU; empty without.
    """

    sources: list[Path]
    references: list[list[Path]]
    tokenized: list[Path] = []
    language: str = ""

    @classmethod
    def of_files(cls, source: Path | None, references: list[Path] | None, **others):
        """Returns text in files that are named; `others` are options of a recipe."""
        if source is None or not references:
            raise typer.BadParameter(
                "must be given together.", param_hint=["--source-file", "--reference"]
            )
        for name, value in others.items():
            if value is not None:
                raise typer.BadParameter(
                    "cannot be combined with --source-file.", param_hint=f"--{name}"
                )
        return cls([source], [[path] for path in references])

    @classmethod
    def of_recipe(cls, model: str, recipe: str | None, split: str, data: Path | None):
        """Returns the text of a split of a recipe, that of the run if none is given."""
        settings = run_folder(model) / "settings.yaml"
        if recipe is None and not settings.is_file():
            raise FileNotFoundError(
                f"{model} holds no run, whose recipe would name the files. Name a "
                "recipe with --recipe, or files with --source-file and --reference."
            )
        overrides = {"data.folder": str(data.resolve())} if data else {}
        text = Recipe.load(recipe or settings, overrides).data
        text.check_files(split)
        sources, references = (text.paths(split, side) for side in ("source", "target"))
        if not getattr(text, split).tokenized:
            return cls(sources, [references])
        tokenized = text.paths(split, "tokenized")
        if not all(path.exists() for path in tokenized):
            tokenized = []
        return cls(sources, [references], tokenized, text.target)

    def paper_references(self) -> Iterator[str]:
        """Yields the references of paper-protocol BLEU, tokenized here if need be."""
        if self.tokenized:
            return lines_of(self.tokenized)
        from keras_transformer.training.quality import moses_tokenized

        return moses_tokenized(lines_of(self.references[0]), self.language)

    def check(self, output: Path | None, translations: list[Path]) -> int:
        """Returns the number of sentences; raises if a file is faulty.

        `output` is a file to write, which must not be one that is read. `translations`
        are files with a line for each sentence, which may be empty.
        """
        from keras_transformer.text import check_parallel_files

        sides = [*self.references, *([self.tokenized] if self.tokenized else [])]
        for path in itertools.chain(self.sources, *sides, translations):
            if output is not None and output.resolve() == path.resolve():
                raise ValueError(f"{output} is read. Name another file to write to.")
        for side in sides:
            total = check_parallel_files(self.sources, side)
        for path in translations:
            if (count := sum(1 for _ in lines_of([path]))) != total:
                raise ValueError(
                    f"{path} must hold one translation of each of the {total} "
                    f"sentences. Received: {count} lines."
                )
        return total


def lines_of(paths: Iterable[Path]) -> Iterator[str]:
    """Yields the lines of files, one after the other."""
    from keras_transformer.text import read_lines

    return itertools.chain.from_iterable(map(read_lines, paths))
