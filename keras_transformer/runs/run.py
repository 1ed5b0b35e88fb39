"""The folder of a run: what has happened there, and what it holds."""

import contextlib
import dataclasses
import functools
import importlib.metadata
import json
import math
import os
import platform
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ruamel.yaml import YAML

from keras_transformer.decoding import BeamSearch, GreedySearch, Search
from keras_transformer.decoding.beam import LengthPenalty
from keras_transformer.models import Transformer
from keras_transformer.runs.log import Log
from keras_transformer.runs.recipe import Recipe, Settings, settings_of
from keras_transformer.runs.recipe_files import read_yaml
from keras_transformer.runs.settings import SIDES, DataSettings, held_out_files
from keras_transformer.storage import (
    LOCK,
    is_unfinished,
    locked,
    remove_unfinished,
    replace_file,
    write_text,
)
from keras_transformer.text import Tokenizer
from keras_transformer.text.vocabulary_tokenizer import load_tokenizer
from keras_transformer.text_files import TextFile, checksum
from keras_transformer.training import Checkpoints
from keras_transformer.version import __version__

if TYPE_CHECKING:  # training begins without a translator, and ends with one
    from keras_transformer.translator import Translator

_FORMAT = 1
_LIBRARIES = ("keras", "tensorflow", "tensorflow-text", "sentencepiece", "numpy")


@dataclasses.dataclass(frozen=True)
class Record:
    """What has happened in a folder, as its `run.json` records.

    Attributes:
        kind: `"training"`, or `"prepared"` for text that is written as ids.
        training_text: Checksum of the training text.
        validation_text: Checksum of the validation text; None if it is not known.
        text_size: Numbers of a `TextSize`.
        pairs: Number of sentence pairs in each pair of files; None for ids.
        batches_per_epoch: Number of batches; None for ids.
        min_hash: As in `TextFile`; 0 if no pairs are held out of the training text.
        epoch: Number of complete epochs before the last checkpoint.
        batch: Number of batches after these, before the last checkpoint.
        versions: Version of each library used.
        format: Version of this file's format.
    """

    kind: str
    training_text: str
    validation_text: str | None = None
    text_size: tuple[int, int, int] | None = None
    pairs: tuple[int, ...] | None = None
    batches_per_epoch: int | None = None
    min_hash: int = 0
    epoch: int = 0
    batch: int = 0
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    format: int = _FORMAT


class State(NamedTuple):
    """The state of a run: what is trained, and where training continues."""

    run: "Run"
    epoch: int = 0
    checkpoint: Path | None = None


class New(State):
    """The state of a run without checkpoints. All arguments are as in `Resumable`."""


class Resumable(State):
    """The state of a run that can be resumed.

    Attributes:
        run: The run.
        epoch: Number of complete epochs.
        checkpoint: Path of the checkpoint to resume from.
    """


class Finished(State):
    """The state of a finished run. All arguments are as in `Resumable`."""


class Run:
    """The folder of a training run.

    - `settings.yaml`: every setting, and `run.json`: a `Record`;
    - `tokenizers/`, and `checkpoints/` with the last ones and `best.keras`;
    - `log.csv`, one row per epoch, and `tensorboard/`;
    - `translator/`: the trained translator;
    - `validation.source` and `validation.target`, if the recipe names none;
    - `pretrained/`: the translator that training continued from, if there was one;
    - `ids/`: the training text, where `keras-transformer prepare` wrote it.

    The folder may be moved.

    Args:
        folder: Path of the folder, which may not exist yet.
    """

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder)
        self.settings_path = self.folder / "settings.yaml"
        self.record_path = self.folder / "run.json"
        self.translator_path = self.folder / "translator"
        self.pretrained_path = self.folder / "pretrained"
        self.tokenizers_path = self.folder / "tokenizers"
        self.ids_path = self.folder / "ids"
        self.log = Log(self.folder / "log.csv")

    @classmethod
    @contextlib.contextmanager
    def open(cls, folder: str | os.PathLike, settings: Settings) -> Iterator[State]:
        """Locks a folder until the block ends, and yields the state of its run.

        Raises:
            BlockingIOError: If another process trains there.
            ValueError: If the folder holds anything else, such as prepared text, or a
                run with other settings or text.
        """
        cls(folder).state(settings)  # raises errors before the lock is written
        with locked(folder):
            yield cls(folder).state(settings)

    def state(self, settings: Settings) -> State:
        """Returns the state of a run with these settings; see `open`."""
        self.check_kind("training")
        if not self.has_trained():
            return New(self)
        self.check_same(settings)
        checkpoints = self.checkpoints()
        checkpoint = checkpoints.latest()
        if checkpoint is None:
            raise ValueError(
                f"{checkpoints.folder} holds no complete checkpoint to resume from. "
                "Choose another run folder."
            )
        epoch = checkpoints.epoch_of(checkpoint)
        waited = self.log.epochs_without_improvement(epoch)
        has_stalled = waited >= (settings.training.early_stopping or math.inf)
        if has_stalled or epoch >= (settings.training.epochs or 0):
            return Finished(self, epoch)
        return Resumable(self, epoch, checkpoint)

    def check_same(self, settings: Settings) -> None:
        """Raises `ValueError` unless the settings and the text match the run's."""
        before, record = self.settings, self.record
        differences = before.differences(settings)
        texts = {"training": record.training_text, "validation": record.validation_text}
        for split, known in texts.items() if not differences else ():
            if known not in (None, now := self.checksum(settings, split)):
                differences.append(f"its {split} text was {known} and is {now}")
        if differences:
            raise ValueError(
                f"{self.folder} holds another model: {'; '.join(differences)}. Choose "
                "another run folder, or train with the settings that this run began "
                "with."
            )

    def checksum(self, settings: Settings, split: str) -> str:
        """Returns a checksum of the `"training"` or `"validation"` text."""
        data = settings.data
        if split == "validation":
            return checksum([x for side in self.validation_files(data) for x in side])
        if data.prepared:
            from keras_transformer.text.prepared import MANIFEST

            return f"ids of {checksum(Run(data.prepared).ids_path / MANIFEST)}"
        return checksum([x for side in SIDES for x in data.paths("train", side)])

    def validation_files(self, data: DataSettings) -> Sequence[list[TextFile]]:
        """Returns the files to validate on, source and target: named, or held out."""
        if data.validation is not None:
            return data.check_files("validation")
        return [[file] for file in held_out_files(self.folder)]

    def has_trained(self) -> bool:
        """Returns whether the folder holds, or held, a checkpoint or a translator."""
        if self._record is None or self._record.kind != "training":
            return False
        checkpoints = Checkpoints(self.folder / "checkpoints")
        results = *checkpoints.paths(), checkpoints.step_path, checkpoints.best_path
        is_there = any(path.exists() for path in (*results, self.translator_path))
        return is_there or bool(self._record.epoch or self._record.batch)

    def check_kind(self, kind: str) -> Record | None:
        """Returns the record; raises an error if the folder holds something else."""
        if (record := self._record) is not None:
            if record.kind == kind:
                return record
            holds = "prepared text" if record.kind == "prepared" else "a run"
            raise ValueError(f"{self.folder} holds {holds}. Choose a new folder.")
        if self.folder.exists() and not (
            self.folder.is_dir()
            and all(is_unfinished(x) or x.name == LOCK for x in self.folder.iterdir())
        ):
            raise ValueError(
                f"{self.folder} holds something other than a run. Choose a new folder."
            )
        return None

    @property
    def record(self) -> Record:
        """What has happened in the folder; `FileNotFoundError` if it is not a run."""
        self._check_is_run()
        assert self._record is not None
        return self._record

    @functools.cached_property
    def _record(self) -> Record | None:
        if not self.record_path.is_file():
            return self._record_of_version_0_1()
        try:
            values = json.loads(self.record_path.read_text("utf-8"))
        except ValueError as error:
            raise ValueError(f"{self.record_path} is damaged: {error}.") from None
        if values["format"] > _FORMAT or values.keys() - Record.__dataclass_fields__:
            raise ValueError(f"{self._other_version(values['versions'])}.")
        return Record(**values)

    def _record_of_version_0_1(self):
        if not self.settings_path.is_file():
            return None
        versions = dict(read_yaml(self.settings_path)["versions"])
        text, size = versions.pop("training_text"), self.folder / "text.json"
        if not size.is_file():
            return Record("training", text, versions=versions)
        numbers = json.loads(size.read_text("utf-8"))
        sizes = numbers["pairs"], numbers["words"], numbers["characters"]
        return Record("prepared", text, text_size=sizes, versions=versions)

    def update(self, **changes) -> None:
        """Writes a change to `run.json`."""
        self._write_record(dataclasses.replace(self.record, **changes))

    def write(self, record: Record, settings: Settings) -> None:
        """Writes a record with the current versions, and the settings in force."""
        versions = {name: importlib.metadata.version(name) for name in _LIBRARIES}
        versions["keras-transformer"] = __version__
        versions["python"] = platform.python_version()
        # Written first: a killed process must not leave settings without a record.
        self._write_record(dataclasses.replace(record, versions=versions))
        values = settings.model_dump(mode="json")
        values["data"]["folder"] = str(Path(settings.data.folder).resolve())
        yaml = YAML(typ="safe", pure=True)
        yaml.default_flow_style = False
        yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
        with replace_file(self.settings_path) as path:
            yaml.dump(values, path)
        self.settings = settings

    def _write_record(self, record):
        values = dataclasses.asdict(record)
        write_text(self.record_path, json.dumps(values, indent=1) + "\n")
        self._record = record

    @functools.cached_property
    def settings(self) -> Settings:
        """The settings, read once; raises `FileNotFoundError` if this is not a run."""
        self._check_is_run()
        try:
            return settings_of(Recipe.load(self.settings_path))
        except ValueError as error:
            if not self.record_path.is_file():
                raise
            versions = json.loads(self.record_path.read_text("utf-8"))["versions"]
            if versions["keras-transformer"] == __version__:
                raise
            raise ValueError(f"{self._other_version(versions)}: {error}") from None

    def _other_version(self, versions):
        return (
            f"{self.folder} was written by version {versions['keras-transformer']} of "
            f"keras-transformer, and this is {__version__}"
        )

    def _check_is_run(self):
        if not self.settings_path.is_file():
            raise FileNotFoundError(
                f"{self.folder} is not a run: it has no {self.settings_path.name}. "
                "Pass a folder that `train` created."
            )

    def checkpoints(self) -> Checkpoints:
        """Returns the checkpoints of the run."""
        settings = self.settings.training
        return Checkpoints(self.folder / "checkpoints", settings.keep, settings.best)

    def tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        """Returns the source and the target tokenizer, once they are trained."""
        shared = self.tokenizers_path / "shared.model"
        source, target = (self.tokenizers_path / f"{side}.model" for side in SIDES)
        if not source.exists():
            source = target = shared
        return load_tokenizer(source), load_tokenizer(target)

    def search(self) -> Search:
        """Returns the search that the settings name.

        If they name none, it is the pretrained translator's, if there was one. That
        translator's processors, such as a forced language, its end tokens, and the kind
        of its length penalty always apply.
        """
        search, _ = self._pretrained_search()
        named = self._values["decoding"]
        beam_width, penalty = named.get("beam_width"), named.get("length_penalty")
        if beam_width is None and penalty is None:
            return search
        return with_beam(search, beam_width or search.num_slots, penalty)

    @property
    def _values(self) -> dict[str, Any]:
        """The settings as they are written, which a later version may have done."""
        self._check_is_run()
        return read_yaml(self.settings_path)

    def _pretrained_search(self) -> tuple[Search, int]:
        """Returns the search to begin with, and the longest source that it is for."""
        from keras_transformer.translator.saving import SETTINGS, read_search

        if (self.pretrained_path / SETTINGS).is_file():
            return read_search(self.pretrained_path)
        return BeamSearch(4, 0.6), 0

    def translator(self, checkpoint: str | os.PathLike | None = None) -> "Translator":
        """Returns the translator, with the search that the settings name now.

        Args:
            checkpoint: Path of a checkpoint of the run, such as
                `run.checkpoints().best()`, to use its weights.

        Raises:
            FileNotFoundError: If there is no translator yet.
        """
        from keras_transformer.translator import Translator
        from keras_transformer.translator.saving import load_model

        if checkpoint is not None:
            return self.translator_of(load_model(Path(checkpoint))).in_dtype()
        self._check_is_run()
        if not self.translator_path.is_dir():
            count = len(Checkpoints(self.folder / "checkpoints").paths())
            command = f"keras-transformer average {self.folder}"
            average = f", or average its {count} checkpoints: {command}"
            raise FileNotFoundError(
                f"{self.folder} holds no translator yet. Finish training with the "
                f"command that began it{average if count else '.'}"
            )
        translator = Translator.load(self.translator_path)
        translator.search = self.search()
        return translator

    def translator_of(self, model: Transformer) -> "Translator":
        """Returns a translator with the run's tokenizers and search."""
        from keras_transformer.translator import Translator

        # A source longer than the training text translates better whole than cut.
        longest = 2 * self._values["training"]["max_length"]
        longest = max(longest, self._pretrained_search()[1])
        return Translator(model, *self.tokenizers(), longest, self.search())

    def remove_unfinished(self) -> None:
        """Removes what killed processes were writing."""
        for folder in (self.folder, self.translator_path, self.pretrained_path):
            remove_unfinished(folder)


def with_beam(search: Search, beam_width: int, exponent: float | None = None) -> Search:
    """Returns a search of another beam width with the limits and ends of `search`.

    A `beam_width` of 1 is greedy search. An `exponent` replaces the length penalty's,
    but not its kind.
    """
    kept = {x: getattr(search, x) for x in ("processors", "end_ids")}
    if beam_width == 1:
        return GreedySearch(**kept)
    penalty = getattr(search, "length_penalty", 0.6)
    if exponent is not None:
        kind = type(penalty) if isinstance(penalty, LengthPenalty) else float
        penalty = kind(exponent)
    return BeamSearch(beam_width, penalty, **kept)
