"""The text that `keras-transformer evaluate` reads."""

import itertools
from pathlib import Path
from typing import NamedTuple

from keras_transformer.cli.loading import run_folder
from keras_transformer.text_files import TextFile, check_parallel_files, read_lines


class EvaluatedText(NamedTuple):
    """Parallel text; each side is a list of files, which are read one after another.

    Attributes:
        sources: Files to translate.
        references: For each set of correct translations, its files.
        tokenized: Files of the references as papers compute BLEU on them. If empty,
            the references are tokenized as the papers did.
        language: Language of the references, for paper-protocol BLEU; empty without.
    """

    sources: list[TextFile]
    references: list[list[TextFile]]
    tokenized: list[TextFile] = []
    language: str = ""

    def source_lines(self) -> list[str]:
        """Returns the lines to translate."""
        return lines_of(self.sources)

    def reference_lines(self) -> list[list[str]]:
        """Returns the lines of each set of correct translations."""
        return [lines_of(paths) for paths in self.references]

    def paper_references(self) -> list[str]:
        """Returns the references of paper-protocol BLEU, tokenized here if need be."""
        if self.tokenized:
            return lines_of(self.tokenized)
        from keras_transformer.evaluation import moses_tokenized

        return moses_tokenized(lines_of(self.references[0]), self.language)

    def check(self, output: Path | None, translations: Path | None) -> int:
        """Returns the number of sentences; raises if a file is faulty.

        `output` is a file to write, which must not be one that is read. `translations`
        is a file with a line for each sentence, which may be empty.
        """
        sides = [*self.references, *([self.tokenized] if self.tokenized else [])]
        given = [TextFile(translations)] if translations else []
        for file in itertools.chain(self.sources, *sides, given):
            if output is not None and output.resolve() == file.path.resolve():
                raise ValueError(f"{output} is read. Name another file to write to.")
        for side in sides:
            total = check_parallel_files(self.sources, side)
        if translations and (count := len(lines_of(given))) != total:
            raise ValueError(
                f"{translations} must hold one translation of each of the {total} "
                f"sentences. Received: {count} lines."
            )
        return total


def text_of_recipe(
    model: str, recipe: str | None, split: str, data: Path | None
) -> EvaluatedText:
    """Returns the text of a split of a recipe, by default the recipe of a run."""
    settings = run_folder(model) / "settings.yaml"
    if recipe is None and not settings.is_file():
        raise FileNotFoundError(
            f"{model} holds no run, whose recipe would name the files. Name a "
            "recipe with --recipe, or files with --source-file and --reference."
        )
    from keras_transformer.runs import Recipe

    overrides = {"data.folder": str(data.resolve())} if data else {}
    text = Recipe.load(recipe or settings, overrides).data
    text.check_files(split)
    sources, references = (text.paths(split, side) for side in ("source", "target"))
    if not getattr(text, split).tokenized:
        return EvaluatedText(sources, [references])
    tokenized = text.paths(split, "tokenized")
    if not all(file.path.exists() for file in tokenized):
        tokenized = []
    return EvaluatedText(sources, [references], tokenized, text.target)


def lines_of(files: list[TextFile]) -> list[str]:
    """Returns the lines of files, one after the other."""
    return [*itertools.chain.from_iterable(map(read_lines, files))]
