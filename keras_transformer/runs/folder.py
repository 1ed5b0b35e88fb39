"""The folder of a run: where its files are, and reading them."""

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ruamel.yaml import YAML

from keras_transformer.decoding import BeamSearch, GreedySearch, Search
from keras_transformer.decoding.beam import LengthPenalty
from keras_transformer.models import Transformer
from keras_transformer.runs.log import Log
from keras_transformer.runs.recipe import SIDES, Recipe
from keras_transformer.storage import replace_file
from keras_transformer.text import SubwordTokenizer
from keras_transformer.text.vocabulary_tokenizer import load_tokenizer
from keras_transformer.training import Checkpoints

if TYPE_CHECKING:  # training begins without a translator, and ends with one
    from keras_transformer.translator import Translator


class Run:
    """The folder of a training run.

    - `settings.yaml`: every setting, the versions of the libraries, and a checksum of
      the training text;
    - `tokenizers/`, and `checkpoints/` with the last ones and `best.keras`;
    - `log.csv`, one row per epoch, and `tensorboard/`;
    - `translator/`: the trained translator;
    - `pretrained/`: the translator that training continued from, if there was one;
    - `ids/`: the training text, where `keras-transformer prepare` wrote it.

    It may be moved.

    Args:
        folder: Path of the folder, which may not exist yet; `fit` makes it.
    """

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder)
        self.settings_path = self.folder / "settings.yaml"
        self.translator_path = self.folder / "translator"
        self.pretrained_path = self.folder / "pretrained"
        self.tokenizers_path = self.folder / "tokenizers"
        self.ids_path = self.folder / "ids"
        self.log = Log(self.folder / "log.csv")

    @functools.cached_property
    def recipe(self) -> Recipe:
        """The settings, read once; raises `FileNotFoundError` if this is no run."""
        if not self.settings_path.is_file():
            raise FileNotFoundError(
                f"{self.folder} holds no run: there is no {self.settings_path.name}. "
                "Name a folder that `train` made."
            )
        return Recipe.load(self.settings_path)

    def write_settings(self, recipe: Recipe, versions: dict[str, str]) -> None:
        """Writes settings.yaml, which `recipe` then gives without reading it again."""
        settings = {"versions": versions, **recipe.model_dump(mode="json")}
        settings["data"]["folder"] = str(Path(recipe.data.folder).resolve())
        yaml = YAML(typ="safe", pure=True)
        yaml.default_flow_style = False
        yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
        with replace_file(self.settings_path) as path:
            yaml.dump(settings, path)
        self.recipe = recipe

    def checkpoints(self) -> Checkpoints:
        """Returns the checkpoints of the run."""
        settings = self.recipe.training
        return Checkpoints(self.folder / "checkpoints", settings.keep, settings.best)

    def tokenizers(self) -> tuple[SubwordTokenizer, SubwordTokenizer]:
        """Returns the source and the target tokenizer, once they are trained."""
        recipe = self.recipe
        is_shared = recipe.tokenizer.shared and recipe.model.pretrained is None
        names = ("shared", "shared") if is_shared else SIDES
        source, target = (self.tokenizers_path / f"{name}.model" for name in names)
        return load_tokenizer(source), load_tokenizer(target)

    def search(self) -> Search:
        """Returns the search that the settings name.

        If they name none, it is that of the pretrained translator, if there was one.
        Its processors, such as a forced language, what ends its translations, and the
        kind of its length penalty always hold.
        """
        from keras_transformer.translator.saving import SETTINGS, read_search

        settings = self.recipe.decoding
        search: Search = BeamSearch(4, 0.6)
        if (self.pretrained_path / SETTINGS).is_file():
            search, _ = read_search(self.pretrained_path)
        if settings.beam_width is None and settings.length_penalty is None:
            return search
        beam_width = settings.beam_width or search.num_slots
        return with_beam(search, beam_width, settings.length_penalty)

    def translator(self, checkpoint: str | os.PathLike | None = None) -> "Translator":
        """Returns the translator, with the search that the settings name now.

        Args:
            checkpoint: Path of a checkpoint of the run, such as
                `run.checkpoints().best()`, to have the translator with its weights.

        Raises:
            FileNotFoundError: If there is none yet.
        """
        from keras_transformer.translator import Translator
        from keras_transformer.translator.saving import load_model

        if checkpoint is not None:
            return self.translator_of(load_model(Path(checkpoint))).in_dtype()
        paths = self.checkpoints().paths()  # raises an error if this is no run
        if not self.translator_path.is_dir():
            command = f"keras-transformer average {self.folder}"
            average = f", or average its {len(paths)} checkpoints: {command}"
            raise FileNotFoundError(
                f"{self.folder} holds no translator yet. Finish the training by the "
                f"command that began it{average if paths else '.'}"
            )
        translator = Translator.load(self.translator_path)
        translator.search = self.search()
        return translator

    def translator_of(self, model: Transformer) -> "Translator":
        """Returns a translator with the run's tokenizers and search."""
        from keras_transformer.translator import Translator
        from keras_transformer.translator.saving import SETTINGS, read_search

        # A source longer than the training text translates better whole than cut.
        longest = 2 * self.recipe.training.max_length
        if (self.pretrained_path / SETTINGS).is_file():
            longest = max(longest, read_search(self.pretrained_path)[1])
        return Translator(model, *self.tokenizers(), longest, self.search())

    def has_trained(self) -> bool:
        """Returns whether the folder holds a checkpoint or a translator."""
        if not self.settings_path.is_file():
            return False
        checkpoints = self.checkpoints()
        results = *checkpoints.paths(), checkpoints.step_path, checkpoints.best_path
        return any(path.exists() for path in (*results, self.translator_path))


def with_beam(search: Search, beam_width: int, exponent: float | None = None) -> Search:
    """Returns a search of another beam width with the limits and ends of `search`.

    Args:
        search: Gives its processors and end ids, and its length penalty
            if it has one.
        beam_width: Hypotheses that beam search keeps; 1 is greedy search.
        exponent: Exponent of a length penalty of the same kind; None keeps it.
    """
    kept = {x: getattr(search, x) for x in ("processors", "end_ids")}
    if beam_width == 1:
        return GreedySearch(**kept)
    penalty = getattr(search, "length_penalty", 0.6)
    if exponent is not None:
        kind = type(penalty) if isinstance(penalty, LengthPenalty) else float
        penalty = kind(exponent)
    return BeamSearch(beam_width, penalty, **kept)
