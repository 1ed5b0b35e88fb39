"""A translator on disk: model, tokenizers and settings in one folder."""

import json
import os
from pathlib import Path

import keras

from keras_transformer.storage import names_in, replace_files, write_text
from keras_transformer.text import Tokenizer

SETTINGS = "translator.json"  # Last in sorted order, so it is moved into place last.
# Files that mark what `from_preset` reads, or refuses: Marian's own.
MARKS_OF_PRESETS = ("config.json", "decoder.yml")


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
        for side, tokenizer in {"source": source, "target": target}.items():
            name = f"{'shared' if is_shared else side}.model"
            tokenizer.save(unfinished / name)
            settings[f"{side}_tokenizer"] = name
            settings[f"{side}_tokenizer_class"] = type(tokenizer).__name__
        write_text(unfinished / SETTINGS, json.dumps(settings, indent=2) + "\n")


def read_translator(folder: str | os.PathLike) -> dict:
    """Reads the arguments of a `Translator` by name; see `Translator.load`."""
    folder = Path(folder)
    if (folder / "translator" / SETTINGS).is_file():  # a run
        folder /= "translator"
    path = folder / SETTINGS
    if not path.is_file():
        problem = f"{folder} holds no translator: there is no {SETTINGS}."
        raise FileNotFoundError(f"{problem} {what_to_name(folder)}")
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
        max_source_length = settings["max_source_length"]
        names = [settings[f"{x}_tokenizer"] for x in ("source", "target")]
        kinds = [settings[f"{x}_tokenizer_class"] for x in ("source", "target")]
        classes = [Tokenizer.kinds[kind] for kind in kinds]
        search = keras.saving.deserialize_keras_object(settings["search"])
    except (ValueError, KeyError, TypeError) as error:
        # Keras names a class that is not registered, then prints its whole config.
        reason = " ".join(str(error).partition("Full object config")[0].split())
        raise ValueError(
            f"{path} cannot be read ({type(error).__name__}: {reason}). If it is "
            "damaged, save the translator again."
        ) from None
    # One object for a tokenizer of both sides.
    tokenizers = {
        name: tokenizer.load(folder / name)
        for name, tokenizer in dict(zip(names, classes, strict=True)).items()
    }
    return {
        "model": load_model(folder / "model.keras"),
        "source_tokenizer": tokenizers[names[0]],
        "target_tokenizer": tokenizers[names[1]],
        "max_source_length": max_source_length,
        "search": search,
    }


def read_search(folder: str | os.PathLike):
    """Reads the search of a saved translator, and its `max_source_length`."""
    settings = json.loads((Path(folder) / SETTINGS).read_text(encoding="utf-8"))
    search = keras.saving.deserialize_keras_object(settings["search"])
    return search, settings["max_source_length"]


def load_model(path: Path) -> keras.Model:
    """Loads a model without its optimizer; says so if the file is damaged."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing. Save the translator again.")
    try:
        return keras.models.load_model(path, compile=False)
    except Exception as error:  # What Keras raises depends on the damage.
        reason = str(error).strip().partition("\n")[0]
        message = f"{path} is damaged or is not a Keras model: {reason}"
        raise ValueError(message) from None


def what_to_name(path: Path) -> str:
    """Returns what to do with a path that is not the folder of a translator."""
    remedy = "Pass a folder that `Translator.save` wrote, or a finished run."
    if not path.exists():
        return f"Nothing is there. {remedy}"
    if path.suffix == ".keras":
        return (
            "It is a Keras model, without tokenizers. Read it with "
            "`keras.saving.load_model`, and save a `Translator` of it."
        )
    if not path.is_dir():
        return f"It is a file. {remedy}"
    if (path / "translator" / SETTINGS).is_file():
        return f"It is a run. Pass its translator, {path / 'translator'}."
    if any((path / name).is_file() for name in MARKS_OF_PRESETS):
        return "It is a model in another layout. `Translator.from_preset` may read it."
    if any(path.glob("saved_model.pb")) or any(path.glob("*/saved_model.pb")):
        return (
            "It is an export for TensorFlow Serving, which cannot be read back. Pass "
            "the translator that was exported."
        )
    return f"It holds {names_in(path)}. {remedy}"
