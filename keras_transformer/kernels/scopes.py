"""Values that hold while a block of code runs."""

import contextlib


@contextlib.contextmanager
def holding(variable, value=True):
    """Sets a `contextvars.ContextVar` within a `with` block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
