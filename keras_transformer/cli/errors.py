"""Errors and warnings of the command line, each in one line."""

import sys
import warnings

import typer

# An extra that is not installed is an ImportError.
_MISTAKES = (ValueError, OSError, FloatingPointError, ImportError)


class OneLineErrors(typer.core.TyperGroup):
    """Commands that report a user's mistake in one line and exit with status 1.

    With `--debug` they show its traceback instead. Errors of any other kind always come
    with a traceback.
    """

    def invoke(self, ctx):
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            warnings.simplefilter("default", UserWarning)
            try:
                return super().invoke(ctx)
            except BrokenPipeError:
                raise  # the reader of the output has closed it, which is no error
            except _MISTAKES as error:
                if ctx.params.get("debug"):
                    raise
                typer.echo(f"Error: {_in_one_line(error)}", err=True)
                raise typer.Exit(1) from None


def _in_one_line(error):
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror}."
    return " ".join(str(error).split())


def _show_warning(message, category, filename, lineno, file=None, line=None):
    if issubclass(category, UserWarning):
        sys.stdout.flush()
        typer.echo(f"Warning: {' '.join(str(message).split())}", err=True)
