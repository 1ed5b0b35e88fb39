"""A recipe: the settings of a training run, as typed models that are read from YAML."""

import difflib
import math
import operator
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from keras_transformer.storage import names_in
from keras_transformer.tables import first_row, table_format
from keras_transformer.text_files import TextFile, expanded, read_lines

SIDES = ("source", "target")
_SHIPPED = Path(__file__).parent / "recipes"
_TEXTS = {"type": "array", "items": {"type": "string"}}
_MAY_CHANGE: dict[str, Any] = {"may_change": True}
_Type = TypeVar("_Type")

# They are None in a recipe that does not name them; see `defaults.settings_for`.
FOLLOWING = (
    "tokenizer.vocabulary_size",
    *(f"model.{name}" for name in ("preset", "dropout")),
    *(f"training.{name}" for name in ("epochs", "passes_per_epoch")),
    *(f"training.{name}" for name in ("tokens_per_batch", "optimizer")),
    "training.learning_rate",
    *(f"training.{name}" for name in ("warmup_steps", "cooldown_epochs")),
)
Changeable = Annotated[_Type, Field(json_schema_extra=_MAY_CHANGE)]
"""A setting that may change when a run is resumed."""
Names = Annotated[
    tuple[str, ...],
    Strict(False),  # of a list, too
    BeforeValidator(lambda x: (x,) if isinstance(x, str) else x),
    WithJsonSchema({"anyOf": [{"type": "string"}, _TEXTS]}),
]
"""One text or several."""
Count = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]  # the seeds of NumPy's generators


class Settings(BaseModel):
    """Base of the sections of a recipe: what is unknown or of another type is refused.

    The JSON schema requires nothing, since a recipe may extend another.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        json_schema_extra=lambda schema: schema.pop("required", None),
    )


def _may_be_one_name(schema: dict[str, Any]) -> None:
    for key in ("required", "type"):
        schema.pop(key, None)


class TextFiles(Settings):
    """Parallel text: each side in one file or several.

    `{source}` and `{target}` in a file name stand for the two languages. A file name in
    the place of both sides is a table with two columns: CSV, TSV, JSON lines (.jsonl)
    or Parquet.
    """

    model_config = ConfigDict(json_schema_extra=_may_be_one_name)
    source: Names
    """Files to translate from, plain or packed by gzip or zstd: a sentence a line, or a
    column of a table. The files of a pattern, such as `train-*.{source}.gz`, are
    sorted."""
    target: Names
    """As many files; line by line, the nth translates the nth of `source`."""
    tokenized: Changeable[Names] = ()
    """`target` as papers compute BLEU on it: lower-cased, split by the Moses
    tokenizer."""
    tag: str = ""
    """Token that is put before each source sentence, such as `<bt>` for
    back-translations, and that the tokenizer keeps whole. To translate as if a sentence
    were of this text, write the tag and a space before it."""

    @model_validator(mode="before")
    @classmethod
    def _both_sides(cls, value):
        if not isinstance(value, str):
            return value
        if table_format(Path(value)) is None:
            raise ValueError(
                "A text must be one .csv, .tsv, .jsonl or .parquet file, or `source` "
                f"and `target`. Received: {value!r}."
            )
        return {"source": value, "target": value}

    @field_validator("tag")
    @classmethod
    def _check_tag(cls, tag):
        if any(map(str.isspace, tag)):
            raise ValueError(f"`tag` must have no spaces. Received: tag={tag!r}.")
        return tag


class Corpus(TextFiles):
    """A text to train on, and how often an epoch reads it."""

    weight: Count = 1
    """How often an epoch holds each pair of this text."""


def _may_be_one(schema: dict[str, Any]) -> None:
    several = {key: schema.pop(key) for key in ("type", "items")}
    schema["anyOf"] = [several["items"], several]


Corpora = Annotated[
    tuple[Corpus, ...],
    Strict(False),
    BeforeValidator(lambda x: x if isinstance(x, (list, tuple)) else [x]),
    Field(min_length=1, json_schema_extra=_may_be_one),
]
"""One text or several."""


class DataSettings(Settings):
    """The text for training, validation and testing."""

    source: str
    """Language to translate from, such as `en`."""
    target: str
    """Language to translate into, such as `de`."""
    train: Corpora
    """Text to train on: `source` and `target`, or the name of a table; or a list of
    several such texts."""
    prepared: Changeable[str | None] = None
    """Folder of the ids that `keras-transformer prepare` wrote of this recipe. Training
    then reads them, and no longer the text. A path is relative to the recipe."""
    validation: TextFiles
    """Text for the validation loss, and to choose settings by."""
    test: Changeable[TextFiles | None] = None
    """Text to evaluate a finished model on."""
    columns: Names = ()
    """Names of the two columns of tables, which the first line of CSV and TSV files
    must hold.
    Default: `en` and `de`, if these are the languages, or `source` and `target`; if the
    first line holds neither, it is text, and the columns are the first two."""
    folder: Changeable[str] = "."
    """Folder that file names are relative to."""
    origin: Changeable[str] = ""
    """Where to get the text, for errors about missing files."""

    def paths(self, split: str, side: str) -> list[TextFile]:
        """Returns the files of a side of a split, such as `"source"` of `"train"`.

        Raises:
            ValueError: If the recipe names none.
        """
        is_source = side == "source"
        texts = self.train if split == "train" else [getattr(self, split)]
        files: list[TextFile] = []
        for text in filter(None, texts):
            of_text, tag = [], text.tag if is_source else ""
            for name in getattr(text, side):
                name = name.replace("{source}", self.source)
                name = name.replace("{target}", self.target)
                found = expanded(name, self.folder) or [Path(self.folder, name)]
                of_text += [self._text_file(x, int(not is_source), tag) for x in found]
            files += of_text * (text.weight if isinstance(text, Corpus) else 1)
        if not files:
            raise ValueError(
                f"`data.{split}.{side}` must name files for this. Add it to the recipe."
            )
        return files

    def _text_file(self, path: Path, side: int, tag: str) -> TextFile:
        """Returns the column of a table that holds a side, or another file as it is.

        What is missing or faulty is found when it is read. `side` is 0 for the source,
        1 for the target.
        """
        if table_format(path) is None:
            return TextFile(path, tag=tag)
        if not path.is_file():
            return TextFile(path, side, tag)
        row = first_row(path, read_lines(path))
        languages = self.source, self.target
        tried = [self.columns] if self.columns else [languages, ("source", "target")]
        found = [both[side] for both in tried if set(both) <= set(row)]
        if not found and (self.columns or table_format(path) in (".jsonl", ".parquet")):
            raise ValueError(
                f"`data.columns` must name columns of {path}, whose first line has "
                f"{row}. Received: columns={list(self.columns)}."
            )
        # Without names, the first two columns are text from the first line on.
        return TextFile(path, found[0] if found else side, tag)

    def check_files(self, split: str) -> tuple[list[TextFile], list[TextFile]]:
        """Returns the source and the target files of a split.

        Raises:
            FileNotFoundError: If one of them is missing.
            ValueError: If the recipe names none.
        """
        sides = {side: self.paths(split, side) for side in SIDES}
        for side, files in sides.items():
            for path in (file.path for file in files):
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
        return sides["source"], sides["target"]


class TokenizerSettings(Settings):
    """How text is split into subwords; see `text.SubwordTokenizer.train`."""

    vocabulary_size: Annotated[int, Field(ge=5)] | None = None
    """Number of subwords, for each language unless shared. It follows from the text:
    some 500 for 300 short pairs, 10,000 for the 29,000 of Multi30k, 32,000 for
    millions, and never more than the text can fill."""
    model_type: Literal["bpe", "unigram"] = "bpe"
    """How subwords are learnt: byte-pair encoding, or a unigram model, which can be
    sampled more freely."""
    shared: bool = True
    """Whether both languages share one vocabulary and embeddings. False for languages
    that have no words or letters in common."""
    split_digits: bool = True
    """Whether every digit is a separate subword, so that numbers are copied digit by
    digit. False keeps frequent numbers, such as years, as one subword."""
    character_coverage: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Fraction of the text's characters that get an id. Use 0.9995 for scripts with
    thousands of characters."""
    byte_fallback: bool = False
    """Whether other characters are bytes rather than unknown, for names and symbols
    that the training text lacks. The bytes take 256 subwords."""
    sampling: Fraction = 0.0
    """Strength of BPE-dropout or subword regularization in training. The draws cannot
    be repeated: a resumed training then sees other subwords than an uninterrupted one.
    """


class ModelSettings(Settings):
    """A preset of `models.Transformer`, and the arguments that override it.

    An argument that is left out or null keeps the preset's value.

    With `pretrained`, other settings of the model and of the tokenizers must agree with
    the translator, or be left out; `dropout` and its like may differ.
    """

    preset: Literal["tiny", "base", "big"] | None = None
    """A published size, see `models.Transformer.from_preset`. It follows from the text:
    `tiny` up to some 200,000 pairs, `base` above."""
    num_layers: Count | None = None
    """Layers of the encoder, and as many of the decoder. Fewer are faster."""
    hidden_dim: Count | None = None
    """Width of the states. Wider models need more text."""
    num_heads: Count | None = None
    """Heads of each attention."""
    intermediate_dim: Count | None = None
    """Inner width of the feed-forward networks."""
    dropout: Fraction | None = None
    """Fraction dropped in training. It follows from the preset: 0.2 for `tiny`, 0.1 for
    `base`, 0.3 for `big`. Raise it if the validation loss rises while the training loss
    falls."""
    normalize_first: bool = True
    """Whether sublayers normalize their inputs, which trains at higher learning rates.
    False for their outputs, as in the paper."""
    activation: str | None = None
    """Inner activation of the feed-forward networks."""
    positions: Literal["sinusoidal", "rotary", "linear_bias"] | None = None
    """How positions are told apart. `rotary` works at up to twice the length of the
    training text, `linear_bias` at four times."""
    attention_dropout: Fraction | None = None
    """Fraction of the attention scores dropped in training."""
    activation_dropout: Fraction | None = None
    """Fraction of the inner activations dropped in training."""
    seed: Seed | None = None
    """Seed of dropout. Default: it depends on `training.seed`."""
    pretrained: str | None = None
    """A translator to continue from, with its weights, tokenizers and search: a run, or
    what `Translator.from_preset` reads. A path is relative to the recipe."""
    frozen: Names = ()
    """Layers of the pretrained model that are not trained, such as `encoder` or
    `decoder/block_0`."""
    lora_rank: Count | None = None
    """Rank of low-rank adaptations of the pretrained model, which are then all that is
    trained; see `Transformer.enable_lora`."""

    def overrides(self) -> dict[str, Any]:
        """Returns the arguments that override the preset."""
        others = {"preset", "pretrained", "frozen", "lora_rank"}
        return self.model_dump(exclude=others, exclude_none=True)


class TrainingSettings(Settings):
    """How the model is trained."""

    epochs: Changeable[Count | None] = None
    """Number of epochs, each of which ends with a validation and a checkpoint. It
    follows from the text: some 15, with as many steps as the text needs, from 800 for
    300 pairs and 9,000 for the 29,000 of Multi30k to 100,000 for millions. Raise it if
    the validation loss still falls at the end."""
    steps: Changeable[Count | None] = None
    """Number of steps of the whole training, in the place of `epochs`; a multiple of
    `validate_every`."""
    validate_every: Count | None = None
    """Steps of an epoch, for a text so large that its validations and checkpoints would
    be rare. Default: an epoch reads the training text, as often as `passes_per_epoch`
    says."""
    passes_per_epoch: Count | None = None
    """Times that an epoch reads the training text. Default: 1 if `epochs` is named;
    else it follows from the text, since an epoch of a small text would be short."""
    tokens_per_batch: Count | None = None
    """Tokens of a batch on each side, padding included. It follows from the text: from
    1,024 up to 20,000 pairs to 16,384 for millions. Lower it if memory is too small."""
    batches_per_update: Count = 1
    """Batches whose mean gradient makes one update of the weights, with `adam`: 16 of
    25,000 tokens train nearly as one of 400,000, in the memory of one. Other settings
    count batches as steps."""
    max_length: Annotated[int, Field(ge=2)] = 64
    """Maximum subwords with the end token; longer pairs are left out. Raise it for long
    sentences or documents."""
    learning_rate: Annotated[float, Field(gt=0)] | None = None
    """Peak of the learning rate, reached after `warmup_steps`. It follows from the
    optimizer and the width of the model: 6e-3 for `tiny` with `muon` and 4e-3 with
    `adam`, 1e-3 for `base`, 5e-4 for `big`; for a pretrained model 5e-5, or 1e-3 with
    `lora_rank`. Lower it if the loss jumps."""
    warmup_steps: Count | None = None
    """Steps of linear warm-up; then the rate falls as 1 / sqrt(step). It follows from
    the length of the training: an eighth of its steps, at most 4,000."""
    cooldown_epochs: Changeable[Annotated[int, Field(ge=0)] | None] = None
    """Last epochs, over which the learning rate is scaled down to 0. It follows from
    `epochs`: a third of them."""
    optimizer: Literal["adam", "muon"] | None = None
    """`muon` is `keras.optimizers.Muon` for matrices, and Adam at half the learning
    rate for embeddings, biases and normalization. It follows from the preset: `muon`
    for `tiny`, which learns more from little text; `adam`, the paper's, for others, for
    a pretrained model, and where `batches_per_update` is not 1."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """What a step subtracts of each weight, as a multiple of the learning rate; with
    `muon` only of matrices."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Probability that each target spreads over the vocabulary; 0 for none."""
    seed: Seed = 1
    """Seed of the weights, dropout and the order of the sentences."""
    jit_compile: Changeable[bool | None] = None
    """Whether XLA compiles the training step, once for every length of sentences, if
    there is one device. Default: if the device is a GPU, and on JAX."""
    steps_per_execution: Changeable[Count] = 1
    """Steps that TensorFlow takes at a time, if there is one device. More save time
    where a step is short, as on a fast GPU."""
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    """Dtype policy of the model. `mixed_bfloat16` is faster on GPUs and on CPUs with
    instructions for it; `mixed_float16` trains on one device only."""
    recompute: Changeable[bool] = False
    """Whether the gradient computes the activations of each block again, rather than to
    keep them: a step takes longer, and less memory."""
    strategy: Changeable[
        Literal["auto", "default", "mirrored", "multi_worker", "slurm"]
    ] = "auto"
    """Devices to train on; see `training.pick_strategy`. On JAX, `auto` is all."""
    model_devices: Changeable[Count] = 1
    """On JAX, devices over which a model is split that one of them cannot hold; they
    must divide its widths and vocabulary. Batches are split over the other devices."""
    keep: Changeable[Count] = 10
    """Number of last checkpoints to keep, beside the best one."""
    checkpoint_every: Changeable[Count | None] = None
    """Steps from one checkpoint to the next within an epoch, from which a training that
    is killed resumes; null for none."""
    checkpoint_minutes: Changeable[Annotated[float, Field(gt=0)] | None] = None
    """Minutes from one to the next."""
    best: Changeable[
        Literal[
            "val_loss", "val_token_accuracy", "val_perplexity", "val_bleu", "val_chrf"
        ]
    ] = "val_loss"
    """What the best checkpoint is chosen by: a metric of the validation text, as in
    log.csv; `val_bleu` and `val_chrf` need `bleu_every`."""
    early_stopping: Changeable[Count | None] = None
    """Epochs without a lower validation loss after which training stops, without its
    `cooldown_epochs`; null for never."""
    bleu_every: Changeable[Count | None] = None
    """Epochs from one validation BLEU and chrF to the next; null for never."""
    bleu_sentences: Changeable[Count] = 500
    """Sentences translated for them, from the start of the text."""

    @property
    def num_epochs(self) -> int | None:
        """The number of epochs, also where the recipe names `steps`."""
        if self.steps and self.validate_every:
            return self.steps // self.validate_every
        return self.epochs


class DecodingSettings(Settings):
    """How the trained model translates."""

    beam_width: Changeable[Count | None] = None
    """Hypotheses that beam search keeps; 1 is greedy search, which is faster. Default:
    4, or that of the pretrained translator."""
    length_penalty: Changeable[Annotated[float, Field(ge=0)] | None] = None
    """Exponent of the length penalty; larger favours longer translations. Default: 0.6,
    or that of the pretrained translator."""
    average: Changeable[Count] = 5
    """Number of last checkpoints whose weights are averaged."""


def _add_extends(schema: dict[str, Any]) -> None:
    del schema["required"]
    schema["properties"]["extends"] = {
        "type": "string",
        "description": "Another recipe, a file beside this one or one that comes with "
        "the package, whose settings hold where this one has none.",
    }


class Recipe(Settings):
    """All settings of a training run.

    Args:
        data: `DataSettings`: the files, and the languages that their names stand for.
        tokenizer: `TokenizerSettings`: how subwords are learnt.
        model: `ModelSettings`: a preset, and what overrides it.
        training: `TrainingSettings`: how the model is trained.
        decoding: `DecodingSettings`: how the trained model translates.

    Example:
        >>> recipe = Recipe.load("multi30k", {"data.target": "fr"})
        >>> recipe.data.paths("train", "target")[0].path.name
        'train.fr.gz'
        >>> sorted(Recipe.model_json_schema()["properties"])  # for editors
        ['data', 'decoding', 'extends', 'model', 'tokenizer', 'training']
    """

    model_config = ConfigDict(json_schema_extra=_add_extends)
    data: DataSettings
    """The files, and the languages that their names stand for."""
    tokenizer: TokenizerSettings = TokenizerSettings()
    """How subwords are learnt."""
    model: ModelSettings = ModelSettings()
    """A preset, and what overrides it. What is left out has the preset's value."""
    training: TrainingSettings = TrainingSettings()
    """How the model is trained."""
    decoding: DecodingSettings = DecodingSettings()
    """How the trained model translates."""

    @model_validator(mode="after")
    def _check_together(self):
        model, training = self.model, self.training
        if len(self.data.columns) not in (0, 2):
            raise ValueError(
                "`data.columns` must name two columns. "
                f"Received: columns={list(self.data.columns)}."
            )
        if (model.frozen or model.lora_rank) and not model.pretrained:
            raise ValueError(
                "`model.frozen` and `model.lora_rank` must be left out without "
                "`model.pretrained`: weights that are not trained would stay random. "
                f"Received: frozen={list(model.frozen)}, lora_rank={model.lora_rank}."
            )
        if self.data.prepared and self.tokenizer.sampling:
            raise ValueError(
                "`tokenizer.sampling` must be 0 with `data.prepared`, whose text is "
                f"tokenized once. Received: sampling={self.tokenizer.sampling}."
            )
        tokens = training.tokens_per_batch
        if tokens is not None and tokens < training.max_length:
            raise ValueError(
                "`training.tokens_per_batch` must be at least `training.max_length`. "
                f"Received: tokens_per_batch={training.tokens_per_batch}, "
                f"max_length={training.max_length}."
            )
        if training.optimizer == "muon" and training.batches_per_update > 1:
            raise ValueError(
                "`training.batches_per_update` must be 1 with `muon`, or "
                "`training.optimizer` be adam. "
                f"Received: batches_per_update={training.batches_per_update}."
            )
        if training.steps and (
            training.epochs or training.steps % (training.validate_every or math.inf)
        ):
            raise ValueError(
                "`training.steps` must be a multiple of `training.validate_every`, and "
                f"`training.epochs` be left out. Received: steps={training.steps}, "
                f"validate_every={training.validate_every}, epochs={training.epochs}."
            )
        every, epochs = training.bleu_every, training.num_epochs
        is_measured = every is not None and every <= (epochs or every)
        if training.best in ("val_bleu", "val_chrf") and not is_measured:
            raise ValueError(
                "`training.best` must be measured: set `training.bleu_every` to at "
                f"most `training.epochs`. Received: best={training.best}, "
                f"bleu_every={every}, epochs={epochs}."
            )
        return self

    @classmethod
    def load(
        cls, path: str | os.PathLike, overrides: dict[str, Any] | None = None
    ) -> "Recipe":
        """Reads a recipe.

        A file may begin with `extends: NAME`, another file beside it or a recipe that
        comes with the package, and then holds only what it sets differently.

        Args:
            path: A YAML file, or the name of a recipe that comes with the package.
            overrides: Values that replace those of the file, by the dotted names of
                the settings, such as `"training.epochs"`.

        Raises:
            FileNotFoundError: If there is no such recipe.
            ValueError: If the file is not valid YAML, or a setting is unknown, missing,
                of the wrong type or out of bounds, or settings contradict each other.
                The message names the file and the setting.
        """
        path = _find(path)
        values = _read_extended(path)
        values.pop("versions", None)  # only in the settings.yaml of a run
        for name, value in (overrides or {}).items():
            *sections, last = name.split(".")
            section = values
            for key in sections:
                inner = {} if section.get(key) is None else section[key]
                if not isinstance(inner, dict):
                    raise ValueError(f"{path}: there is no setting `{name}`.")
                section[key] = dict(inner)  # YAML's aliases share one dictionary
                section = section[key]
            section[last] = value
        _resolve_paths(values, Path())
        try:
            return cls(**values)
        except ValidationError as error:
            raise ValueError(f"{path}: {_first_fault(error)}") from None

    def get(self, name: str) -> Any:
        """Returns the setting of a dotted name, such as `"training.epochs"`."""
        return operator.attrgetter(name)(self)

    def symbols(self) -> list[str]:
        """Returns the tags of all texts, which the tokenizers keep whole."""
        texts = *self.data.train, self.data.validation, self.data.test
        return sorted({text.tag for text in texts if text and text.tag})

    def completed(self, settings: dict[str, Any]) -> "Recipe":
        """Returns a recipe with more settings, by their dotted names.

        Raises:
            ValueError: If settings contradict each other.
        """
        values = self.model_dump(exclude_unset=True)
        for name, value in settings.items():
            section, last = name.split(".")
            values.setdefault(section, {})[last] = value
        try:
            return type(self)(**values)
        except ValidationError as error:
            raise ValueError(_first_fault(error)) from None

    def differences(self, other: "Recipe") -> list[str]:
        """Returns the differences that keep `other` from resuming a run of this recipe.

        Each is a line such as "training.seed was 1 and is 2". What follows from the
        text, and `other` does not name, is no difference.
        """
        before, after = dict(_fixed(self)), dict(_fixed(other))
        return [
            f"{name} was {before.get(name)} and is {after.get(name)}"
            for name in before | after
            if before.get(name) != after.get(name)
            and not (name in FOLLOWING and after[name] is None)
        ]


def shipped_recipes() -> list[str]:
    """Returns the names of the recipes that come with the package."""
    return sorted(path.stem for path in _SHIPPED.glob("*.yaml"))


def read_yaml(path: Path) -> dict[str, Any]:
    """Returns the keys and values of a YAML file.

    Raises:
        ValueError: If it is not UTF-8 or not valid YAML 1.2, holds no keys, or has a
            key twice.
    """
    try:
        values = YAML(typ="safe", pure=True).load(path.read_text("utf-8"))
    except UnicodeDecodeError:
        message = f"{path} is not UTF-8. Name a YAML file, or convert this one."
        raise ValueError(message) from None
    except (YAMLError, ValueError) as error:  # the latter: no such date
        place, problem, remedy = str(path), str(error), ""
        if isinstance(error, MarkedYAMLError) and error.problem_mark:
            place = f"{path}:{error.problem_mark.line + 1}"
            problem = error.problem
        if "got '{'" in problem:
            remedy = " Put names with braces in quotes."
        raise ValueError(f"{place} is not valid YAML: {problem}.{remedy}") from None
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise ValueError(f"{path} must hold settings, such as `training: ...`.")
    return values


def _find(name, folder=Path()):
    """The file of a name that is relative to a folder, or of a shipped recipe."""
    path = folder / name
    if path.is_file():
        return path
    if str(name) in shipped_recipes():
        return _SHIPPED / f"{name}.yaml"
    known = [*shipped_recipes(), *map(str, path.parent.glob("*.y*ml"))]
    close = difflib.get_close_matches(str(path), known, n=1)
    guess = f"Did you mean {close[0]}? " if close else ""
    raise FileNotFoundError(
        f"{path} is not a recipe. {guess}Name a YAML file, or one of the recipes that "
        f"come with the package: {', '.join(shipped_recipes())}."
    )


def _read_extended(path, extending=()):
    """Returns the values of a file, and of what it extends where it has none."""
    # A section whose settings are all comments is null in YAML.
    read = read_yaml(path)
    values = {name: value for name, value in read.items() if value is not None}
    _resolve_paths(values, path.parent)
    if "extends" not in values:
        return values
    name = values.pop("extends")
    if not isinstance(name, str):
        raise ValueError(
            f"{path}: `extends` must be one file or recipe. Received: {name!r}."
        )
    extending = (*extending, path.resolve())
    try:
        base = _find(name, path.parent)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path}: `extends`: {error}") from None
    if base.resolve() in extending:
        raise ValueError(f"{path}: `extends` must not lead back to {base}.")
    return _merged(_read_extended(base, extending), values)


def _resolve_paths(values, folder):
    """Makes the paths of a recipe that are relative to a folder absolute."""
    for name, key in (("model", "pretrained"), ("data", "prepared")):
        section = values.get(name)
        where = section.get(key) if isinstance(section, dict) else None
        if isinstance(where, str) and "://" not in where:
            values[name] = {**section, key: str((folder / where).resolve())}


def _merged(values, overrides):
    """Returns nested dictionaries with the values of others put in their place."""
    merged = dict(values)
    for key, value in overrides.items():
        if isinstance(value, dict) and isinstance(merged.get(key), dict):
            value = _merged(merged[key], value)
        merged[key] = value
    return merged


def _first_fault(error: ValidationError) -> str:
    """Says in one line what is wrong with the first wrong setting."""
    faults = error.errors(include_url=False)
    fault = min(faults, key=lambda fault: fault["type"] != "extra_forbidden")
    name = ".".join(key for key in fault["loc"] if isinstance(key, str))
    kind = fault["type"]
    if kind == "value_error":
        return str(fault["ctx"]["error"])
    if kind == "missing":
        return f"`{name}` is missing. Add it."
    if kind == "extra_forbidden":
        *section, key = name.split(".")
        known = list(_names(Recipe))
        beside = [x for x in known if x.split(".")[:-1] == section]
        close = difflib.get_close_matches(name, beside, n=1) or sorted(
            (x for x in known if x.split(".")[-1] == key), key=len
        )
        if close:
            return f"there is no setting `{name}`. Did you mean `{close[0]}`?"
        names = ", ".join(f"`{x}`" for x in beside)
        return f"there is no setting `{name}`. There are {names}."
    expected = {
        "model_type": "must be a section of settings",
        "tuple_type": "must be text or a list of texts",
    }.get(kind, fault["msg"].replace("Input should", "must"))
    return f"`{name}` {expected}. Received: {fault['input']!r}."


def _names(section: type[Settings], prefix="") -> Iterator[str]:
    """Yields the dotted names of all settings and their sections."""
    for name, field in section.model_fields.items():
        yield f"{prefix}{name}"
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, Settings):
                yield from _names(kind, f"{prefix}{name}.")


def _fixed(section: Settings, prefix="") -> Iterator[tuple[str, Any]]:
    """Yields names and values of the settings that a resumed run must keep."""
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if field.json_schema_extra == _MAY_CHANGE:
            continue
        if isinstance(value, Settings):
            yield from _fixed(value, f"{prefix}{name}.")
        elif name == "train":
            for number, text in enumerate(value):
                place = f"[{number}]" if len(value) > 1 else ""
                yield from _fixed(text, f"{prefix}{name}{place}.")
        else:
            yield f"{prefix}{name}", value
