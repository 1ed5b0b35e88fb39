"""Every setting of a run: its type, default and meaning, and how it is chosen."""

import dataclasses
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

from keras_transformer.storage import names_in
from keras_transformer.tables import first_row, is_header, table_format
from keras_transformer.text_files import TextFile, expanded, read_lines

if TYPE_CHECKING:
    from keras_transformer.runs.recipe import Recipe

SIDES = ("source", "target")
_TEXTS = {"type": "array", "items": {"type": "string"}}
# The rules were chosen on texts of 300 to 29,000 pairs; `benchmarks/QUALITY.md`
# compares them with settings that were chosen by hand. Texts with more words than this,
# on both sides together, get the preset `base`.
_WORDS_OF_BASE = 5_000_000
_EPOCHS = 15  # enough for a curve, for a cooldown, and to average checkpoints
_Type = TypeVar("_Type")
MAY_CHANGE = "may change"
Changeable = Annotated[_Type, MAY_CHANGE]
"""A setting that may change when a run is resumed."""


class TextSize(NamedTuple):
    """The size of a parallel text."""

    pairs: int
    words: int  # on both sides together
    characters: int  # how many different ones


class Follows(NamedTuple):
    """The metadata of a setting that follows from others where a recipe is silent.

    The rule returns it from a `Recipe` in which all earlier settings have their values,
    and from the `TextSize`, unless it follows from the preset alone.
    """

    rule: Callable[["Recipe", TextSize | None], Any]
    of_preset: bool = False


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


class Section(BaseModel):
    """Base of the sections of a recipe, which refuse unknown keys and other types."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )


class TextFiles(Section):
    """Parallel text: each side in one file or several.

    `{source}` and `{target}` in a file name stand for the two languages. A file name in
    the place of both sides is a table with two columns: CSV, TSV, JSON lines (.jsonl)
    or Parquet.
    """

    source: Names
    """Files to translate from, plain or compressed with gzip or zstd: one sentence per
    line, or a column of a table. Files that match a pattern, such as
    `train-*.{source}.gz`, are sorted."""
    target: Names
    """The same number of files, matching those of `source` line by line."""
    tokenized: Changeable[Names] = ()
    """`target` in the form on which papers compute BLEU: lower-cased, split by the
    Moses tokenizer."""
    tag: str = ""
    """Token to put before each source sentence, such as `<bt>` for back-translations,
    which the tokenizer keeps whole. To translate a sentence as if it were from this
    text, write the tag and a space before it."""

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
    """How often an epoch repeats each pair of this text."""


Corpora = Annotated[
    tuple[Corpus, ...],
    Strict(False),
    BeforeValidator(lambda x: x if isinstance(x, (list, tuple)) else [x]),
    Field(min_length=1),
]
"""One text or several."""


class DataSettings(Section):
    """The text for training, validation and testing."""

    source: str
    """Language to translate from, such as `en`."""
    target: str
    """Language to translate into, such as `de`."""
    train: Corpora
    """Text to train on: `source` and `target`, or the name of a table; or a list of
    several such texts."""
    prepared: Changeable[str | None] = None
    """Folder of the ids that `keras-transformer prepare` wrote for this recipe.
    Training then reads them instead of the text. A path is relative to the recipe."""
    validation: TextFiles | None = None
    """Text for the validation loss, and for choosing settings. Default: 5% of the pairs
    of the training text, at most 2,000, which are then left out of training."""
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
        """Returns the files of a side of a split, such as `"source"` of `"train"`."""
        index = int(side != "source")
        texts = self.train if split == "train" else [getattr(self, split)]
        files: list[TextFile] = []
        for text in filter(None, texts):
            of_text, tag = [], "" if index else text.tag
            for name in getattr(text, side):
                name = name.replace("{source}", self.source)
                name = name.replace("{target}", self.target)
                found = expanded(name, self.folder) or [Path(self.folder, name)]
                of_text += [self._text_file(path, index, tag) for path in found]
            files += of_text * getattr(text, "weight", 1)
        if not files:
            raise ValueError(
                f"`data.{split}.{side}` must name files. Add them to a recipe and pass "
                "it; `evaluate` also takes --split, and --source-file and --reference."
            )
        return files

    def _text_file(self, path: Path, side: int, tag: str) -> TextFile:
        """Returns the column of a table that holds a side, or another file as it is.

        `side` is 0 for the source, 1 for the target. Missing files are found later.
        """
        if table_format(path) is None:
            return TextFile(path, tag=tag)
        if not path.is_file():
            return TextFile(path, side, tag)
        row = first_row(path, read_lines(path))
        languages = self.source, self.target
        tried = [self.columns] if self.columns else [languages, ("source", "target")]
        found = [both[side] for both in tried if set(both) <= set(row)]
        has_names = table_format(path) in (".jsonl", ".parquet") or is_header(row)
        if not found and (self.columns or has_names):
            raise ValueError(
                f"`data.columns` must name columns of {path}, whose first line has "
                f"{row}. Received: columns={list(self.columns)}. Set them, such as "
                f"--set 'data.columns=[{', '.join(row[:2])}]'; if that line is text, "
                "put a line with the names source and target above it."
            )
        # Without names, the first two columns are text from the first line on.
        return TextFile(path, found[0] if found else side, tag)

    def check_files(
        self, split: str, min_hash: int = 0
    ) -> tuple[list[TextFile], list[TextFile]]:
        """Returns the source and the target files of a split, once they are there.

        `min_hash` is as in `TextFile`.
        """
        sides = self.paths(split, "source"), self.paths(split, "target")
        for side, files in zip(SIDES, sides, strict=True):
            for path in (file.path for file in files if not file.path.exists()):
                there = path.parent if path.parent.is_dir() else Path(self.folder)
                folder = there.absolute()
                found = f"holds {names_in(folder)}" if folder.is_dir() else "is missing"
                message = (
                    f"{path} does not exist, which `data.{split}.{side}` names. "
                    f"{folder} {found}. Set the folder of the text with `data.folder`, "
                    f"which is --data in the shell. {self.origin}"
                )
                raise FileNotFoundError(message.strip())
        sources = [dataclasses.replace(file, min_hash=min_hash) for file in sides[0]]
        return sources, sides[1]


def held_out_files(folder: str | os.PathLike) -> list[TextFile]:
    """Returns the files of the pairs that a run holds out, source and target."""
    return [TextFile(Path(folder, f"validation.{side}")) for side in SIDES]


def _vocabulary_size(recipe, text):
    if recipe.model.pretrained:
        return None  # it brings its own
    words = text.words if recipe.tokenizer.shared else text.words / 2
    least = 1.2 * text.characters + 20 + 256 * recipe.tokenizer.byte_fallback
    return _rounded(min(max(12 * math.sqrt(words), least), max(32_000, least)))


class TokenizerSettings(Section):
    """How text is split into subwords; see `text.SubwordTokenizer.train`."""

    vocabulary_size: Annotated[
        Annotated[int, Field(ge=5)] | None, Follows(_vocabulary_size)
    ] = None
    """Number of subwords, for each language unless shared. Default: depends on the
    text, about 500 for 300 short pairs, 10,000 for the 29,000 of Multi30k, 32,000 for
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
    """Whether all other characters are split into bytes rather than unknown, for names
    and symbols that the training text lacks. The bytes take 256 subwords."""
    sampling: Fraction = 0.0
    """Strength of BPE-dropout or subword regularization in training. The draws cannot
    be repeated: a resumed training then sees other subwords than an uninterrupted one.
    """


def _preset(recipe, text):
    if recipe.model.pretrained:
        return None
    return "base" if text.words > _WORDS_OF_BASE else "tiny"


def _dropout(recipe, text):
    # The preset's 0.3 is for 29,000 sentences; short phrases need less.
    return 0.2 if recipe.model.preset == "tiny" else _of_preset(recipe, "dropout")


def _of_preset(recipe, name):
    from keras_transformer.models.presets import PRESETS  # which needs Keras

    return PRESETS[recipe.model.preset][name] if recipe.model.preset else None


def _size(name):
    return Follows(lambda recipe, text: _of_preset(recipe, name), of_preset=True)


class ModelSettings(Section):
    """A preset of `models.Transformer`, and the arguments that override it.

    An argument that is left out or null keeps the preset's value.

    With `pretrained`, other settings of the model and of the tokenizers must agree with
    the translator, or be left out; `dropout` and the like may differ.
    """

    preset: Annotated[Literal["tiny", "base", "big"] | None, Follows(_preset)] = None
    """A published size, see `models.Transformer.from_preset`. Default: depends on the
    text, `tiny` up to about 200,000 pairs, `base` above."""
    num_layers: Annotated[Count | None, _size("num_layers")] = None
    """Number of layers in the encoder, and in the decoder. Fewer are faster."""
    hidden_dim: Annotated[Count | None, _size("hidden_dim")] = None
    """Width of the states. Wider models need more text."""
    num_heads: Annotated[Count | None, _size("num_heads")] = None
    """Number of heads of each attention."""
    intermediate_dim: Annotated[Count | None, _size("intermediate_dim")] = None
    """Inner width of the feed-forward networks."""
    dropout: Annotated[Fraction | None, Follows(_dropout)] = None
    """Fraction dropped in training. Default: depends on the preset, 0.2 for `tiny`, 0.1
    for `base`, 0.3 for `big`. Raise it if the validation loss rises while the training
    loss falls."""
    normalize_first: bool = True
    """Whether sublayers normalize their inputs, which trains at higher learning rates.
    False for their outputs, as in the paper."""
    activation: str | None = None
    """Inner activation of the feed-forward networks."""
    positions: Literal["sinusoidal", "rotary", "linear_bias"] | None = None
    """How positions are encoded. `rotary` works at up to twice the length of the
    training text, `linear_bias` at four times."""
    attention_dropout: Fraction | None = None
    """Fraction of the attention scores dropped in training."""
    activation_dropout: Fraction | None = None
    """Fraction of the inner activations dropped in training."""
    seed: Seed | None = None
    """Seed of dropout. Default: depends on `training.seed`."""
    pretrained: str | None = None
    """A translator to continue from, with its weights, tokenizers and search: a run, or
    what `Translator.from_preset` reads. A path is relative to the recipe."""
    frozen: Names = ()
    """Layers of the pretrained model that are not trained, such as `encoder` or
    `decoder/block_0`."""
    lora_rank: Count | None = None
    """Rank of low-rank adaptations of the pretrained model; nothing else is then
    trained. See `Transformer.enable_lora`."""

    def arguments(self, **which) -> dict[str, Any]:
        """Returns the arguments of a `Transformer` that are named."""
        others = {"preset", "pretrained", "frozen", "lora_rank"}
        return self.model_dump(exclude=others, exclude_none=True, **which)


def _tokens_per_batch(recipe, text):
    tokens = 256 * round(8 * math.sqrt(text.words / 1e6))
    return max(min(max(tokens, 1024), 16_384), recipe.training.max_length)


def _steps(recipe, text):
    """The steps that the text needs."""
    if recipe.model.pretrained:
        return min(max(math.sqrt(text.words), 60), 10_000)
    return min(max(10 * math.sqrt(text.words), 600), 100_000)


def _steps_of_pass(recipe, text):
    # Estimated tokens on each side: subwords, end tokens and padding.
    tokens = max(0.75 * text.words + text.pairs, 12 * text.pairs)
    return tokens / recipe.training.tokens_per_batch


def _passes_per_epoch(recipe, text):
    training = recipe.training
    if training.epochs or training.validate_every:
        return 1
    passes = _steps(recipe, text) / _steps_of_pass(recipe, text)
    return max(1, round(passes / _EPOCHS))


def _steps_per_epoch(recipe, text):
    passes = recipe.training.passes_per_epoch
    return recipe.training.validate_every or passes * _steps_of_pass(recipe, text)


def _epochs(recipe, text):
    training = recipe.training
    if training.steps:
        return training.steps // training.validate_every
    return max(1, round(_steps(recipe, text) / _steps_per_epoch(recipe, text)))


def _optimizer(recipe, text):
    is_tiny = recipe.model.preset == "tiny" and not recipe.model.pretrained
    return "muon" if is_tiny and recipe.training.batches_per_update == 1 else "adam"


def _learning_rate(recipe, text):
    if recipe.model.pretrained:
        return 5e-5 if recipe.model.lora_rank is None else 1e-3
    peak = 6e-3 if recipe.training.optimizer == "muon" else 4e-3
    return peak * min(1.0, 128 / recipe.model.hidden_dim)


def _warmup_steps(recipe, text):
    steps = recipe.training.epochs * _steps_per_epoch(recipe, text)
    return _rounded(min(max(steps / 8, 1), 4000))


class TrainingSettings(Section):
    """How the model is trained."""

    tokens_per_batch: Annotated[Count | None, Follows(_tokens_per_batch)] = None
    """Tokens per batch on each side, including padding. Default: depends on the text,
    from 1,024 for up to 20,000 pairs to 16,384 for millions. Lower it if memory runs
    out."""
    batches_per_update: Count = 1
    """Number of batches whose mean gradient makes one update, with `adam`: 16 of 25,000
    tokens train almost like one of 400,000, in the memory of one. Other settings count
    each batch as a step."""
    max_length: Annotated[int, Field(ge=2)] = 64
    """Maximum number of subwords, including the end token; longer pairs are left out.
    Raise it for long sentences or documents."""
    passes_per_epoch: Annotated[Count | None, Follows(_passes_per_epoch)] = None
    """How often an epoch reads the training text. Default: 1 if `epochs` is set;
    otherwise depends on the text, since an epoch of a small text would be short."""
    validate_every: Count | None = None
    """Steps per epoch, for a text so large that validations and checkpoints would be
    rare. Default: an epoch reads the training text `passes_per_epoch` times."""
    epochs: Annotated[Changeable[Count | None], Follows(_epochs)] = None
    """Number of epochs; each ends with a validation and a checkpoint. Default: depends
    on the text, about 15, with as many steps as the text needs, from 800 for 300 pairs
    and 9,000 for the 29,000 of Multi30k to 100,000 for millions. Raise it if the
    validation loss still falls at the end."""
    steps: Changeable[Count | None] = None
    """Number of steps of the whole training, instead of `epochs`; a multiple of
    `validate_every`."""
    optimizer: Annotated[Literal["adam", "muon"] | None, Follows(_optimizer)] = None
    """`muon` is `keras.optimizers.Muon` for matrices, and Adam at half the learning
    rate for embeddings, biases and normalization. Default: depends on the preset,
    `muon` for `tiny`, which learns more from little text; `adam`, the paper's, for
    others, for a pretrained model, and where `batches_per_update` is not 1."""
    learning_rate: Annotated[
        Annotated[float, Field(gt=0)] | None, Follows(_learning_rate)
    ] = None
    """Peak of the learning rate, reached after `warmup_steps`. Default: depends on the
    optimizer and the width of the model, 6e-3 for `tiny` with `muon` and 4e-3 with
    `adam`, 1e-3 for `base`, 5e-4 for `big`; for a pretrained model 5e-5, or 1e-3 with
    `lora_rank`. Lower it if the loss jumps."""
    warmup_steps: Annotated[Count | None, Follows(_warmup_steps)] = None
    """Steps of linear warm-up; then the rate falls as 1 / sqrt(step). Default: an
    eighth of the steps of the training, at most 4,000."""
    cooldown_epochs: Annotated[
        Changeable[Annotated[int, Field(ge=0)] | None],
        Follows(lambda recipe, text: recipe.training.epochs // 3),
    ] = None
    """Number of last epochs, over which the learning rate is scaled down to 0. Default:
    a third of `epochs`."""
    global_clipnorm: Annotated[float, Field(gt=0)] | None = None
    """Global norm to which larger gradients are scaled down; null for no limit."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Fraction of each weight that a step subtracts, as a multiple of the learning
    rate; with `muon` only for matrices."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Probability that each target spreads over the vocabulary; 0 for none."""
    seed: Seed = 1
    """Seed of the weights, dropout and the order of the sentences."""
    jit_compile: Changeable[bool | None] = None
    """Whether XLA compiles the training step, once for each padded length, on a single
    device. Default: true on a GPU, and on JAX."""
    steps_per_execution: Changeable[Count] = 1
    """Steps that TensorFlow takes at a time, on a single device. More save time if a
    step is short, as on a fast GPU."""
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    """Dtype policy of the model. `mixed_bfloat16` is faster on GPUs and on CPUs with
    instructions for it; `mixed_float16` trains on one device only."""
    recompute: Changeable[bool] = False
    """Whether to recompute the activations of each block for the gradient instead of
    keeping them: a step takes longer, but less memory."""
    strategy: Changeable[
        Literal["auto", "default", "mirrored", "multi_worker", "slurm"]
    ] = "auto"
    """Devices to train on; see `training.pick_strategy`. On JAX, `auto` means all."""
    model_devices: Changeable[Count] = 1
    """On JAX, number of devices over which to split a model too large for one of them;
    must divide its widths and vocabulary. Batches are split over the other devices."""
    keep: Changeable[Count] = 10
    """Number of last checkpoints to keep, besides the best one."""
    checkpoint_every: Changeable[Count | None] = None
    """Steps between checkpoints within an epoch, from which killed training resumes;
    null for none."""
    checkpoint_minutes: Changeable[Annotated[float, Field(gt=0)] | None] = None
    """Minutes between such checkpoints."""
    best: Changeable[
        Literal[
            "val_loss", "val_token_accuracy", "val_perplexity", "val_bleu", "val_chrf"
        ]
    ] = "val_loss"
    """Metric that decides which checkpoint is best: one of the validation text, as in
    log.csv; `val_bleu` and `val_chrf` need `bleu_every`."""
    early_stopping: Changeable[Count | None] = None
    """Epochs without a lower validation loss after which training stops, without its
    `cooldown_epochs`; null for never. The translator then averages the checkpoints up
    to the epoch with the lowest."""
    bleu_every: Changeable[Count | None] = None
    """Epochs between computations of validation BLEU and chrF; null for never."""
    bleu_sentences: Changeable[Count] = 500
    """Number of sentences to translate for these, from the start of the text."""


def _search_default(value):
    # A pretrained translator brings its search.
    return Follows(lambda recipe, _: None if recipe.model.pretrained else value, True)


class DecodingSettings(Section):
    """How the trained model translates."""

    beam_width: Annotated[Changeable[Count | None], _search_default(4)] = None
    """Hypotheses that beam search keeps; 1 is greedy search, which is faster. Default:
    4, or the pretrained translator's."""
    length_penalty: Annotated[
        Changeable[Annotated[float, Field(ge=0)] | None], _search_default(0.6)
    ] = None
    """Exponent of the length penalty; larger values favour longer translations.
    Default: 0.6, or the pretrained translator's."""
    average: Changeable[Count] = 5
    """Number of last checkpoints whose weights are averaged."""


def fields(section: type[Section], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yields the dotted name and the field of each setting and section, in order."""
    for name, field in section.model_fields.items():
        yield f"{prefix}{name}", field
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, Section):
                yield from fields(kind, f"{prefix}{name}.")


def _rounded(number: float) -> int:
    """Returns a number with two significant digits."""
    return int(float(f"{number:.1e}"))
