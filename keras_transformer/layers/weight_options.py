"""Initializers, regularizers and constraints of the kernels and biases in a layer."""

import zlib

import keras

_KINDS = {
    "initializer": keras.initializers,
    "regularizer": keras.regularizers,
    "constraint": keras.constraints,
}
_GETTERS = {
    f"{weight}_{kind}": module
    for kind, module in _KINDS.items()
    for weight in ("kernel", "bias")
}


class WeightOptionsLayer(keras.layers.Layer):
    """Base class of layers that take the weight options of `keras.layers.Dense`.

    The options are keyword arguments of the constructor, and apply to the kernel and
    the bias of every dense layer inside: `kernel_initializer`, `bias_initializer`,
    `kernel_regularizer`, `bias_regularizer`, `kernel_constraint` and
    `bias_constraint`, each a Keras object, a name or a config. Those that are not
    given keep the default of `keras.layers.Dense`, and stay out of the config.

    Args:
        **kwargs: Weight options, and base `Layer` arguments.
    """

    def __init__(self, **kwargs):
        given = {name: kwargs.pop(name) for name in _GETTERS if name in kwargs}
        super().__init__(**kwargs)
        self._weight_options = {
            name: _GETTERS[name].get(value) for name, value in given.items()
        }

    @property
    def weight_options(self) -> dict:
        """The options given, to be passed to a sub-layer: every initializer a copy.

        An initializer returns the same numbers at each call, so two kernels must not
        share one.
        """
        return {name: _copied(value) for name, value in self._weight_options.items()}

    def get_config(self):
        options = {
            name: _GETTERS[name].serialize(value)
            for name, value in self._weight_options.items()
        }
        return {**super().get_config(), **options}


def _copied(value):
    return value.clone() if isinstance(value, keras.initializers.Initializer) else value


def sub_seed(seed: int | None, name: str) -> int | None:
    """The seed of the sub-layer `name` in a layer with this seed; None for None.

    Sub-layers of different names draw different random numbers.
    """
    return None if seed is None else zlib.crc32(f"{seed}/{name}".encode())
