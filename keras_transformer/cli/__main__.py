"""Runs the shell where it is not installed: `python -m keras_transformer.cli`."""

from keras_transformer.cli import main

main()
