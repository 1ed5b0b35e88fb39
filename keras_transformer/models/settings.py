"""What models have in common that are made again from their settings."""

import keras

from keras_transformer.checks import check_ids
from keras_transformer.kernels.batch_slices import BatchSlicesMixin


class SettingsModel(BatchSlicesMixin, keras.Model):
    """Base of functional models that keep what they were made from.

    `get_config` returns the constructor's arguments, and `from_config` passes
    them to it, so that a saved model comes back as an object of its own class.
    Layers that are frozen come back frozen.

    Args:
        inputs: Inputs of the functional model.
        outputs: Its outputs.
        settings: The constructor's arguments, plain values all, but for `name`
            and `trainable`.
        dtype: The dtype policy of the layers.
        **kwargs: Base `Model` arguments, such as `name`.
    """

    def __init__(self, inputs, outputs, settings, dtype, **kwargs):
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)
        # `compile` asks the model whether its loss is to be scaled.
        self.dtype_policy = dtype
        # While a model is loaded, Keras numbers the objects that it meets again, in
        # the very dictionaries that it gave out before.
        policy = dict(keras.dtype_policies.serialize(dtype))
        policy.pop("shared_object_id", None)
        self._settings = {**settings, "dtype": policy}

    @property
    def settings(self) -> dict:
        """The constructor's arguments, but for `name` and `trainable`."""
        return dict(self._settings)

    def get_config(self):
        return {
            "name": self.name,
            "trainable": self.trainable,
            "frozen_layers": list(_frozen_layers(self)),
            **self._settings,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        frozen_layers = config.pop("frozen_layers", ())
        model = cls(**config)
        for path in frozen_layers:
            layer = model
            for index in path:
                layer = layer.layers[index]
            layer.trainable = False
        return model


class TokenModel(SettingsModel):
    """Base of models that are called with ids, and know what padding is."""

    @property
    def pad_id(self) -> int:
        return self._settings["pad_id"]

    def call(self, inputs, training=None, mask=None):
        check_called_with_ids(inputs, "ids")
        return super().call(inputs, training=training, mask=mask)


def _frozen_layers(model):
    """Yields where layers stand that are not trained: indices, models within models."""
    for index, layer in enumerate(model.layers):
        if not layer.trainable:
            yield [index]
        elif isinstance(layer, keras.Model):
            yield from ([index, *path] for path in _frozen_layers(layer))


def policy_of(dtype):
    """Returns a dtype policy, the global one for None."""
    return keras.dtype_policies.get(dtype or keras.config.dtype_policy())


def name_of(activation):
    """Returns an activation as a config holds it, a name if it has one."""
    return keras.activations.serialize(keras.activations.get(activation))


def check_special_ids(vocabulary_size, pad_id, **others):
    """Raises `ValueError` unless the ids lie in the vocabulary, unlike padding."""
    for name, special_id in {"pad_id": pad_id, **others}.items():
        if not 0 <= special_id < vocabulary_size:
            raise ValueError(
                f"`{name}` must lie in the vocabulary of {vocabulary_size} tokens. "
                f"Received: {name}={special_id}."
            )
    for name, special_id in others.items():
        if special_id == pad_id:
            raise ValueError(
                f"`{name}` must differ from `pad_id`, which is never attended to. "
                f"Received: {name}={special_id}, pad_id={pad_id}."
            )


def check_called_with_ids(inputs, name):
    """Raises `ValueError` unless a model is called with ids `(batch, length)`."""
    # Under several replicas Keras builds the model, in a graph, with the mean of
    # a batch, in float64.
    is_mean = not hasattr(inputs, "numpy") and (
        getattr(inputs, "dtype", None) == "float64"
    )
    if not is_mean:
        check_ids(inputs, name)
