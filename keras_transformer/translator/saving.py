"""A translator on disk: model, tokenizers and settings in one folder."""

import json
import os
from pathlib import Path

import keras

from keras_transformer.storage import replace_files, write_text
from keras_transformer.text import SubwordTokenizer, VocabularyTokenizer

_TOKENIZERS = {x.__name__: x for x in (SubwordTokenizer, VocabularyTokenizer)}
SETTINGS = "translator.json"  # Sorted last, so it appears last and marks a translator.


def save_translator(translator, folder: str | os.PathLike) -> None:
    """Writes a translator to a folder; see `Translator.save`."""
    settings = {
        "format": 1,
        "max_source_length": translator.max_source_length,
        "search": keras.saving.serialize_keras_object(translator.search),
    }
    source, target = translator.source_tokenizer, translator.target_tokenizer
    is_shared = source.equals(target)
    with replace_files(folder) as unfinished:
        # A new model with the same weights has no optimizer to save.
        model = type(translator.model).from_config(translator.model.get_config())
        model.set_weights(translator.model.get_weights())
        model.save(unfinished / "model.keras")
        for side, tokenizer in (("source", source), ("target", target)):
            name = f"{'shared' if is_shared else side}.model"
            tokenizer.save(unfinished / name)
            settings[f"{side}_tokenizer"] = name
            settings[f"{side}_tokenizer_class"] = type(tokenizer).__name__
        write_text(unfinished / SETTINGS, json.dumps(settings, indent=2) + "\n")


def read_translator(folder: str | os.PathLike):
    """Reads the arguments of a `Translator` by name; see `Translator.load`."""
    folder = Path(folder)
    path = folder / SETTINGS
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} holds no translator: there is no {SETTINGS}. Name a folder that "
            "`Translator.save` wrote."
        )
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
        max_source_length = settings["max_source_length"]
        names = [settings[f"{side}_tokenizer"] for side in ("source", "target")]
        # Older files hold neither classes nor a search.
        classes = [
            _TOKENIZERS[settings.get(f"{side}_tokenizer_class", "SubwordTokenizer")]
            for side in ("source", "target")
        ]
        search = keras.saving.deserialize_keras_object(settings.get("search"))
    except (ValueError, KeyError, TypeError) as error:
        message = f"{path} is damaged ({error!r}). Save the translator again."
        raise ValueError(message) from None
    tokenizers = {
        name: tokenizer_class.load(folder / name)
        for name, tokenizer_class in zip(names, classes, strict=True)
    }
    source, target = (tokenizers[name] for name in names)
    arguments = {
        "model": _load_model(folder / "model.keras"),
        "source_tokenizer": source,
        "target_tokenizer": target,
        "max_source_length": max_source_length,
    }
    return {**arguments, "search": search} if search else arguments


def _load_model(path):
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing. Save the translator again.")
    try:
        return keras.models.load_model(path, compile=False)
    except Exception as error:  # What Keras raises depends on the damage.
        reason = str(error).strip().partition("\n")[0]
        message = f"{path} is damaged or is not a Keras model: {reason}"
        raise ValueError(message) from None
