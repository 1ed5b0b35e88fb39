"""`keras-transformer plot`."""

from pathlib import Path
from typing import Annotated

import typer

from keras_transformer.cli import options
from keras_transformer.cli.loading import check_models, load_tensorflow, load_translator
from keras_transformer.storage import replace_file, write_text

_PAGE = ".html"
Output = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Picture to write, such as out.png, out.svg or out.pdf; for attention "
        "also out.html, an interactive page with every layer, head and word.",
    ),
]

plot = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")


@plot.callback()
def about():
    """Draw attention and training curves."""


@plot.command()
@options.with_search_options
def attention(
    model: options.Model,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Sentence to translate.")],
    output: Output,
    num_hypotheses: Annotated[
        int,
        typer.Option(help="Number of best translations to compare, in HTML.", min=1),
    ] = 1,
    against: Annotated[
        str | None,
        typer.Option(help="Another model to compare with, in HTML.", metavar="MODEL"),
    ] = None,
    search_options: options.SearchOptions = options.UNCHANGED,
):
    """Draw the attention from a translation to its source.

    An HTML page can compare the best translations of a beam, or of two models.

    Examples: `keras-transformer plot attention runs/en-de "A man rides." -o out.html`,
    with `--num-hypotheses 2` or `--against runs/en-de-2`
    """
    check_picture(output, page=True)
    models = [model] if against is None else [model, against]
    compares = against is not None or num_hypotheses > 1
    if compares and output.suffix.lower() != _PAGE:
        raise ValueError(f"Comparing needs an .html file. Received: {output}.")
    check_models(*models)
    translators = [load_translator(each) for each in models]
    how = search_options, num_hypotheses
    searches = [options.changed_search(x.search, *how) for x in translators]
    max_length = search_options.max_length
    if compares:
        from keras_transformer import plots

        seen, names = [], []
        for name, one, search in zip(models, translators, searches, strict=True):
            found = plots.translate_n_best_with_attention(one, text, search, max_length)
            seen += found
            names += [name] * len(found)
        page = plots.attention_html(*seen, names=names if against else ())
        write_text(output, page)
    else:
        write_attention(output, translators[0], text, searches[0], max_length)
    typer.echo(f"The attention is in {output}.", err=True)


@plot.command()
def training(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN",
            help="Folder of a run, or a file written by Keras's CSVLogger.",
        ),
    ],
    output: Output,
):
    """Draw the loss and every metric of a training run by epoch.

    Example: `keras-transformer plot training runs/en-de -o curves.png`
    """
    check_picture(output)
    log = run / "log.csv" if run.is_dir() else run
    if not log.is_file():
        raise FileNotFoundError(f"{log} does not exist. Pass a run that has begun.")
    load_tensorflow()
    from keras_transformer.plots import training_curves

    _save(training_curves(log), output)
    typer.echo(f"The curves are in {output}.", err=True)


def check_picture(path: Path, page: bool = False) -> None:
    """Raises `ValueError` if Matplotlib cannot write a file of this name.

    Commands call it before they compute anything. With `page`, HTML is allowed too.
    """
    from matplotlib.figure import Figure

    suffix = path.suffix.lower()
    if page and suffix == _PAGE:
        return
    if suffix[1:] not in Figure().canvas.get_supported_filetypes():
        known = f".png, .svg, .pdf or {_PAGE}" if page else ".png, .svg or .pdf"
        raise ValueError(f"{path} is not a picture file. Its name must end in {known}.")


def write_attention(path: Path, *translation) -> None:
    """Writes the attention of a translation as a picture or an HTML page.

    `translation` are the arguments of `plots.translate_with_attention`.
    """
    from keras_transformer import plots

    if path.suffix.lower() == _PAGE:
        seen = plots.translate_with_attention(*translation)
        write_text(path, plots.attention_html(seen))
    else:
        _save(plots.translation_attention(*translation), path)


def _save(figure, path):
    with replace_file(path) as unfinished:
        figure.savefig(unfinished, dpi=150)
