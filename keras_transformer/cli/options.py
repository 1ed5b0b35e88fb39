"""Arguments and options that several commands take, and the search that they choose."""

import functools
import inspect
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, get_type_hints

import typer

from keras_transformer.version import __version__


def _print_version(is_asked: bool):
    if is_asked:
        typer.echo(f"keras-transformer {__version__}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version",
        help="Show the version and exit.",
        callback=_print_version,
        is_eager=True,
    ),
]
Debug = Annotated[
    bool, typer.Option("--debug", help="Show the full traceback of an error.")
]
Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="Folder of a run, a saved translator or a checkpoint in Hugging Face's "
        "layout; hf://user/model; or a checkpoint of a run, such as "
        "runs/en-de/checkpoints/best.keras.",
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        help="Folder that the file names in the recipe are relative to.", metavar="DIR"
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Any setting of the recipe, such as training.early_stopping=5. Can be "
        "repeated.",
        metavar="NAME=VALUE",
    ),
]
Engine = Annotated[
    Literal["auto", "tensorflow", "ctranslate2"],
    typer.Option(
        help="Inference engine. CTranslate2 starts sooner and is several times as fast "
        "on CPUs; the model is exported for it once, to its folder. `auto` uses it if "
        "it is installed and supports the request, otherwise TensorFlow."
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        help="Number of sentences to translate at a time; more take more memory. "
        "[default: the fastest number]",
        min=1,
    ),
]


class SearchOptions(NamedTuple):
    """The options that change a translator's search, in every command that has one."""

    beam_width: Annotated[
        int | None,
        typer.Option(
            help="Beam width; 1 is greedy search. [default: the translator's]", min=1
        ),
    ] = None
    length_penalty: Annotated[
        float | None,
        typer.Option(
            help="Exponent of the length penalty; larger values favour longer "
            "translations. [default: the translator's]",
            min=0,
        ),
    ] = None
    min_length: Annotated[
        int | None,
        typer.Option(
            help="Minimum number of subwords, including the end token.",
            min=1,
        ),
    ] = None
    max_length_ratio: Annotated[
        float | None,
        typer.Option(
            help="Maximum length as a multiple of the source's, such as 1.5; "
            "translations end there at the latest.",
            min=0,
        ),
    ] = None
    no_repeat_ngram_size: Annotated[
        int | None,
        typer.Option(
            help="Never repeat a sequence of this many subwords, such as 3.", min=1
        ),
    ] = None
    repetition_penalty: Annotated[
        float | None,
        typer.Option(
            help="Penalty for subwords that the translation already contains; 1 has no "
            "effect, 1.2 is usual.",
            min=1,
        ),
    ] = None
    max_length: Annotated[
        int | None,
        typer.Option(
            help="Maximum length in subwords; longer translations are cut. [default: "
            "twice the padded length of its source]",
            min=1,
        ),
    ] = None


UNCHANGED = SearchOptions()


def with_search_options(command=None, *, without=""):
    """Gives a command the options of a search, as its argument `search_options`.

    `without` names an option that the command does not have.
    """
    if command is None:
        return functools.partial(with_search_options, without=without)
    parameters = inspect.signature(command).parameters
    place = parameters["search_options"]
    hints = get_type_hints(SearchOptions, include_extras=True)
    hints.pop(without, None)
    more = [place.replace(name=x, annotation=y, default=None) for x, y in hints.items()]
    expanded = [y for x in parameters.values() for y in (more if x is place else [x])]

    @functools.wraps(command)
    def run(**given):
        options = SearchOptions(**{name: given.pop(name, None) for name in hints})
        return command(**given, search_options=options)

    run.__signature__ = inspect.Signature(expanded)
    run.__annotations__ = {each.name: each.annotation for each in expanded}
    return run


Glossary = Annotated[
    Path | None,
    typer.Option(
        help="File of terms that translations must contain: lines with a source term, "
        "a tab and a target term. Lower-case terms match in any case.",
        metavar="FILE",
    ),
]
Keep = Annotated[
    list[str] | None,
    typer.Option(
        help="What to copy unchanged: url, email, number, placeholder, emoji or a "
        "regular expression (RE2). Can be repeated.",
        metavar="PATTERN",
    ),
]


def why_tensorflow(engine: str, options: dict[str, object]) -> str:
    """Returns which given option only TensorFlow supports, or `""`."""
    needing = "attention", "alignments", "markup", "glossary", "keep", "jit-compile"
    given = next((name for name in needing if options.get(name)), "")
    if given and engine == "ctranslate2":
        message = f"needs TensorFlow. Leave out --engine {engine}."
        raise typer.BadParameter(message, param_hint=f"--{given}")
    return given and f"--{given} needs it"


def changed_search(
    search,
    options: SearchOptions,
    num_hypotheses: int | None = None,
    all_hypotheses: bool = False,
):
    """Returns a translator's search, changed by the options that were given.

    Its beam is at least as wide as the number of hypotheses. With `all_hypotheses`, a
    beam search returns as many as its beam is wide.
    """
    from keras_transformer import decoding

    beam_width, length_penalty, *_ = options
    limits = {
        decoding.MinimumLength: options.min_length,
        decoding.MaximumLength: options.max_length_ratio,
        decoding.NoRepeatNgram: options.no_repeat_ngram_size,
        decoding.RepetitionPenalty: options.repetition_penalty,
    }
    given = [kind(value) for kind, value in limits.items() if value is not None]
    if given:
        replaced = set(map(type, given))
        kept = [one for one in search.processors if type(one) not in replaced]
        search = search.replace(processors=[*kept, *given])
    num_hypotheses = num_hypotheses or 1
    if beam_width or length_penalty is not None or num_hypotheses > 1:
        beam_width = max(beam_width or search.num_slots, num_hypotheses)
        if beam_width == 1 and length_penalty is not None:
            problem = "needs a beam. Add --beam-width, such as 5."
            raise typer.BadParameter(problem, param_hint="--length-penalty")
        from keras_transformer.runs.run import with_beam

        search = with_beam(search, beam_width, length_penalty)
    if all_hypotheses and isinstance(search, decoding.BeamSearch):
        num_hypotheses = search.beam_width
    if num_hypotheses == 1:
        return search
    return search.replace(num_hypotheses=num_hypotheses)
