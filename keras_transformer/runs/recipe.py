"""Settings of a training run: a YAML file, checked key by key."""

import dataclasses
import difflib
import os
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

SIDES = ("source", "target")

_SHIPPED = Path(__file__).parent / "recipes"
_KINDS = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "text",
    tuple: "text or a list of texts",
}


def _setting(default, least=None, fixed=True):
    """A setting with a default.

    Args:
        default: Its value where a recipe says nothing.
        least: The smallest value that it may have.
        fixed: Whether a run that is resumed must keep it.
    """
    return field(default=default, metadata={"least": least, "fixed": fixed})


@dataclass(frozen=True, kw_only=True)
class TextFiles:
    """The two sides of a text, each in one file or in several.

    `{source}` and `{target}` in a name stand for the two languages.

    Attributes:
        source: Files to translate from.
        target: As many; the nth translates the nth, line by line.
        tokenized: `target` as papers score it: lower-cased, split by the Moses
            tokenizer.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    tokenized: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Which text to learn from, to choose by and to score on.

    Attributes:
        source: Language to translate from, such as `"en"`.
        target: Language to translate into, such as `"de"`.
        folder: Folder that the names of files start from.
        train: Text to learn from.
        validation: Text to choose settings by.
        test: Text to score a finished model on.
    """

    source: str
    target: str
    train: TextFiles
    validation: TextFiles
    test: TextFiles | None = field(default=None, metadata={"fixed": False})
    folder: str = field(default=".", metadata={"fixed": False})

    def paths(self, split: str, side: str) -> list[Path]:
        """Returns the files of one side of a split.

        Args:
            split: `"train"`, `"validation"` or `"test"`.
            side: `"source"`, `"target"` or `"tokenized"`.

        Raises:
            ValueError: If the recipe names none.
        """
        names = getattr(getattr(self, split), side, ())
        if not names:
            raise ValueError(
                f"`data.{split}.{side}` must name files for this. Add it to the recipe."
            )
        languages = {"{source}": self.source, "{target}": self.target}
        for placeholder, language in languages.items():
            names = [name.replace(placeholder, language) for name in names]
        return [Path(self.folder, name) for name in names]


@dataclass(frozen=True, kw_only=True)
class TokenizerSettings:
    """How text is split into subwords; see `text.SubwordTokenizer.train`.

    Attributes:
        vocabulary_size: Number of subwords, of each language unless shared.
        model_type: `"bpe"` or `"unigram"`.
        shared: Whether both languages share one vocabulary, and its embeddings.
        split_digits: Whether every digit is a subword of its own.
        character_coverage: Share of the text's characters that get an id.
        sampling: Strength of BPE-dropout or subword regularization while training.
    """

    vocabulary_size: int = _setting(8000, least=5)
    model_type: str = "bpe"
    shared: bool = True
    split_digits: bool = False
    character_coverage: float = _setting(1.0, least=0)
    sampling: float = _setting(0.0, least=0)


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """A preset of `models.Transformer`, and what to change of it.

    What is left out or null is as the preset has it.
    """

    preset: str = "base"
    num_layers: int | None = _setting(None, least=1)
    hidden_dim: int | None = _setting(None, least=1)
    num_heads: int | None = _setting(None, least=1)
    intermediate_dim: int | None = _setting(None, least=1)
    dropout: float | None = _setting(None, least=0)
    normalize_first: bool | None = None
    activation: str | None = None

    def overrides(self) -> dict[str, Any]:
        """Returns the arguments of the model that differ from the preset's."""
        return {
            name: value
            for name, value in dataclasses.asdict(self).items()
            if name != "preset" and value is not None
        }


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """How the model learns.

    Attributes:
        epochs: Passes over the training text.
        tokens_per_batch: Positions of a batch, padding included, on each side.
        max_length: Subwords of a sentence and its end symbol; longer pairs are left
            out.
        learning_rate: The highest rate, reached after `warmup_steps`.
        warmup_steps: Steps until the rate falls as 1 / sqrt(step).
        cooldown_epochs: Epochs at the end in which it falls to zero besides.
        label_smoothing: Share of the aim spread over the vocabulary.
        seed: Seed of weights, dropout and the order of the sentences.
        jit_compile: Whether XLA compiles the training step, if there is one device.
        precision: `"float32"`, `"mixed_bfloat16"` or `"mixed_float16"`.
        strategy: Where to train; see `training.pick_strategy`.
        keep: Number of checkpoints kept, the last ones.
        early_stopping: Epochs without a better validation loss after which training
            ends; null for never.
        bleu_every: Epochs between translations of the validation text; null for
            never.
        bleu_sentences: Sentences translated then, the first of the text.
    """

    epochs: int = _setting(30, least=1, fixed=False)
    tokens_per_batch: int = _setting(4096, least=1)
    max_length: int = _setting(64, least=2)
    learning_rate: float = _setting(1e-3, least=0)
    warmup_steps: int = _setting(4000, least=1)
    cooldown_epochs: int = _setting(0, least=0, fixed=False)
    label_smoothing: float = _setting(0.1, least=0)
    seed: int = _setting(1, least=0)
    jit_compile: bool = _setting(True, fixed=False)
    precision: str = "float32"
    strategy: str = _setting("auto", fixed=False)
    keep: int = _setting(10, least=1, fixed=False)
    early_stopping: int | None = _setting(None, least=1, fixed=False)
    bleu_every: int | None = _setting(None, least=1, fixed=False)
    bleu_sentences: int = _setting(500, least=1, fixed=False)


@dataclass(frozen=True, kw_only=True)
class DecodingSettings:
    """How the trained model translates.

    Attributes:
        beam_width: Hypotheses kept by beam search; 1 searches greedily.
        length_penalty: How much longer translations are favoured.
        average: Checkpoints whose mean weights make the translator, the last ones.
    """

    beam_width: int = _setting(4, least=1, fixed=False)
    length_penalty: float = _setting(0.6, least=0, fixed=False)
    average: int = _setting(5, least=1, fixed=False)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All settings of a training run.

    Example:
        >>> recipe = Recipe.load("multi30k", {"data.target": "fr"})
        >>> recipe.data.paths("train", "target")[0].name
        'train.fr.gz'
    """

    data: DataSettings
    tokenizer: TokenizerSettings = TokenizerSettings()
    model: ModelSettings = ModelSettings()
    training: TrainingSettings = TrainingSettings()
    decoding: DecodingSettings = DecodingSettings()

    @classmethod
    def load(
        cls, path: str | os.PathLike, overrides: dict[str, Any] | None = None
    ) -> "Recipe":
        """Reads a recipe.

        Args:
            path: A YAML file, or the name of a recipe that comes with the package.
            overrides: Settings by their dotted names, such as `"training.epochs"`.
                They take the place of those in the file.

        Raises:
            FileNotFoundError: If there is no such recipe.
            ValueError: If it is no YAML, or a setting is unknown, missing, or of
                the wrong kind. The message names the file and the setting.
        """
        path = _find(path)
        values = _read_yaml(path)
        values.pop("versions", None)  # what a run folder's settings were made with
        for name, value in (overrides or {}).items():
            *sections, last = name.split(".")
            section = values
            for key in sections:
                section = section.setdefault(key, {}) if section is not None else None
                if not isinstance(section, dict):
                    raise ValueError(f"{path}: there is no setting `{name}`.")
            section[last] = value
        return _parse(cls, values, "", path)

    def to_dict(self) -> dict[str, Any]:
        """Returns the settings as nested dictionaries of plain values."""
        return _plain(dataclasses.asdict(self))

    def differences(self, other: "Recipe") -> list[str]:
        """Returns what keeps a run of one recipe from going on with the other.

        Each is a line such as "training.seed was 1 and is 2".
        """
        mine, others = dict(_fixed(self, "")), dict(_fixed(other, ""))
        return [
            f"{name} was {mine[name]} and is {others[name]}"
            for name in mine
            if mine[name] != others[name]
        ]


def shipped_recipes() -> list[str]:
    """Returns the names of the recipes that come with the package."""
    return sorted(path.stem for path in _SHIPPED.glob("*.yaml"))


def _find(path):
    path = Path(path)
    if path.is_file():
        return path
    if str(path) in shipped_recipes():
        return _SHIPPED / f"{path}.yaml"
    raise FileNotFoundError(
        f"{path} is no recipe. Name a YAML file, or one of those that come with the "
        f"package: {', '.join(shipped_recipes())}."
    )


def _read_yaml(path):
    try:
        values = yaml.safe_load(path.read_text("utf-8"))
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8. Convert the file.") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}" if mark else path
        problem = getattr(error, "problem", None) or "it cannot be read"
        raise ValueError(f"{place} is no YAML: {problem}.") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold settings, such as `training: ...`.")
    return values


def _parse(cls, values, name, path):
    """Makes a dataclass of a dictionary, checking every value."""
    if not isinstance(values, dict):
        raise ValueError(
            f"{path}: `{name}` must be a section of settings. "
            f"Received: {name}={values!r}."
        )
    prefix = f"{name}." if name else ""
    fields = {setting.name: setting for setting in dataclasses.fields(cls)}
    for key in values:
        if key not in fields:
            close = difflib.get_close_matches(str(key), fields, n=1)
            remedy = (
                f"Did you mean `{prefix}{close[0]}`?"
                if close
                else (
                    f"There are {', '.join(f'`{prefix}{known}`' for known in fields)}."
                )
            )
            raise ValueError(f"{path}: there is no setting `{prefix}{key}`. {remedy}")
    hints = typing.get_type_hints(cls)
    arguments = {}
    for key, setting in fields.items():
        if key in values:
            arguments[key] = _value(
                hints[key], values[key], f"{prefix}{key}", path, setting.metadata
            )
        elif setting.default is dataclasses.MISSING:
            raise ValueError(f"{path}: `{prefix}{key}` is missing. Add it.")
    return cls(**arguments)


def _value(hint, value, name, path, metadata):
    """Returns a value as the kind that a setting takes, or raises."""
    if typing.get_origin(hint) is types.UnionType:
        if value is None:
            return None
        hint, _ = typing.get_args(hint)  # the other is None
    if dataclasses.is_dataclass(hint):
        return _parse(hint, value, name, path)
    kind = typing.get_origin(hint) or hint
    least = metadata.get("least")
    if kind is tuple and isinstance(value, str):
        value = (value,)
    elif kind is tuple and isinstance(value, list):
        value = tuple(value)
    elif kind is float and isinstance(value, (int, str)):
        value = _number(value)
    fits = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    if kind is tuple and fits:
        fits = all(isinstance(item, str) for item in value)
    if not fits or (least is not None and not value >= least):
        bound = "" if least is None else f", at least {least}"
        raise ValueError(
            f"{path}: `{name}` must be {_KINDS[kind]}{bound}. Received: {value!r}."
        )
    return value


def _number(value):
    """Reads 3e-3, which YAML 1.1 takes for text, as well as 0.003."""
    if isinstance(value, bool):
        return value
    try:
        return float(value)
    except ValueError:
        return value


def _plain(value):
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return value[0] if len(value) == 1 else list(value)
    return value


def _fixed(settings, prefix):
    """Yields the names and values that a resumed run must keep."""
    for setting in dataclasses.fields(settings):
        value = getattr(settings, setting.name)
        if dataclasses.is_dataclass(value):
            yield from _fixed(value, f"{prefix}{setting.name}.")
        elif setting.metadata.get("fixed", True):
            yield f"{prefix}{setting.name}", _plain(value)
