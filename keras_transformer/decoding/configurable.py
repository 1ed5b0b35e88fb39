"""Objects that are equal if their settings are."""

import inspect
import json
import math
import numbers


class Configurable:
    """Compares, hashes and prints an object by its class and its config.

    Two searches with equal settings are equal, so that a function compiled for
    one serves the other. Subclasses store every constructor argument under its
    own name, where `get_config` finds it.
    """

    def get_config(self):
        names = inspect.signature(type(self)).parameters
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_config(cls, config):
        return cls(**config)

    def __eq__(self, other):
        return type(self) is type(other) and self.get_config() == other.get_config()

    def __hash__(self):
        return hash((type(self), json.dumps(self.get_config(), sort_keys=True)))

    def __repr__(self):
        names = self.get_config()
        settings = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__name__}({settings})"


def is_finite_number(value) -> bool:
    """Returns whether a setting is a finite number, rather than a str or a list."""
    return isinstance(value, numbers.Real) and math.isfinite(value)
