"""What can go wrong in the shell, each told in one line."""

import sys
import warnings

import typer


class OneLineErrors(typer.core.TyperGroup):
    """Commands that tell a user's mistake in one line and exit with status 1.

    `--debug` shows where it came from instead. What is no user's mistake comes with
    a traceback always.
    """

    def invoke(self, ctx):
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            warnings.simplefilter("default", UserWarning)
            try:
                return super().invoke(ctx)
            except BrokenPipeError:
                raise  # whoever read the output has had enough
            except (ValueError, OSError, FloatingPointError) as error:
                if ctx.params.get("debug"):
                    raise
                say(f"Error: {_in_one_line(error)}")
                raise typer.Exit(1) from None


def say(line: str) -> None:
    """Prints a line on standard error, where it is in nobody's way."""
    typer.echo(line, err=True)


def _in_one_line(error):
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror}."
    return " ".join(str(error).split())


def _show_warning(message, category, filename, lineno, file=None, line=None):
    if issubclass(category, UserWarning):
        sys.stdout.flush()
        say(f"Warning: {' '.join(str(message).split())}")
