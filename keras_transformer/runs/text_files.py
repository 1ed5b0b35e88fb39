"""The part of a recipe that names languages and files, and finds the files."""

import dataclasses
import re
from dataclasses import dataclass, field
from pathlib import Path

from keras_transformer.runs.settings import setting
from keras_transformer.storage import names_in

SIDES = ("source", "target")


@dataclass(frozen=True, kw_only=True)
class TextFiles:
    """Parallel text: each side in one file or several.

    `{source}` and `{target}` in a file name stand for the two languages.

    Attributes:
        source: Files to translate from.
        target: As many files; line by line, the nth translates the nth of `source`.
        tokenized: `target` as papers compute BLEU on it: lower-cased, split by the
            Moses tokenizer.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    tokenized: tuple[str, ...] = setting((), fixed=False)

    def reversed(self) -> "TextFiles":
        """Returns the files with both sides, and `{source}` and `{target}`, exchanged.

        `tokenized` stays if the names depend on the target language, and is else empty.
        """
        swaps = {"{source}": "{target}", "{target}": "{source}"}
        pattern = "|".join(map(re.escape, swaps))

        def other(names):
            return tuple(re.sub(pattern, lambda x: swaps[x[0]], name) for name in names)

        depends_on_language = all("{target}" in name for name in self.tokenized)
        return TextFiles(
            source=other(self.target),
            target=other(self.source),
            tokenized=self.tokenized if depends_on_language else (),
        )


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """The text for training, validation and testing.

    Attributes:
        source: Language to translate from, such as `"en"`.
        target: Language to translate into, such as `"de"`.
        folder: Folder that file names are relative to.
        origin: Where to get the text, for errors about missing files.
        train: Text to train on.
        validation: Text for the validation loss, and to choose settings by.
        test: Text to evaluate a finished model on.
    """

    source: str
    target: str
    train: TextFiles
    validation: TextFiles
    test: TextFiles | None = field(default=None, metadata={"fixed": False})
    folder: str = setting(".", fixed=False)
    origin: str = setting("", fixed=False)

    def paths(self, split: str, side: str) -> list[Path]:
        """Returns the files of a side of a split, such as `"source"` of `"train"`.

        Raises:
            ValueError: If the recipe names none.
        """
        names = getattr(getattr(self, split), side, ())
        if not names:
            raise ValueError(
                f"`data.{split}.{side}` must name files for this. Add it to the recipe."
            )
        names = [name.replace("{source}", self.source) for name in names]
        names = [name.replace("{target}", self.target) for name in names]
        return [Path(self.folder, name) for name in names]

    def reversed(self) -> "DataSettings":
        """Returns the same files for translating from `target` into `source`."""
        return dataclasses.replace(
            self,
            source=self.target,
            target=self.source,
            train=self.train.reversed(),
            validation=self.validation.reversed(),
            test=self.test and self.test.reversed(),
        )

    def check_files(self, split: str) -> None:
        """Raises `FileNotFoundError` if a file of a split is missing on any side."""
        for side in SIDES:
            for path in self.paths(split, side):
                if path.exists():
                    continue
                there = path.parent if path.parent.is_dir() else Path(self.folder)
                folder = there.absolute()
                held = f"There is no folder {folder}"
                if folder.is_dir():
                    held = f"{folder} holds {names_in(folder)}"
                message = (
                    f"{path} does not exist, which `data.{split}.{side}` names. "
                    f"{held}. Name the folder of the text with `data.folder`, which "
                    f"is --data in the shell. {self.origin}"
                )
                raise FileNotFoundError(message.strip())
