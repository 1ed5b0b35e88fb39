"""Readers of pretrained models, of this package or Hugging Face."""

import os

from keras_transformer.interop.hub import preset_folder
from keras_transformer.interop.hugging_face import families
from keras_transformer.models import Transformer
from keras_transformer.translator import saving


def read_transformer(where: str | os.PathLike, **kwargs) -> Transformer:
    """Reads a pretrained model; see `Transformer.from_preset`."""
    folder = preset_folder(where)
    if (folder / saving.SETTINGS).is_file():
        return _read_saved(folder, kwargs)["model"]
    return families.read_transformer(folder, **kwargs)


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
        return _read_saved(folder, kwargs)
    return families.read_translator(folder, *languages.values(), **kwargs)


def _read_saved(folder, kwargs):
    """The arguments of a saved translator, whose model may get others of its own."""
    arguments = saving.read_translator(folder)
    if not kwargs:
        return arguments
    model = arguments["model"]
    received = ", ".join(f"{name}={value!r}" for name, value in kwargs.items())
    if not isinstance(model, Transformer):
        raise ValueError(
            f"{folder} holds an {type(model).__name__}, whose models keep their "
            f"arguments. Received: {received}."
        )
    other = type(model).from_config({**model.get_config(), **kwargs})
    if [x.shape for x in other.weights] != [x.shape for x in model.weights]:
        raise ValueError(
            f"Arguments must fit the weights in {folder}, such as another dropout or "
            f"dtype. Received: {received}."
        )
    other.set_weights(model.get_weights())
    return {**arguments, "model": other}
