"""Objects that are saved, compared and printed by their constructor arguments."""

import inspect
import json

import keras


class ConfigObject:
    """Base class of searches, processors and length penalties.

    Objects with equal settings are equal, so a program compiled for one serves the
    other. Subclasses store every constructor argument under its own name.
    """

    def get_config(self):
        config = {}
        for name in inspect.signature(type(self)).parameters:
            value = getattr(self, name)
            value = list(value) if isinstance(value, tuple) else value
            config[name] = keras.saving.serialize_keras_object(value)
        return config

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
