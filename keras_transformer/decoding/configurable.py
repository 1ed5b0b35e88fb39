"""Objects that are nothing but their settings."""

import json

import keras


class Configurable:
    """Compares, hashes and prints an object by its class and its config.

    Two searches with equal settings are equal, so that a function compiled for
    one serves the other. Subclasses offer `get_config`, as Keras objects do.
    """

    def get_config(self):
        return {}

    @classmethod
    def from_config(cls, config):
        return cls(**config)

    def __eq__(self, other):
        return type(self) is type(other) and self.get_config() == other.get_config()

    def __hash__(self):
        return hash((type(self), json.dumps(self.get_config(), sort_keys=True)))

    def __repr__(self):
        settings = ", ".join(f"{k}={v!r}" for k, v in self.get_config().items())
        return f"{type(self).__name__}({settings})"


def serialize_all(objects):
    """Turns a sequence of serialisable objects into a list for a config."""
    return [keras.saving.serialize_keras_object(one) for one in objects]


def deserialize_all(configs):
    """Turns what `serialize_all` wrote back into a tuple of objects."""
    return tuple(
        keras.saving.deserialize_keras_object(one) if isinstance(one, dict) else one
        for one in configs
    )
