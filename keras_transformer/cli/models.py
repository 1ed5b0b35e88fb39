"""From the folder that a user names to a translator and its search."""

from pathlib import Path

from keras_transformer.cli.loading import load_tensorflow
from keras_transformer.runs.recipe import DecodingSettings, Recipe


def load_translator(folder: Path):
    """Loads the translator of a run, or one that was saved by itself.

    Returns:
        A `Translator`.

    Raises:
        FileNotFoundError: If there is none in the folder.
    """
    load_tensorflow()
    from keras_transformer.runs import Run
    from keras_transformer.translator import Translator

    run = Run(folder)
    if run.settings_path.is_file():
        return run.translator()
    return Translator.load(folder)


def choose_search(
    folder: Path,
    beam_width: int | None,
    length_penalty: float | None,
    processors=(),
):
    """Returns the search asked for; what is not said is as the run's recipe has it.

    Returns:
        A search of `keras_transformer.decoding`.
    """
    from keras_transformer.decoding import BeamSearch, GreedySearch

    path = folder / "settings.yaml"
    settings = Recipe.load(path).decoding if path.is_file() else DecodingSettings()
    beam_width = settings.beam_width if beam_width is None else beam_width
    if length_penalty is None:
        length_penalty = settings.length_penalty
    if beam_width == 1:
        return GreedySearch(processors)
    return BeamSearch(beam_width, length_penalty, processors=processors)


def choose_processors(
    min_length: int | None,
    max_length_ratio: float | None,
    no_repeat_ngram_size: int | None,
    repetition_penalty: float | None,
) -> list:
    """Returns the processors of `keras_transformer.decoding` that are asked for."""
    from keras_transformer import decoding

    settings = {
        decoding.MinimumLength: min_length,
        decoding.MaximumLength: max_length_ratio,
        decoding.NoRepeatNgram: no_repeat_ngram_size,
        decoding.RepetitionPenalty: repetition_penalty,
    }
    return [kind(one) for kind, one in settings.items() if one is not None]
