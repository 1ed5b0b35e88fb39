"""`keras-transformer plot`."""

from pathlib import Path
from typing import Annotated

import typer

from keras_transformer.cli.loading import load_tensorflow
from keras_transformer.cli.models import choose_search, load_translator
from keras_transformer.cli.options import BeamWidth, LengthPenalty, Model
from keras_transformer.cli.pictures import check_picture, write_attention

Output = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Picture to write, such as out.png, out.svg or out.pdf.",
        show_default=False,
    ),
]

plot = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")


@plot.callback()
def about():
    """Draw attention, trainings, positions and learning rates."""


@plot.command()
def attention(
    model: Model,
    text: Annotated[
        str,
        typer.Argument(
            metavar="TEXT", help="Sentence to translate.", show_default=False
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Picture to write, such as out.png or out.pdf; or out.html, a page "
            "on which to see every layer, head and word.",
            show_default=False,
        ),
    ],
    beam_width: BeamWidth = None,
    length_penalty: LengthPenalty = None,
):
    """Draw which parts of a sentence its translation comes from.

    Example: `keras-transformer plot attention runs/en-de "A man rides." -o out.html`
    """
    check_picture(output, page=True)
    translator = load_translator(model)
    search = choose_search(model, beam_width, length_penalty)
    write_attention(translator, text, search, output)


@plot.command()
def training(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN",
            help="Folder of a run, or a log of Keras's CSVLogger.",
            show_default=False,
        ),
    ],
    output: Output,
):
    """Draw the loss and every metric of a training, epoch by epoch.

    Example: `keras-transformer plot training runs/en-de -o curves.png`
    """
    check_picture(output)
    load_tensorflow()
    from keras_transformer.plots import training_curves

    log = run / "log.csv" if run.is_dir() else run
    training_curves(log).savefig(output, dpi=150)


@plot.command()
def positions(
    output: Output,
    length: Annotated[int, typer.Option(min=1, help="Number of positions.")] = 64,
    dim: Annotated[int, typer.Option(min=1, help="Width of the encoding.")] = 128,
):
    """Draw the table of sinusoids that tells positions apart.

    Example: `keras-transformer plot positions -o positions.png`
    """
    check_picture(output)
    load_tensorflow()
    import numpy as np

    from keras_transformer.layers import SinusoidalPositionalEncoding
    from keras_transformer.plots import position_table

    table = SinusoidalPositionalEncoding()(np.zeros((1, length, dim), "float32"))
    position_table(table[0]).savefig(output, dpi=150)


@plot.command()
def schedule(
    output: Output,
    learning_rate: Annotated[float, typer.Option(help="The highest rate.")] = 1e-3,
    warmup_steps: Annotated[int, typer.Option(help="Steps until that.")] = 4000,
    steps: Annotated[int, typer.Option(help="Steps to draw.")] = 20000,
):
    """Draw the learning rate over the steps of a training.

    Example: `keras-transformer plot schedule --warmup-steps 1000 -o schedule.png`
    """
    check_picture(output)
    load_tensorflow()
    from keras_transformer.plots import learning_rate as draw
    from keras_transformer.training import InverseSquareRootSchedule

    # The width scales the paper's rates only; with a peak given, it cancels out.
    rates = InverseSquareRootSchedule.with_peak(learning_rate, 1, warmup_steps)
    draw(rates, steps).savefig(output, dpi=150)
