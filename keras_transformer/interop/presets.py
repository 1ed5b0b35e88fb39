"""Readers of pretrained models, of this package, Hugging Face or Marian."""

import os

from keras_transformer.interop import marian
from keras_transformer.interop.hub import preset_folder
from keras_transformer.interop.hugging_face import families
from keras_transformer.models import Transformer
from keras_transformer.translator import saving


def read_transformer(where: str | os.PathLike, **kwargs) -> Transformer:
    """Reads a pretrained model; see `Transformer.from_preset`."""
    folder = preset_folder(where)
    if (folder / saving.SETTINGS).is_file():
        model = saving.read_translator(folder)["model"]
        return _with_arguments(model, kwargs, folder)
    return _reader(folder).read_transformer(folder, **kwargs)


def read_translator(
    where: str | os.PathLike,
    source_language: str | None = None,
    target_language: str | None = None,
    **kwargs,
) -> dict:
    """Reads the arguments of a `Translator`; see `Translator.from_preset`."""
    folder = preset_folder(where)
    languages = {"source": source_language, "target": target_language}
    if (folder / saving.SETTINGS).is_file():
        for side, language in languages.items():
            if language is not None:
                raise ValueError(
                    f"`{side}_language` must be left out: {folder} was saved with its "
                    f"languages. Received: {side}_language={language!r}."
                )
        arguments = saving.read_translator(folder)
        model = _with_arguments(arguments["model"], kwargs, folder)
        return {**arguments, "model": model}
    return _reader(folder).read_translator(folder, *languages.values(), **kwargs)


def _reader(folder):
    """The module that reads a folder of another system."""
    if (folder / marian.NAME).is_file():
        return marian
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(
            f"{folder} holds no model: config.json is missing, and so is "
            f"{saving.SETTINGS}. {saving.what_to_name(folder)}"
        )
    return families


def _with_arguments(model, arguments, folder):
    """A model with other arguments and the same weights."""
    if not arguments:
        return model
    received = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    if not isinstance(model, Transformer):
        raise ValueError(
            f"{folder} holds an {type(model).__name__}, whose models keep their "
            f"arguments. Received: {received}."
        )
    other = type(model).from_config({**model.get_config(), **arguments})
    if [x.shape for x in other.weights] != [x.shape for x in model.weights]:
        raise ValueError(
            f"Arguments must fit the weights in {folder}, as other dropout or another "
            f"dtype does. Received: {received}."
        )
    other.set_weights(model.get_weights())
    return other
