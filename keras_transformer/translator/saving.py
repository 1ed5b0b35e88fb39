"""A translator on disk: model, tokenizers and settings in one folder."""

import json
import os
import shutil
from pathlib import Path

import keras

from keras_transformer.text import SubwordTokenizer


def save_translator(translator, folder: str | os.PathLike) -> None:
    """Writes a translator to a folder; see `Translator.save`."""
    folder = Path(folder)
    unfinished = folder / f".unfinished-{os.getpid()}"
    unfinished.mkdir(parents=True)
    try:
        # A fresh model of the same weights has no optimizer to be saved.
        model = type(translator.model).from_config(translator.model.get_config())
        model.set_weights(translator.model.get_weights())
        model.save(unfinished / "model.keras")
        settings = {"format": 1, "max_source_length": translator.max_source_length}
        for side, name, tokenizer in _named_tokenizers(translator):
            tokenizer.save(unfinished / name)
            settings[f"{side}_tokenizer"] = name
        text = json.dumps(settings, indent=2) + "\n"
        (unfinished / "translator.json").write_text(text, encoding="utf-8")
        # By name, so that translator.json, which makes a translator, comes last.
        for path in sorted(unfinished.iterdir()):
            os.replace(path, folder / path.name)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def read_translator(folder: str | os.PathLike):
    """Reads what `save_translator` wrote.

    Returns:
        Model, source tokenizer, target tokenizer and the longest source.

    Raises:
        FileNotFoundError: If the folder holds no translator, or not all of it.
        ValueError: If a file of it is damaged.
    """
    folder = Path(folder)
    if not (folder / "translator.json").is_file():
        raise FileNotFoundError(
            f"{folder} holds no translator: there is no translator.json. Name a "
            "folder that `Translator.save` wrote."
        )
    try:
        text = (folder / "translator.json").read_text(encoding="utf-8")
        settings = json.loads(text)
        max_source_length = settings["max_source_length"]
        names = [settings[f"{side}_tokenizer"] for side in ("source", "target")]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{folder / 'translator.json'} is damaged ({error!r}). Save the "
            "translator again."
        ) from None
    tokenizers = {name: SubwordTokenizer.load(folder / name) for name in names}
    model = _load_model(folder / "model.keras")
    return model, *(tokenizers[name] for name in names), max_source_length


def _named_tokenizers(translator):
    """Yields `(side, name of the file, tokenizer)`."""
    pair = {
        "source": translator.source_tokenizer,
        "target": translator.target_tokenizer,
    }
    is_shared = len({tokenizer.model_proto for tokenizer in pair.values()}) == 1
    for side, tokenizer in pair.items():
        yield side, f"{'shared' if is_shared else side}.model", tokenizer


def _load_model(path):
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing. Save the translator again.")
    try:
        return keras.models.load_model(path, compile=False)
    except Exception as error:  # Keras raises what it comes upon in a damaged file
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"{path} is no Keras model, or damaged: {reason}") from None
