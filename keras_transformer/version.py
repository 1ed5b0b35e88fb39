"""The package's version, in a file that setup.py reads without importing."""

__version__ = "0.1.0"
