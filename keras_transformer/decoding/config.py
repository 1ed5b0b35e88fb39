"""Objects that are saved, compared and printed by their constructor arguments."""

import inspect
import json

import keras
from keras import ops


class ConfigObject:
    """Base class of searches, processors and length penalties.

    Objects with equal settings are equal, so a program compiled for one serves the
    other. Subclasses store every constructor argument under its own name.
    """

    def get_config(self):
        names = inspect.signature(type(self)).parameters
        serialize = keras.saving.serialize_keras_object
        return {name: serialize(_as_lists(getattr(self, name))) for name in names}

    @classmethod
    def from_config(cls, config):
        deserialize = keras.saving.deserialize_keras_object
        return cls(**{name: deserialize(value) for name, value in config.items()})

    def __eq__(self, other):
        return type(self) is type(other) and self.get_config() == other.get_config()

    def __hash__(self):
        return hash((type(self), json.dumps(self.get_config(), sort_keys=True)))

    def __repr__(self):
        names = inspect.signature(type(self)).parameters
        settings = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__name__}({settings})"


def _as_lists(value):
    """Returns a tensor, or tuples at any depth, as lists."""
    if ops.is_tensor(value):
        return ops.convert_to_numpy(value).tolist()
    return [_as_lists(x) for x in value] if isinstance(value, tuple | list) else value
