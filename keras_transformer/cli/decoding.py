"""The options that control decoding, shared by several commands."""

import functools
import inspect
from dataclasses import dataclass
from pathlib import Path

from keras_transformer.cli.options import option
from keras_transformer.runs import Recipe
from keras_transformer.runs.settings import DecodingSettings

BeamWidth = option(
    int | None, "Beam width; 1 is greedy search. [default: the run's, else 4]", min=1
)
LengthPenalty = option(
    float | None,
    "Exponent of the length penalty; larger values favour longer translations. "
    "[default: the run's, else 0.6]",
    min=0,
)


@dataclass(frozen=True)
class DecodingOptions:
    """The options that choose a search; None where an option is not given."""

    beam_width: BeamWidth = None
    length_penalty: LengthPenalty = None
    min_length: option(
        int | None,
        "Minimum length of a translation in subwords, end symbol included.",
        min=1,
    ) = None
    max_length: option(
        int | None,
        "Maximum length, beyond which a translation is cut. [default: twice the padded "
        "length of its source]",
        min=1,
    ) = None
    max_length_ratio: option(
        float | None,
        "Maximum length as a multiple of the source's, such as 1.5, at which a "
        "translation has to end.",
        min=0,
    ) = None
    no_repeat_ngram_size: option(
        int | None, "Never repeat a sequence of this many subwords, such as 3.", min=1
    ) = None
    repetition_penalty: option(
        float | None,
        "Make subwords less likely that a translation already contains; 1 has no "
        "effect, 1.2 is usual.",
        min=1,
    ) = None

    stop_string: option(
        list[str] | None,
        "End a translation before this text. May be given several times.",
        metavar="TEXT",
    ) = None

    def search(self, folder: Path, tokenizer=None):
        """Returns a search; the recipe of the run in `folder` gives the defaults.

        Call `load_tensorflow` first. Stop strings need the target `tokenizer`.
        """
        from keras_transformer import decoding

        path = folder / "settings.yaml"
        defaults = Recipe.load(path).decoding if path.is_file() else DecodingSettings()
        options = {
            decoding.MinimumLength: self.min_length,
            decoding.MaximumLength: self.max_length_ratio,
            decoding.NoRepeatNgram: self.no_repeat_ngram_size,
            decoding.RepetitionPenalty: self.repetition_penalty,
        }
        given = {kind: value for kind, value in options.items() if value is not None}
        processors = [kind(value) for kind, value in given.items()]
        stops = tokenizer.stop_strings(self.stop_string) if self.stop_string else None
        settings = {"processors": processors, "stop_strings": stops}
        beam_width = self.beam_width or defaults.beam_width
        if beam_width == 1:
            return decoding.GreedySearch(**settings)
        length_penalty = self.length_penalty
        if length_penalty is None:
            length_penalty = defaults.length_penalty
        return decoding.BeamSearch(beam_width, length_penalty, **settings)


def takes_decoding_options(command):
    """Replaces the parameter `decoding` of a command by the `DecodingOptions`."""
    signature = inspect.signature(command)
    options = inspect.signature(DecodingOptions).parameters
    others = [one for one in signature.parameters.values() if one.name != "decoding"]

    @functools.wraps(command)
    def run(**arguments):
        decoding = DecodingOptions(**{name: arguments.pop(name) for name in options})
        command(**arguments, decoding=decoding)

    # Typer reads the options of a command from its signature.
    run.__signature__ = signature.replace(parameters=[*others, *options.values()])
    return run
