"""Errors and warnings of the command line, each in one line."""

import errno
import os
import sys
import traceback
import warnings

import typer

# An extra that is not installed is an ImportError.
_MISTAKES = (ValueError, OSError, FloatingPointError, ImportError)
_REMEDIES = {
    errno.ENOSPC: " Free some space, or choose a folder on another disk.",
    errno.EACCES: " Check its permissions, or choose another path.",
}


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
                raise  # whoever reads the output has closed it, which is not an error
            except Exception as error:
                message = None if ctx.params.get("debug") else _in_one_line(error)
                if message is None:
                    raise
                typer.echo(f"Error: {message}", err=True)
                raise typer.Exit(1) from None


def _in_one_line(error):
    """Returns the message of a user's mistake, or None for any other error."""
    is_exhausted = type(error).__name__ == "ResourceExhaustedError"
    full_disk = os.strerror(errno.ENOSPC)
    if is_exhausted and full_disk in str(error):
        return f"{full_disk}.{_REMEDIES[errno.ENOSPC]}"
    if is_exhausted or isinstance(error, MemoryError):
        return (
            "Out of memory. Translate fewer sentences at a time (--batch-size), or "
            "train on fewer tokens at a time (--set training.tokens_per_batch=1024). "
            'See "Out of memory" in docs/when_it_goes_wrong.md.'
        )
    if not isinstance(error, _MISTAKES):
        return None
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror}.{_REMEDIES.get(error.errno, '')}"
    message = " ".join(str(error).split())
    *_, (innermost, _) = traceback.walk_tb(error.__traceback__)
    if innermost.f_globals.get("__name__", "").startswith("keras_transformer."):
        return message
    return f"{message} (To see the traceback: keras-transformer --debug ...)"


def _show_warning(message, category, filename, lineno, file=None, line=None):
    if issubclass(category, UserWarning):
        sys.stdout.flush()
        typer.echo(f"Warning: {' '.join(str(message).split())}", err=True)
