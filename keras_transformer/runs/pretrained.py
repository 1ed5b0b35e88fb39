"""Training that continues from a pretrained translator."""

import dataclasses
from pathlib import Path

import keras

from keras_transformer.keras_private import all_layers
from keras_transformer.models import Transformer
from keras_transformer.models.presets import PRESETS
from keras_transformer.runs.folder import Run
from keras_transformer.runs.recipe import Recipe
from keras_transformer.runs.settings import ModelSettings, TokenizerSettings
from keras_transformer.translator import Translator
from keras_transformer.translator.checks import check_one_transformer

# What may differ from the pretrained model.
_FREE = {"dropout", "attention_dropout", "activation_dropout", "seed"}


def read_translator(where: str) -> Translator:
    """Returns the translator of a run, or what `Translator.from_preset` reads."""
    run = Run(where)
    if run.settings_path.is_file():
        return run.translator()
    return Translator.from_preset(where)


def copy_pretrained(where: str, recipe: Recipe, run: Run) -> None:
    """Writes the translator that training continues from, and its tokenizers, to a run.

    Raises:
        ValueError: If the recipe has settings that do not agree with the translator.
    """
    translator = read_translator(where)
    check_one_transformer(translator, "Training")
    _check_agreement(recipe, translator)
    translator.save(run.pretrained_path)
    for side in ("source", "target"):
        tokenizer = getattr(translator, f"{side}_tokenizer")
        tokenizer.save(run.tokenizer_path(side))


def pretrained_model(recipe: Recipe, run: Run) -> Transformer:
    """Returns the model that training continues from, with the recipe's dropout.

    What the recipe does not want to be trained is frozen.
    """
    settings = recipe.model
    arguments = {k: v for k, v in settings.overrides().items() if k in _FREE}
    arguments["dtype"] = recipe.training.precision
    model = Transformer.from_preset(Path(run.pretrained_path), **arguments)
    if settings.lora_rank:
        model = model.merge_lora()  # of an adaptation before this one
        model.enable_lora(settings.lora_rank)
    _freeze(model, settings.frozen)
    return model


def given_of_tokenizer(settings: TokenizerSettings) -> dict:
    """Returns what says how tokenizers are learnt, where it is not the default."""
    return {
        x.name: getattr(settings, x.name)
        for x in dataclasses.fields(settings)
        if getattr(settings, x.name) != x.default and x.name != "sampling"
    }


def _freeze(model, names):
    layers = {layer.path: layer for layer in all_layers(model) if layer.weights}
    for name in names:
        if name not in layers:
            known = ", ".join(x.name for x in model.layers if x.weights)
            raise ValueError(
                f"`model.frozen` must name layers, such as {known}, or layers inside "
                f"of these. Received: {name!r}."
            )
        layers[name].trainable = False


def _check_agreement(recipe, translator):
    config = translator.model.get_config()
    is_shared = config["target_vocabulary_size"] is None
    found = {
        "tokenizer.vocabulary_size": translator.source_tokenizer.vocabulary_size,
        "tokenizer.shared": is_shared,
        **{f"model.{name}": value for name, value in config.items()},
    }
    for name, value in _given(recipe).items():
        if name not in found:
            raise ValueError(
                f"`{name}` must be left out with `model.pretrained`, which brings its "
                f"tokenizers. Received: {name}={value!r}."
            )
        if value != found[name]:
            raise ValueError(
                f"`{name}` must be that of the pretrained translator, {found[name]!r}, "
                f"or be left out. Received: {name}={value!r}."
            )


def _given(recipe):
    """The settings that must agree, where they are not the defaults."""
    model = recipe.model
    given = {
        f"tokenizer.{name}": value
        for name, value in given_of_tokenizer(recipe.tokenizer).items()
    }
    arguments = dict(model.overrides())
    if model.preset != ModelSettings.preset:
        arguments = {**PRESETS[model.preset], **arguments}
    arguments = {k: v for k, v in arguments.items() if k not in _FREE}
    if "activation" in arguments:  # by the name that a model's settings have
        function = keras.activations.get(arguments["activation"])
        arguments["activation"] = keras.activations.serialize(function)
    return given | {f"model.{name}": value for name, value in arguments.items()}
