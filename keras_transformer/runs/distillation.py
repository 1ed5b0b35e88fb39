"""Translators that teach the model of a run; see `training.Distillation`."""

from keras_transformer.models import Ensemble, Transformer
from keras_transformer.runs.folder import Run
from keras_transformer.runs.pretrained import given_of_tokenizer, read_translator
from keras_transformer.runs.recipe import Recipe
from keras_transformer.runs.settings import TokenizerSettings
from keras_transformer.runs.text_files import SIDES
from keras_transformer.text import SubwordTokenizer


def copy_tokenizers(recipe: Recipe, run: Run) -> None:
    """Writes the tokenizers of the first of `training.teachers` to a new run.

    Raises:
        FileNotFoundError: If there is no such translator.
        ValueError: If the settings `tokenizer` do not agree with them.
    """
    where = recipe.training.teachers[0]
    translator = read_translator(where)
    settings = recipe.tokenizer
    source, target = translator.source_tokenizer, translator.target_tokenizer
    if settings.shared and not source.equals(target):
        raise ValueError(
            "`tokenizer.shared` must be false: the teachers have a tokenizer for each "
            f"language. Received: training.teachers={where}."
        )
    for name, value in given_of_tokenizer(settings).items():
        if name not in ("shared", "vocabulary_size"):
            raise ValueError(
                f"`tokenizer.{name}` must be left out with `training.teachers`, which "
                f"bring their tokenizers. Received: {name}={value!r}."
            )
    given = settings.vocabulary_size
    if given not in (source.vocabulary_size, TokenizerSettings.vocabulary_size):
        raise ValueError(
            "`tokenizer.vocabulary_size` must be that of the teachers, "
            f"{source.vocabulary_size}, or be left out. Received: {given}."
        )
    if settings.shared:
        source.save(run.tokenizer_path("shared"))
    else:
        for side, tokenizer in zip(SIDES, (source, target), strict=True):
            tokenizer.save(run.tokenizer_path(side))


def read_teacher(
    recipe: Recipe, tokenizers: tuple[SubwordTokenizer, SubwordTokenizer]
) -> Transformer | Ensemble:
    """Returns the model of `training.teachers`: of several, their ensemble.

    Raises:
        FileNotFoundError: If there is no such translator.
        ValueError: If one has other tokenizers than those given.
    """
    models: list[Transformer] = []
    for where in recipe.training.teachers:
        translator = read_translator(where)
        found = translator.source_tokenizer, translator.target_tokenizer
        pairs = zip(found, tokenizers, strict=True)
        if not all(one.equals(other) for one, other in pairs):
            raise ValueError(
                f"`training.teachers` must have the tokenizers of the run. {where} has "
                "others: name translators that were trained on the same text."
            )
        model = translator.model
        models += model.models if isinstance(model, Ensemble) else [model]
    return models[0] if len(models) == 1 else Ensemble(models)
