"""Models that are saved as the settings they were made from."""

import contextlib
import re
from collections.abc import Sequence

import keras

from keras_transformer.checks import check_ids
from keras_transformer.keras_private import asks_for_shapes
from keras_transformer.kernels import target
from keras_transformer.kernels.rematerialization import RematerializedMixin
from keras_transformer.layers.saving import modify
from keras_transformer.layers.weights import WeightOptions
from keras_transformer.models.consistency import ConsistencyMixin
from keras_transformer.models.exports import export
from keras_transformer.models.layer_paths import (
    changed_layers,
    frozen_layers,
    is_quantizable,
    layer_at,
)
from keras_transformer.models.lora import enable_lora, has_lora, merge_lora


class SettingsModel(RematerializedMixin, ConsistencyMixin, keras.Model):
    """Base of functional models that keep their constructor's arguments.

    `get_config` returns these arguments, and `from_config` passes them to the
    constructor, so that a saved model is loaded as an object of the same class.
    Frozen layers are loaded frozen, blocks and layers inside of them too; quantised
    layers are loaded quantised, and low-rank adaptations as they were.

    Args:
        inputs: Inputs of the functional model.
        outputs: Its outputs.
        settings: The constructor's arguments, see `constructor_settings`.
        dtype: The dtype policy of the layers.
        weight_options: The `WeightOptions` that the layers were built with.
        name: Name of the model.
        trainable: Whether its weights are to be trained, if given.
    """

    # No `**kwargs`: Keras would ignore those that it does not know.
    def __init__(
        self,
        inputs,
        outputs,
        settings,
        dtype,
        weight_options,
        name: str | None = None,
        trainable: bool | None = None,
    ):
        super().__init__(inputs=inputs, outputs=outputs, name=name, trainable=trainable)
        # `compile` reads from it whether to scale the loss.
        self.dtype_policy = dtype
        # While Keras loads a model, it writes ids of shared objects into the
        # dictionaries that `serialize` returned.
        policy = dict(keras.dtype_policies.serialize(dtype))
        policy.pop("shared_object_id", None)
        self._settings = {**settings, "dtype": policy}
        self.weight_options = weight_options

    @property
    def settings(self) -> dict:
        """The constructor's arguments but `name`, `trainable` and weight options."""
        return dict(self._settings)

    def get_config(self):
        return {
            "name": self.name,
            "trainable": self.trainable,
            "frozen_layers": frozen_layers(self),
            "changed_layers": changed_layers(self),
            **self._settings,
            **self.weight_options.get_config(),
        }

    def compile_from_config(self, config):
        # The method of Keras does nothing where `compile` is overridden.
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None and self.built:
            self.optimizer.build(self.trainable_variables)

    def export(
        self,
        filepath,
        format="tf_saved_model",
        verbose=None,
        input_signature=None,
        **kwargs,
    ):
        """Exports the forward pass, as `keras.Model.export`; see `models.export`."""
        # For ONNX, Keras finds the inputs only of models that have been called.
        model = merge_lora(self)
        kwargs["input_signature"] = input_signature or [model.input]
        export(model, filepath, format, verbose=verbose, **kwargs)

    def enable_lora(
        self,
        rank: int,
        alpha: float | None = None,
        projections: Sequence[str] = ("query", "value"),
    ):
        """Adds low-rank adaptation (LoRA) to projections, and freezes all else.

        A kernel `W` becomes `W + alpha / rank * A B`, where only `A`, `(width, rank)`,
        and `B`, `(rank, units)`, which is zero at first, are trained. Compile the model
        afterwards. What else is to be trained, such as the layer `"logits"` of a
        classifier, may be made trainable again. Saved models keep `A` and `B`; exports
        hold `W + alpha / rank * A B`, as does `merge_lora()`.

        Args:
            rank: Number of columns of `A`.
            alpha: Scale of the product; `rank` if None.
            projections: Names of the projections: `"query"`, `"key"`, `"value"` and
                `"output"` of attention, `"widen"` and `"narrow"` of feed-forward
                layers. The paper adapts queries and values.

        Raises:
            ValueError: If the model is quantised or has adaptations, if `rank` is not
                a positive integer, or if a name is not that of a projection.

        Example:
            >>> model = kt.models.LanguageModel(
            ...     11, num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16
            ... )
            >>> model.enable_lora(rank=2)
            >>> [tuple(weight.shape) for weight in model.trainable_weights]
            [(8, 2), (2, 8), (8, 2), (2, 8)]

        Reference:
            [Hu et al., 2021](https://arxiv.org/abs/2106.09685), section 4.1
        """
        enable_lora(self, rank, alpha, projections)

    def merge_lora(self):
        """Returns a model whose kernels hold the low-rank adaptations of this one.

        Its layers are all trainable. A model without adaptations returns itself.
        """
        return merge_lora(self)

    def quantize(self, mode=None, config=None, filters=None, **kwargs):
        """Quantises kernels and embeddings, as `keras.Model.quantize`.

        Raises:
            ValueError: If the model has low-rank adaptations.
        """
        if has_lora(self):
            raise ValueError(
                "A model with low-rank adaptations cannot be quantised. Quantise "
                "`model.merge_lora()`."
            )
        # Keras would warn about each layer that it cannot quantise.
        super().quantize(mode, config, filters or is_quantizable, **kwargs)

    def make_train_function(self, force=False):
        if any("dtype" in change for _, change in changed_layers(self)):
            raise ValueError(
                "A quantised model cannot be trained: its integers have no gradient. "
                "Train the model that it was made from, then quantise that."
            )
        # TensorFlow traces a step that creates variables a second time.
        optimizer = self.optimizer
        if target.is_tensorflow() and self.built and not optimizer.built:
            with self.distribute_strategy.scope():
                optimizer.build(self.trainable_variables)
        return super().make_train_function(force)

    def fit(self, *args, **kwargs):
        with _explained_ids():
            return super().fit(*args, **kwargs)

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        frozen = config.pop("frozen_layers", ())
        changed = config.pop("changed_layers", [])
        # The name in older files, which hold policies alone.
        policies = config.pop("quantized_layers", ())
        changed = [[path, {"dtype": policy}] for path, policy in policies] + changed
        model = cls(**config)
        for path in frozen:
            layer_at(model, path).trainable = False
        for path, change in changed:
            modify(layer_at(model, path), change)
        return model


class TokenModel(SettingsModel):
    """Base of models that are called with padded ids."""

    @property
    def pad_id(self) -> int:
        return self._settings["pad_id"]

    def call(self, inputs, training=None, mask=None):
        check_called_with_ids(inputs, "ids")
        return super().call(inputs, training=training, mask=mask)


@contextlib.contextmanager
def _explained_ids():
    """Explains TensorFlow's error about an id that is not in an embedding table."""
    try:
        yield
    except Exception as error:
        found = re.search(r" = (-?\d+) is not in \[0, (\d+)\)", str(error))
        if not found:
            raise
        received, size = found.groups()
        raise ValueError(
            f"Ids must lie in the model's vocabulary of {size} tokens. "
            f"Received: {received}, in the inputs or the labels. Use tokenizers of the "
            "model's vocabulary_size."
        ) from error


def constructor_settings(arguments: dict) -> dict:
    """Returns a constructor's arguments as the plain values that a config holds.

    Args:
        arguments: `locals()` at the top of the constructor. `self`, `dtype` and
            `kwargs` are left out.
    """
    left_out = ("self", "__class__", "dtype", "kwargs")
    settings = {name: arguments[name] for name in arguments if name not in left_out}
    activation = keras.activations.get(settings["activation"])
    return {**settings, "activation": keras.activations.serialize(activation)}


def model_weight_options(kwargs: dict) -> WeightOptions:
    """Takes the options of kernels, biases and embeddings out of keyword arguments."""
    return WeightOptions(kwargs, kinds=("kernel", "bias", "embeddings"))


def policy_of(dtype):
    """Returns a dtype policy, the global one for None."""
    return keras.dtype_policies.get(dtype or keras.config.dtype_policy())


def check_special_ids(vocabulary_size, pad_id, **others):
    """Raises `ValueError` unless all ids are in the vocabulary and not `pad_id`."""
    check_in_vocabulary(vocabulary_size, pad_id=pad_id, **others)
    for name, special_id in others.items():
        if special_id == pad_id:
            raise ValueError(
                f"`{name}` must differ from `pad_id`, which is never attended to. "
                f"Received: {name}={special_id}, pad_id={pad_id}."
            )


def check_in_vocabulary(vocabulary_size, **ids):
    """Raises `ValueError` unless all ids are in the vocabulary."""
    for name, special_id in ids.items():
        if not 0 <= special_id < vocabulary_size:
            raise ValueError(
                f"`{name}` must lie in the vocabulary of {vocabulary_size} tokens. "
                f"Received: {name}={special_id}."
            )


def check_called_with_ids(inputs, name):
    """Raises `ValueError` unless a model is called with ids `(batch, length)`."""
    # Under several replicas, Keras builds the model in a graph, with the float64 mean
    # of a batch.
    is_mean = not hasattr(inputs, "numpy") and (
        getattr(inputs, "dtype", None) == "float64"
    )
    if not is_mean and not asks_for_shapes():
        check_ids(inputs, name)
