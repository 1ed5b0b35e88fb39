"""The options that control decoding, shared by several commands."""

import functools
import inspect
from dataclasses import dataclass
from typing import Annotated

import typer

from keras_transformer.cli.options import option

BeamWidth = Annotated[
    int | None,
    option("Beam width; 1 is greedy search. [default: the translator's]", min=1),
]
LengthPenalty = Annotated[
    float | None,
    option(
        "Exponent of the length penalty; larger values favour longer translations. "
        "[default: the translator's]",
        min=0,
    ),
]


@dataclass(frozen=True)
class DecodingOptions:
    """The options that choose a search; None where an option is not given."""

    beam_width: BeamWidth = None
    length_penalty: LengthPenalty = None
    min_length: Annotated[
        int | None,
        option(
            "Minimum length of a translation in subwords, end token included.",
            min=1,
        ),
    ] = None
    max_length: Annotated[
        int | None,
        option(
            "Maximum length, beyond which a translation is cut. [default: twice the "
            "padded length of its source]",
            min=1,
        ),
    ] = None
    max_length_ratio: Annotated[
        float | None,
        option(
            "Maximum length as a multiple of the source's, such as 1.5, at which a "
            "translation has to end.",
            min=0,
        ),
    ] = None
    no_repeat_ngram_size: Annotated[
        int | None,
        option("Never repeat a sequence of this many subwords, such as 3.", min=1),
    ] = None
    repetition_penalty: Annotated[
        float | None,
        option(
            "Make subwords less likely that a translation already contains; 1 has no "
            "effect, 1.2 is usual.",
            min=1,
        ),
    ] = None

    def search(self, translator, num_samples: int | None = None):
        """Returns the search of a `Translator`, changed by the options given.

        With `num_samples`, it draws so many translations of each text instead.
        """
        from keras_transformer import decoding
        from keras_transformer.runs.folder import with_beam

        search = translator.search
        options = {
            decoding.MinimumLength: self.min_length,
            decoding.MaximumLength: self.max_length_ratio,
            decoding.NoRepeatNgram: self.no_repeat_ngram_size,
            decoding.RepetitionPenalty: self.repetition_penalty,
        }
        given = {kind: value for kind, value in options.items() if value is not None}
        kept = [one for one in search.processors if type(one) not in given]
        processors = [*kept, *(kind(x) for kind, x in given.items())]
        is_changed = self.beam_width is not None or self.length_penalty is not None
        if num_samples is not None:
            if is_changed:
                raise typer.BadParameter(
                    "cannot be combined with --beam-width or --length-penalty.",
                    param_hint="--mbr",
                )
            # Label smoothing leaves some probability to tokens that are all wrong.
            return decoding.Sampling(
                top_p=0.9,
                seed=1,
                num_hypotheses=num_samples,
                processors=processors,
                end_ids=search.end_ids,
            )
        search = search.replace(processors=processors)
        if not is_changed:
            return search
        beam_width = self.beam_width or search.num_slots
        if beam_width == 1 and self.length_penalty is not None:
            raise typer.BadParameter(
                "needs a beam. Add --beam-width, such as 5.",
                param_hint="--length-penalty",
            )
        return with_beam(search, beam_width, self.length_penalty)


def check_one_choice(mbr: int | None, rerank: str | None):
    """Checks that at most one way to choose among translations is given."""
    if mbr is not None and rerank is not None:
        raise typer.BadParameter(
            "cannot be combined with --rerank.", param_hint="--mbr"
        )


def choice(num_samples: int | None):
    """Returns what chooses among the translations of a text; None for the first."""
    from keras_transformer.translator import minimum_bayes_risk

    return None if num_samples is None else minimum_bayes_risk


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
