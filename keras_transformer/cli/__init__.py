"""The shell: `keras-transformer`."""

from keras_transformer.cli.commands import app

__all__ = ["app", "main"]


def main() -> None:
    """Runs the shell; the entry point of `keras-transformer`."""
    app()
