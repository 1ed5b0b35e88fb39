"""Arguments and options that several commands take, and the search that they choose."""

from pathlib import Path
from typing import Annotated

import typer


def argument(metavar: str, text: str):
    """Returns the description of an argument, for its annotation."""
    return typer.Argument(metavar=metavar, help=text)


def option(text: str, *names: str, **settings):
    """Returns the description of an option, for its annotation.

    `names` such as `"-o"` replace the parameter's name; `settings` are further
    arguments of `typer.Option`.
    """
    return typer.Option(*names, help=text, **settings)


def output_file(text: str):
    """Returns the description of `--output`, the file that a command writes."""
    return option(text, "--output", "-o", metavar="FILE")


Debug = Annotated[bool, option("Show the full traceback of an error.", "--debug")]
Model = Annotated[
    str,
    argument(
        "MODEL",
        "Folder of a run, of a saved translator, of a checkpoint in Hugging Face's "
        "layout or of a Marian model; hf://user/model; or a checkpoint of a run, such "
        "as runs/en-de/checkpoints/best.keras.",
    ),
]
Data = Annotated[
    Path | None,
    option(
        "Folder that the file names in the recipe are relative to.",
        metavar="DIR",
    ),
]
Settings = Annotated[
    list[str] | None,
    option(
        "Any setting of the recipe, such as training.early_stopping=5. May be given "
        "several times.",
        "--set",
        metavar="NAME=VALUE",
    ),
]
BatchSize = Annotated[
    int | None,
    option(
        "Sentences to translate at a time, which memory limits. [default: what is "
        "fastest]",
        min=1,
    ),
]
MaxLength = Annotated[
    int | None,
    option(
        "Maximum length, beyond which a translation is cut. [default: twice the "
        "padded length of its source]",
        min=1,
    ),
]
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
MinLength = Annotated[
    int | None,
    option(
        "Minimum length of a translation in subwords, end token included.",
        min=1,
    ),
]
MaxLengthRatio = Annotated[
    float | None,
    option(
        "Maximum length as a multiple of the source's, such as 1.5, at which a "
        "translation has to end.",
        min=0,
    ),
]
NoRepeatNgramSize = Annotated[
    int | None,
    option("Never repeat a sequence of this many subwords, such as 3.", min=1),
]
RepetitionPenalty = Annotated[
    float | None,
    option(
        "Make subwords less likely that a translation already contains; 1 has no "
        "effect, 1.2 is usual.",
        min=1,
    ),
]


def changed_search(
    search,
    beam_width: int | None = None,
    length_penalty: float | None = None,
    min_length: int | None = None,
    max_length_ratio: float | None = None,
    no_repeat_ngram_size: int | None = None,
    repetition_penalty: float | None = None,
):
    """Returns a translator's search, changed by the options that were given."""
    from keras_transformer import decoding

    options = {
        decoding.MinimumLength: min_length,
        decoding.MaximumLength: max_length_ratio,
        decoding.NoRepeatNgram: no_repeat_ngram_size,
        decoding.RepetitionPenalty: repetition_penalty,
    }
    given = {kind: value for kind, value in options.items() if value is not None}
    if given:
        kept = [one for one in search.processors if type(one) not in given]
        processors = [*kept, *(kind(value) for kind, value in given.items())]
        search = search.replace(processors=processors)
    if beam_width is None and length_penalty is None:
        return search
    beam_width = beam_width or search.num_slots
    if beam_width == 1 and length_penalty is not None:
        raise typer.BadParameter(
            "needs a beam. Add --beam-width, such as 5.", param_hint="--length-penalty"
        )
    from keras_transformer.runs.folder import with_beam

    return with_beam(search, beam_width, length_penalty)
