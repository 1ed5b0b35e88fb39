"""Arguments and options that several commands take."""

from pathlib import Path
from typing import Annotated

import typer

Debug = Annotated[
    bool, typer.Option("--debug", help="Show where in the code an error arose.")
]
Model = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        help="Folder of a run, or of a translator that was saved.",
        show_default=False,
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder that the file names of the recipe start from.",
        show_default=False,
    ),
]
BeamWidth = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Hypotheses that beam search keeps; 1 searches greedily. "
        "[default: the run's, else 4]",
        show_default=False,
    ),
]
LengthPenalty = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="How much longer translations are favoured. "
        "[default: the run's, else 0.6]",
        show_default=False,
    ),
]
MinLength = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Fewest subwords of a translation, end symbol included.",
        show_default=False,
    ),
]
MaxLength = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Most subwords of a translation, end symbol included; what is not at its "
        "end is cut. [default: twice those of the source, or more]",
        show_default=False,
    ),
]
MaxLengthRatio = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="Most subwords of a translation for each of its source, such as 1.5: "
        "there it has to end.",
        show_default=False,
    ),
]
NoRepeatNgramSize = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Subwords that never come twice in the same order, such as 3: against "
        "translations that repeat themselves.",
        show_default=False,
    ),
]
RepetitionPenalty = Annotated[
    float | None,
    typer.Option(
        min=1,
        help="How much less likely subwords become that the translation has already; "
        "1 changes nothing, 1.2 is usual.",
        show_default=False,
    ),
]
BatchSize = Annotated[
    int, typer.Option(min=1, help="Sentences that are translated at once.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any setting of the recipe, such as training.early_stopping=5. May be "
        "given several times.",
    ),
]
