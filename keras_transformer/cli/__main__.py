"""Runs the command line without its installed script: `python -m ...cli`."""

from keras_transformer.cli import main

main()
