"""Name on the package index, and version: setup.py reads both without importing."""

# `keras-transformer` is another project there.
DISTRIBUTION = "keras3-transformer"
__version__ = "0.1.0"
