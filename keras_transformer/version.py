"""Name and version, which setup.py reads without importing, and how to install."""

# `keras-transformer` is another project there.
DISTRIBUTION = "keras3-transformer"
__version__ = "0.1.0"
# Until a release is on the index; the workflow "Publish" writes what holds then.
INSTALL = 'in a checkout, pip install ".[{extra}]"'
