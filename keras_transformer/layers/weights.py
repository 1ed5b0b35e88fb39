"""The base class of layers with weights: their options, their seeds, and saving."""

import inspect
import zlib

import keras

from keras_transformer.kernels.rematerialization import RematerializedMixin
from keras_transformer.layers.saving import modifications_inside, modify_inside

_OPTIONS = {
    "initializer": keras.initializers,
    "regularizer": keras.regularizers,
    "constraint": keras.constraints,
}


class WeightOptions:
    """The initializers, regularizers and constraints among keyword arguments.

    Args:
        arguments: Keyword arguments, from which the options of the kinds are removed.
        kinds: Kinds of weights. For `"kernel"` these are the options
            `kernel_initializer`, `kernel_regularizer` and `kernel_constraint`.
    """

    def __init__(self, arguments: dict, kinds):
        self._values = {}
        for kind in kinds:
            for option, module in _OPTIONS.items():
                name = f"{kind}_{option}"
                if name in arguments:
                    self._values[name] = module.get(arguments.pop(name))

    def of(self, *kinds: str, name: str) -> dict:
        """Returns a part's options, for these or all kinds of weights.

        A seeded initializer returns the same numbers at each call. To give each weight
        different numbers, parts get copies, with seeds derived from the seed, the
        `name` of the part and the kind of weight.
        """
        return {
            option: _copied(value, f"{name}/{option}")
            for option, value in self._values.items()
            if not kinds or option.rpartition("_")[0] in kinds
        }

    def get_config(self) -> dict:
        """Returns the options given, as a config holds them."""
        return {
            name: _OPTIONS[name.rsplit("_")[-1]].serialize(value)
            for name, value in self._values.items()
        }


def _copied(value, name):
    if not isinstance(value, keras.initializers.Initializer) or isinstance(
        getattr(value, "seed", None), keras.random.SeedGenerator
    ):  # The numbers of a seed generator differ at each call.
        return value
    config = value.get_config()
    if isinstance(config.get("seed"), int):
        config["seed"] = sub_seed(config["seed"], name)
    return type(value).from_config(config)


class WeightOptionsLayer(RematerializedMixin, keras.layers.Layer):
    """Base class of layers whose weights take the options of `keras.layers.Dense`.

    The options are keyword arguments of the constructor: `kernel_initializer`,
    `kernel_regularizer` and `kernel_constraint` apply to every kernel inside,
    `bias_initializer`, `bias_regularizer` and `bias_constraint` to every bias. Each is
    a Keras object, a name or a config. Options that are not given keep the weight's
    default, and are not in the config.

    Layer normalizations inside, and a `score` or `positions` passed as a layer, are not
    affected. An initializer with a seed gives each weight a seed derived from it.

    Saving keeps the layers inside quantized, adapted or frozen.

    A subclass passes `**self.weight_options.of(name=name)` to its sub-layers, with a
    different name for each, or creates weights with `add_weight_with_options`.

    Args:
        **kwargs: Weight options, and base `Layer` arguments.

    Example:
        >>> layer = kt.layers.FeedForward(64, kernel_regularizer="l2")
        >>> layer.build((2, 5, 16))
        >>> len(layer.losses)
        2
    """

    def __new__(cls, *args, **kwargs):
        # Python's own error names the class that has the constructor, a base class.
        try:
            inspect.signature(cls.__init__).bind(None, *args, **kwargs)
        except TypeError as error:
            given = [*map(repr, args), *(f"{x}={y!r}" for x, y in kwargs.items())]
            received = ", ".join(given) or "nothing"
            message = f"{cls.__name__}: {error}. Received: {received}."
            raise TypeError(message) from None
        return super().__new__(cls, *args, **kwargs)

    weight_kinds: tuple[str, ...] = ("kernel", "bias")

    def __init__(self, **kwargs):
        options = WeightOptions(kwargs, self.weight_kinds)
        super().__init__(**kwargs)
        self.weight_options = options

    def add_weight_with_options(
        self, kind: str, shape, initializer: str, name: str | None = None
    ):
        """Adds a weight of a kind, with its options. Default name: the kind.

        `initializer` is the default of the option.
        """
        name = name or kind
        given = self.weight_options.of(kind, name=name)
        options = {option.removeprefix(f"{kind}_"): given[option] for option in given}
        return self.add_weight(
            shape, **{"initializer": initializer, **options}, name=name
        )

    def get_config(self):
        return {**super().get_config(), **self.weight_options.get_config()}

    def get_build_config(self):
        config, found = super().get_build_config(), modifications_inside(self)
        return {**config, "inside": found} if found else config

    def build_from_config(self, config):
        config = dict(config)
        found = config.pop("inside", {})
        super().build_from_config(config)
        modify_inside(self, found)


def sub_seed(seed: int | None, name: str) -> int | None:
    """The seed of the sub-layer `name` in a layer with this seed; None for None.

    Sub-layers of different names draw different random numbers.
    """
    if seed is None:
        return None
    # Keras stores seeds as int32 on PyTorch.
    return zlib.crc32(f"{seed}/{name}".encode()) & (2**31 - 1)
