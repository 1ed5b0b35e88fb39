"""A translator on disk: model, tokenizers and settings in one folder."""

import json
import os
from pathlib import Path
from typing import TypeVar

import keras

from keras_transformer.models.presets import read_pretrained
from keras_transformer.storage import names_in, replace_files, write_text
from keras_transformer.text import SubwordTokenizer, VocabularyTokenizer

_TOKENIZERS = {x.__name__: x for x in (SubwordTokenizer, VocabularyTokenizer)}
SETTINGS = "translator.json"  # Last in sorted order, so it is moved into place last.
# Files that mark what `from_preset` reads: Hugging Face's layout, and Marian's.
MARKS_OF_PRESETS = ("config.json", "decoder.yml")

Self = TypeVar("Self", bound="SavedTranslator")


class SavedTranslator:
    """Base of `Translator`: how it is saved, loaded and read from other systems."""

    def save(self, folder: str | os.PathLike) -> None:
        """Writes the translator to a folder, which may exist.

        The folder then holds `model.keras`, without optimizer state; `source.model`
        and `target.model`, or one `shared.model`; and `translator.json`, with the
        search. In a new folder they appear once all are written; in one that exists
        they are replaced one after the other, `translator.json` last. Other files stay.
        """
        save_translator(self, folder)

    @classmethod
    def load(cls: type[Self], folder: str | os.PathLike) -> Self:
        """Reads a translator that `save` wrote.

        Raises:
            FileNotFoundError: If the folder holds no translator, or a file is missing.
            ValueError: If a file is damaged, or the files do not fit each other.
        """
        return cls._from_arguments(folder, read_translator(folder))

    def save_to_preset(self, folder: str | os.PathLike) -> None:
        """Writes a folder that `from_preset` reads; it is what `save` writes."""
        self.save(folder)

    @classmethod
    def from_preset(
        cls: type[Self],
        where: str | os.PathLike,
        source_language: str | None = None,
        target_language: str | None = None,
        **kwargs,
    ) -> Self:
        """Reads a pretrained translator.

        It may be one that `save` wrote, a checkpoint of Marian (OPUS-MT), M2M100, NLLB
        or Pegasus in Hugging Face's layout, or a model of Marian itself.

        Args:
            where: A folder, or `"hf://user/model"` on the Hugging Face Hub, such as
                `"hf://Helsinki-NLP/opus-mt-en-de"`. Downloads need the extra `hub`.
            source_language: Language of the texts, for M2M100 and NLLB.
            target_language: Language to translate to, for models that know several,
                such as `"deu_Latn"`; that of the checkpoint's settings unless given.
            **kwargs: Arguments of the `Transformer` that do not change its weights,
                such as `dropout=0.3`.

        Returns:
            A translator with the search of the checkpoint, such as its beam.

        Raises:
            FileNotFoundError: If there is no such folder, model or file.
            PermissionError: If the model is gated.
            ConnectionError: If the Hub cannot be reached, and no copy is in its cache.
            ValueError: If a file is damaged, is of a family that is not known, or holds
                what is not understood.

        Example:
            >>> name = "hf://Helsinki-NLP/opus-mt-en-de"
            >>> translator = kt.Translator.from_preset(name)  # doctest: +SKIP
            >>> translator.translate(["A man rides a bike."])  # doctest: +SKIP
            ['Ein Mann fährt Fahrrad.']
        """
        languages = source_language, target_language
        arguments = read_pretrained("translator", where, *languages, **kwargs)
        return cls._from_arguments(where, arguments)

    @classmethod
    def _from_arguments(cls, folder, arguments):
        try:
            return cls(**arguments)
        except ValueError as error:
            raise ValueError(f"{folder} cannot be loaded. {error}") from None


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


def read_search(folder: str | os.PathLike):
    """Reads the search of a saved translator, or None if an older file holds none."""
    settings = json.loads((Path(folder) / SETTINGS).read_text(encoding="utf-8"))
    return keras.saving.deserialize_keras_object(settings.get("search"))


def read_translator(folder: str | os.PathLike):
    """Reads the arguments of a `Translator` by name; see `Translator.load`."""
    folder = Path(folder)
    path = folder / SETTINGS
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} holds no translator: there is no {SETTINGS}. "
            f"{what_to_name(folder)}"
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
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(_damage(path, error)) from None
    search = _deserialized(settings.get("search"), path)
    tokenizers = {
        name: tokenizer_class.load(folder / name)
        for name, tokenizer_class in zip(names, classes, strict=True)
    }
    source, target = (tokenizers[name] for name in names)
    arguments = {
        "model": load_model(folder / "model.keras"),
        "source_tokenizer": source,
        "target_tokenizer": target,
        "max_source_length": max_source_length,
    }
    return {**arguments, "search": search} if search else arguments


def _deserialized(search, path):
    """Returns a search from its config; says what is missing to read it."""
    try:
        return keras.saving.deserialize_keras_object(search)
    except (ValueError, KeyError, TypeError) as error:
        if unknown := list(_unregistered(search)):
            raise ValueError(
                f"{path} names {', '.join(unknown)}, not registered with Keras here. "
                "Import the module that defines it, then load the translator."
            ) from None
        raise ValueError(_damage(path, error)) from None


def _unregistered(config):
    """Yields the classes in a config that are not registered with Keras."""
    if isinstance(config, dict):
        name = config.get("registered_name")
        if name and not keras.saving.get_registered_object(name):
            yield name
        config = list(config.values())
    if isinstance(config, list):
        for each in config:
            yield from _unregistered(each)


def _damage(path, error):
    return f"{path} is damaged ({error!r}). Save the translator again."


def what_to_name(path):
    """Returns what to do with a path that is not the folder of a translator."""
    remedy = "Name a folder that `Translator.save` wrote, or a run that has ended."
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
        return f"It is a run. Name its translator, {path / 'translator'}."
    if any((path / name).is_file() for name in MARKS_OF_PRESETS):
        return "It is a model in another layout. `Translator.from_preset` may read it."
    if any(path.glob("saved_model.pb")) or any(path.glob("*/saved_model.pb")):
        return (
            "It is an export for TensorFlow Serving, which cannot be read back. Name "
            "what was exported."
        )
    return f"It holds {names_in(path)}. {remedy}"


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
