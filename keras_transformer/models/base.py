"""Common parts of the models: saved settings, `compile`, checks of ids."""

import contextlib
import functools
import os
import re
from collections.abc import Callable, Sequence
from contextvars import ContextVar

import keras

from keras_transformer.checks import check_ids
from keras_transformer.decoding.runner import GenerationMixin
from keras_transformer.keras_private import (
    after_the_batch,
    all_layers,
    asks_for_shapes,
    set_loss_tracker,
)
from keras_transformer.kernels import target
from keras_transformer.kernels.graphs import as_rows, without_gradients
from keras_transformer.kernels.rematerialization import RematerializedMixin
from keras_transformer.kernels.scopes import holding
from keras_transformer.layers.saving import modify
from keras_transformer.models import adaptation
from keras_transformer.models.devices import check_layout, check_strategy
from keras_transformer.models.exports import export
from keras_transformer.models.parts import Parts
from keras_transformer.models.weight_files import first_difference

# The weight of the batch of the step that is traced, in the thread of its replica.
_batch_weight: ContextVar = ContextVar("batch_weight", default=None)


class _LossTracker(keras.metrics.Mean):
    """Mean of the losses of batches, each with the weight that its loss gives it."""

    def update_state(self, values, sample_weight=None):
        weight = _batch_weight.get()
        # Keras passes the number of rows, which are texts of any length, or padding.
        super().update_state(values, sample_weight if weight is None else weight)


class SettingsModel(RematerializedMixin, keras.Model):
    """Base class of functional models that keep their constructor arguments.

    `get_config` returns these arguments, and `from_config` passes them to the
    constructor, so a saved model is loaded as an object of the same class. Layers
    frozen at any depth are loaded frozen, quantized layers quantized, and low-rank
    adaptations unchanged.

    Args:
        inputs: Inputs of the functional model.
        outputs: Its outputs.
        parts: The `Parts` that created the layers, with the settings common to models.
        settings: The other constructor arguments, in the form of a config.
        name: Name of the model.
        trainable: Whether its weights are trained, if given.

    Attributes:
        settings: The constructor arguments except `name`, `trainable` and weight
            options.
    """

    is_remat_unit = False
    asked_jit_compile: bool | str = "auto"  # Keras's `jit_compile` is what it became

    def __init__(
        self,
        inputs,
        outputs,
        parts: Parts,
        settings: dict,
        name: str | None = None,
        trainable: bool | None = None,
        **unknown,
    ):
        if unknown:  # Keras would ignore them
            raise TypeError(
                f"`{type(self).__name__}` has no argument `{next(iter(unknown))}`. "
                f"Received: {', '.join(f'{k}={v!r}' for k, v in unknown.items())}."
            )
        super().__init__(inputs=inputs, outputs=outputs, name=name, trainable=trainable)
        # `compile` reads from it whether to scale the loss.
        self.dtype_policy = parts.dtype_policy
        self.settings = {**parts.settings, **settings}
        self.parts = parts

    def get_config(self):
        return {
            "name": self.name,
            "trainable": self.trainable,
            "frozen": adaptation.frozen_layers(self),
            "changed": adaptation.changed_layers(self),
            **self.settings,
            **self.parts.weight_options.get_config(),
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        frozen, changed = config.pop("frozen", ()), config.pop("changed", ())
        for name in ("frozen_layers", "changed_layers"):  # empty in files of 0.1.0
            if not config.get(name):
                config.pop(name, None)
        model = cls(**config)
        for path in frozen:
            adaptation.layer_at(model, path).trainable = False
        for path, change in changed:
            modify(adaptation.layer_at(model, path), change)
        return model

    def compile(self, *args, jit_compile: bool | str = "auto", **kwargs):
        """Configures training, like `keras.Model.compile`, and how searches run.

        Args:
            *args: Arguments of `keras.Model.compile`.
            jit_compile: Whether XLA compiles training, evaluation and searches. "auto":
                where it is worthwhile.
            **kwargs: Arguments of `keras.Model.compile`.
        """
        super().compile(*args, jit_compile=jit_compile, **kwargs)
        set_loss_tracker(self, _LossTracker(name="loss"))
        self.asked_jit_compile = jit_compile

    def get_compile_config(self):
        config = super().get_compile_config()
        if config:
            # Keras would save what "auto" became for training on this machine.
            config["jit_compile"] = self.asked_jit_compile
        return config

    def compile_from_config(self, config):
        # The method of Keras does nothing where `compile` is overridden.
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None and self.built:
            self.optimizer.build(self.trainable_variables)

    def fit(self, *args, class_weight=None, **kwargs):
        self._check_class_weight(class_weight)
        with explained_ids():
            return super().fit(*args, class_weight=class_weight, **kwargs)

    def evaluate(self, *args, **kwargs):
        with explained_ids():
            return super().evaluate(*args, **kwargs)

    def predict(self, *args, **kwargs):
        with explained_ids():
            return super().predict(*args, **kwargs)

    def train_on_batch(self, *args, class_weight=None, **kwargs):
        self._check_class_weight(class_weight)
        return super().train_on_batch(*args, class_weight=class_weight, **kwargs)

    def _check_class_weight(self, class_weight):
        # Keras would weigh a text by the place of its largest label.
        if class_weight is not None and self._predicts_tokens:
            raise ValueError(
                "`class_weight` must be None for labels of shape (batch, length). "
                "Weigh tokens by a `sample_weight` of the same shape. "
                f"Received: class_weight={class_weight}."
            )

    def train_step(self, *state_and_data):
        *state, data = state_and_data
        with self._weighed_batch(data) as weighed, without_gradients():
            return super().train_step(*state, weighed)

    def test_step(self, *state_and_data):
        *state, data = state_and_data
        with self._weighed_batch(data) as weighed:
            return super().test_step(*state, weighed)

    @property
    def _predicts_tokens(self):
        return len(self.outputs[0].shape) > 2

    @contextlib.contextmanager
    def _weighed_batch(self, data):
        """A scope in which the loss of a batch, which it yields, is logged by weight.

        Weights of sentences, `(batch,)`, become `(batch, 1)`: Keras multiplies them
        with masks and losses of shape `(batch, length)`.
        """
        x, labels, weights = keras.utils.unpack_x_y_sample_weight(data)
        with after_the_batch(data):
            # Keras's own losses have no such weight: they are means over rows.
            weigh = getattr(self.loss, "batch_weight", None)
            weight = weigh and weigh(labels, weights)
            if weights is not None and self._predicts_tokens:
                weights = keras.tree.map_structure(as_rows, weights)
            with holding(_batch_weight, weight):
                yield keras.utils.pack_x_y_sample_weight(x, labels, weights)

    def make_train_function(self, force=False):
        modes = {layer.quantization_mode for layer in all_layers(self)}
        if integers := sorted(modes - {None, "float8"}):
            raise ValueError(
                "A model quantized to integers cannot be trained: they have no "
                "gradient. Train the model that it was made from, then quantize that. "
                f"Received: {', '.join(integers)}."
            )
        check_layout(self)
        if target.BACKEND == "tensorflow" and self.built:
            check_strategy(self)
            if not self.optimizer.built:
                # TensorFlow traces a step that creates variables a second time.
                with self.distribute_strategy.scope():
                    self.optimizer.build(self.trainable_variables)
        return super().make_train_function(force)

    def load_weights(self, filepath, *args, **kwargs):
        try:
            super().load_weights(filepath, *args, **kwargs)
        except ValueError as error:
            # Keras visits layers twice, and names the second failure: no variables.
            path = os.fspath(filepath)
            is_known = path.endswith((".keras", ".weights.h5", ".weights.json"))
            difference = first_difference(self, path) if is_known else None
            if difference is None:
                raise
            raise ValueError(
                "`filepath` must hold the weights of a model with the same settings. "
                f"Received: filepath={str(filepath)!r}, with {difference}."
            ) from error

    def enable_lora(
        self,
        rank: int,
        alpha: float | None = None,
        projections: Sequence[str] = ("query", "value"),
    ) -> None:
        """Adds low-rank adaptation (LoRA) to projections, and freezes everything else.

        A kernel `W` becomes `W + alpha / rank * A B`, where only `A`, `(width, rank)`,
        and `B`, `(rank, units)`, initially zero, are trained. Compile the model
        afterwards. To also train another layer, such as the `"logits"` of a classifier,
        make it trainable again. Saved models keep `A` and `B`; exports and
        `merge_lora()` contain `W + alpha / rank * A B`.

        Args:
            rank: Number of columns of `A`.
            alpha: Scale of the product; `rank` if None.
            projections: Names of the projections: `"query"`, `"key"`, `"value"` and
                `"output"` of attention, `"widen"` and `"narrow"` of feed-forward
                layers. The paper adapts queries and values.

        Raises:
            ValueError: If the model is quantized or already has adaptations, if `rank`
                is not a positive integer, or if no projection has one of the names.

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
        adaptation.enable_lora(self, rank, alpha, projections)

    def merge_lora(self):
        """Returns a model with the low-rank adaptations added to its kernels.

        All its layers are trainable. A model without adaptations returns itself.
        """
        return adaptation.merge_lora(self)

    def quantize(self, mode=None, config=None, filters=None, **kwargs):
        """Quantizes kernels and embeddings, like `keras.Model.quantize`.

        Raises:
            ValueError: If the model has low-rank adaptations.
        """
        if adaptation.has_lora(self):
            raise ValueError(
                "A model with low-rank adaptations cannot be quantized. Quantize "
                "`model.merge_lora()`."
            )
        # Keras would warn about each layer that it cannot quantize.
        asked = mode or (config and config.mode)
        filters = filters or (lambda layer: adaptation.is_quantizable(layer, asked))
        super().quantize(mode, config, filters, **kwargs)

    def export(
        self,
        filepath: str | os.PathLike,
        format: str = "tf_saved_model",
        verbose=None,
        input_signature=None,
        **kwargs,
    ) -> None:
        """Exports the forward pass, like `keras.Model.export`; see `models.export`."""
        model = self.merge_lora()
        # For ONNX, Keras finds the inputs only of models that have been called.
        kwargs["input_signature"] = input_signature or [model.input]
        export(model, filepath, format, verbose=verbose, **kwargs)


class DecodedModel(GenerationMixin):
    """Base class of models for searches, with logits tied to an embedding."""

    _narrow: keras.layers.Layer | None
    output_bias: keras.layers.Layer | None

    def tied_embedding(self):
        """Returns the embedding that computes the logits."""
        raise NotImplementedError

    def logits_of(self, states, tied_logits: Callable | None = None):
        """Computes the logits of states; `tied_logits` is prepared for many steps."""
        states = states if self._narrow is None else self._narrow(states)
        if tied_logits is None:
            logits = self.tied_embedding()(states, reverse=True)
        else:
            logits = tied_logits(states)
        return logits if self.output_bias is None else self.output_bias(logits)

    def prepared_step(self):
        """Returns `step`, with the embedding table transposed once for all steps."""
        tied_logits = self.tied_embedding().logits_function()
        return functools.partial(self.step, tied_logits=tied_logits)


class TokenModel(SettingsModel):
    """Base class of models that take padded ids, or a dictionary of them."""

    def call(self, inputs, training=None, mask=None):
        named = inputs if isinstance(inputs, dict) else {"ids": inputs}
        for name, ids in named.items():
            # Under several replicas, Keras builds the model in a graph, with the
            # float64 mean of a batch.
            is_mean = not hasattr(ids, "numpy") and (
                getattr(ids, "dtype", None) == "float64"
            )
            if not is_mean and not asks_for_shapes():
                check_ids(ids, name, is_batch=True)
        with explained_ids():
            return super().call(inputs, training=training, mask=mask)


@contextlib.contextmanager
def explained_ids():
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


def check_special_ids(vocabulary_size: int, pad_id: int, **others: int) -> None:
    """Raises `ValueError` unless all ids are in the vocabulary and not `pad_id`."""
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
