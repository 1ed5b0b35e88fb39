"""Settings of another system's model: each one must be understood."""

import numbers
from collections.abc import Mapping


class Config:
    """Settings whose every value must be used; values of None count as missing.

    `values` leave out settings without effect. `path` is the path of their file.
    """

    def __init__(self, values: Mapping, path):
        self._unused = {k: v for k, v in values.items() if v is not None}
        self._path = path

    def take(self, name: str, *default):
        """Returns a value, or the default; raises `ValueError` without either."""
        if name not in self._unused and not default:
            raise ValueError(f"{self._path} has no {name!r}.")
        return self._unused.pop(name, *default)

    def take_number(self, name: str, *default, kind=numbers.Integral):
        """Returns a value as `take` does; raises `ValueError` if it is of no `kind`."""
        value = self.take(name, *default)
        if not isinstance(value, kind) and (value,) != default:
            noun = "an integer" if kind is numbers.Integral else "a number"
            raise ValueError(
                f"{self._path} must have {noun} as {name!r}. "
                f"Received: {name}={value!r}."
            )
        return value

    def expect(self, name: str, *allowed, default=None):
        """Returns a value; raises `ValueError` if it is not one of `allowed`."""
        value = self._unused.pop(name, default)
        if value is not None and value not in allowed:
            raise ValueError(
                f"{self._path} must have {name}={' or '.join(map(repr, allowed))} to "
                f"be a Transformer of this package. Received: {name}={value!r}."
            )
        return value

    def check_all_used(self) -> None:
        """Raises `ValueError` if there are values that were not used."""
        if self._unused:
            raise ValueError(
                f"{self._path} has values that are not understood: {self._unused}. "
                "Remove them if they have no effect on the model."
            )
