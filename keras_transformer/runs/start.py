"""What a new run needs before it trains: settings, tokenizers, a pretrained model."""

import functools
import heapq
import shutil

import keras

from keras_transformer.models.presets import PRESETS
from keras_transformer.runs.recipe import Recipe, Settings
from keras_transformer.runs.run import Record, Run
from keras_transformer.runs.settings import held_out_files
from keras_transformer.runs.survey import Survey
from keras_transformer.storage import replace_file, write_text
from keras_transformer.text import SubwordTokenizer
from keras_transformer.text.tokenizer_training import VocabularySizeError
from keras_transformer.text_files import pair_hash

# Settings that may differ from the pretrained model's.
FREE_SETTINGS = {"dropout", "attention_dropout", "activation_dropout", "seed"}


def begin(
    run: Run,
    settings: Settings,
    text: Survey,
    adjusts_vocabulary: bool = False,
    kind: str = "training",
) -> None:
    """Writes the settings of a new run, whose folder is locked, and its tokenizers.

    With `adjusts_vocabulary`, a vocabulary that the text cannot fill becomes smaller,
    and the settings say so. It is an error otherwise.
    """
    run.write(Record(kind, run.checksum(settings, "training")), settings)
    run.remove_unfinished()
    # An interrupted start may have left files of other settings.
    shutil.rmtree(run.tokenizers_path, ignore_errors=True)
    shutil.rmtree(run.pretrained_path, ignore_errors=True)
    run.log.path.unlink(missing_ok=True)
    pretrained, prepared = settings.model.pretrained, settings.data.prepared
    min_hash = 0
    if settings.data.validation is None and prepared:
        for file in held_out_files(prepared):
            shutil.copyfile(file.path, run.folder / file.path.name)
    elif settings.data.validation is None:
        min_hash, text = hold_out(text, run)
    validation = run.checksum(settings, "validation")
    run.update(min_hash=min_hash, validation_text=validation)
    if pretrained:
        copy_pretrained(pretrained, settings, run)
    if prepared:
        copy_tokenizers(prepared, run)
    if pretrained or prepared:
        return
    sides = {"source": text.source_lines, "target": text.target_lines}
    if settings.tokenizer.shared:
        sides = {"shared": [*text.source_lines, *text.target_lines]}
    how = settings.tokenizer.model_dump(exclude={"shared", "sampling"})
    how["symbols"] = settings.symbols()
    for name, lines in sides.items():
        lines = ["", *lines]  # a first line that names a file would be taken for it
        try:
            tokenizer = SubwordTokenizer.train(lines, **how)
        except VocabularySizeError as error:
            if not adjusts_vocabulary:
                raise
            smaller = how | {"vocabulary_size": error.nearest}
            tokenizer = SubwordTokenizer.train(lines, **smaller)
        tokenizer.save(run.tokenizers_path / f"{name}.model")
    size = max(tokenizer.vocabulary_size for tokenizer in run.tokenizers())
    if size != settings.tokenizer.vocabulary_size:
        changed = settings.replace({"tokenizer.vocabulary_size": size})
        run.write(run.record, changed)


def hold_out(text: Survey, run: Run) -> tuple[int, Survey]:
    """Writes pairs of a training text to the run, to validate on.

    Which pairs depends only on the text. Returns `min_hash` of `TextFile`, and
    the survey of the pairs that are left.
    """
    pairs = list(zip(text.source_lines, text.target_lines, strict=True))
    hash_of = functools.partial(pair_hash, tags=run.settings.symbols())
    by_hash = {hash_of(*pair): pair for pair in pairs}
    count = min(max(len(by_hash) // 20, 10), len(by_hash) // 2, 2000)
    if not count:
        raise ValueError(
            "`data.validation` must name a text if the training text has too few pairs "
            f"to hold some out. Received: {len(pairs)} pairs."
        )
    lowest = heapq.nsmallest(count, by_hash)
    files = held_out_files(run.folder)
    for side, file in enumerate(files):
        write_text(file.path, "".join(f"{by_hash[x][side]}\n" for x in lowest))
    print(
        f"Held out {count:,} of {text.size.pairs:,} pairs for validation, in "
        f"{files[0]} and .target: the recipe names no `data.validation`."
    )
    min_hash = lowest[-1] + 1
    kept = zip(*(pair for pair in pairs if hash_of(*pair) >= min_hash), strict=True)
    return min_hash, Survey(text.size, *map(list, kept))


def copy_pretrained(where: str, settings: Recipe, run: Run) -> None:
    """Writes the translator that training continues from, and its tokenizers, to a run.

    The settings must agree with it.
    """
    from keras_transformer.translator.translator import (
        Translator,
        check_one_transformer,
    )

    other = Run(where)
    is_run = other.settings_path.is_file()
    translator = other.translator() if is_run else Translator.from_preset(where)
    check_one_transformer(translator, "Training")
    _check_agreement(settings, translator)
    for tag in settings.symbols():
        [subwords] = translator.source_tokenizer.split([tag]).numpy()
        if tag not in [subword.decode().strip("\u2581") for subword in subwords]:
            raise ValueError(
                "`tag` must be a subword of the pretrained translator. Received: "
                f"tag={tag!r}, which it splits into {len(subwords)}."
            )
    translator.save(run.pretrained_path)
    translator.source_tokenizer.save(run.tokenizers_path / "source.model")
    translator.target_tokenizer.save(run.tokenizers_path / "target.model")


def copy_tokenizers(prepared: str, run: Run) -> None:
    """Copies the tokenizers of prepared text to a run, which may have no others."""
    for path in Run(prepared).tokenizers_path.iterdir():
        copy = run.tokenizers_path / path.name
        if copy.exists() and copy.read_bytes() != path.read_bytes():
            raise ValueError(
                f"{prepared} was not prepared with the tokenizers of the pretrained "
                "translator. Prepare the text with the same `model.pretrained`."
            )
        with replace_file(copy) as unfinished:
            shutil.copyfile(path, unfinished)


def _check_agreement(settings, translator):
    """Raises `ValueError` unless all that is named is as in the translator."""
    named_only = {"exclude_unset": True, "exclude_none": True}
    learnt = settings.tokenizer.model_dump(exclude={"sampling"}, **named_only)
    model = settings.model
    arguments = {} if model.preset is None else dict(PRESETS[model.preset])
    arguments |= model.arguments(exclude_unset=True)
    if "activation" in arguments:  # by the name that a model's settings have
        function = keras.activations.get(arguments["activation"])
        arguments["activation"] = keras.activations.serialize(function)
    named = {f"tokenizer.{k}": v for k, v in learnt.items()}
    named |= {f"model.{k}": v for k, v in arguments.items() if k not in FREE_SETTINGS}
    config = translator.model.get_config()
    found = {
        "tokenizer.vocabulary_size": translator.source_tokenizer.vocabulary_size,
        "tokenizer.shared": config["target_vocabulary_size"] is None,
        **{f"model.{name}": value for name, value in config.items()},
    }
    for name, value in named.items():
        remedy = "left out, since the pretrained translator has its own tokenizers"
        if name in found:
            remedy = f"{found[name]!r}, as in the pretrained translator, or be left out"
        if value != found.get(name):
            raise ValueError(f"`{name}` must be {remedy}. Received: {name}={value!r}.")
