"""Several Transformers that decode together."""

import functools
import math
from collections.abc import Sequence

import keras
from keras import ops

from keras_transformer.decoding.runner import GenerationMixin
from keras_transformer.models.exports import export
from keras_transformer.models.transformer import Transformer


@keras.saving.register_keras_serializable(package="keras_transformer")
class Ensemble(GenerationMixin, keras.Model):
    """The mean of the probabilities that several Transformers assign to each token.

    Models of the same task that differ in their seeds, or in their sizes, make
    different mistakes. Together they translate better than each alone, and take as long
    as all of them. An ensemble is called and generates like a `Transformer`, and can
    replace one in a `Translator`. It cannot be trained, and has no attention scores:
    use its `models`.

    Args:
        models: Transformers with the same vocabularies and special ids.
        name: Name of the model.

    Call arguments:
        inputs: `{"source_ids": (batch, source_length), "target_ids": (batch,
            target_length)}`, integers.

    Returns:
        Float32 log-probabilities of shape `(batch, target_length, vocabulary)`: at each
        position, of the next token.

    Raises:
        ValueError: If there is no model, if one is not a `Transformer` or is listed
            twice, or if they differ in a vocabulary or a special id.

    Example:
        >>> settings = {"hidden_dim": 8, "num_heads": 2, "intermediate_dim": 16}
        >>> models = [
        ...     kt.models.Transformer(17, num_layers=n, **settings) for n in (1, 2)
        ... ]
        >>> ensemble = kt.models.Ensemble(models)
        >>> ensemble.generate(np.array([[5, 7, 11, 3]]), max_length=5).ids.shape
        (1, 1, 5)

    Reference:
        [Sutskever et al., 2014](https://arxiv.org/abs/1409.3215), section 3.6
    """

    def __init__(self, models: Sequence[Transformer], name: str | None = None):
        models = _checked(models)
        half = [x.dtype_policy for x in models if x.compute_dtype != "float32"]
        super().__init__(name=name, dtype=half[0] if half else "float32")
        self.models = models
        self.settings = _common(models[0])
        self.pad_id = self.settings["pad_id"]
        self.start_id = self.settings["start_id"]
        self.end_id = self.settings["end_id"]
        limits = [x.max_positions for x in models if x.max_positions is not None]
        self.max_positions = min(limits, default=None)
        self.built = True

    def call(self, inputs, training=None):
        return _log_mean([model(inputs, training=training) for model in self.models])

    generate = Transformer.generate
    likely_length = Transformer.likely_length

    def start(self, inputs, num_hypotheses: int, max_length: int):
        """Encodes the source ids once; see `decoding.CachedModel`."""
        started = [x.start(inputs, num_hypotheses, max_length) for x in self.models]
        context, cache = zip(*started, strict=True)
        return context, cache

    def step(self, token_ids, context, cache, index, visible):
        """Computes the next log-probabilities; see `decoding.CachedModel`."""
        steps = [model.step for model in self.models]
        return _take_steps(steps, token_ids, context, cache, index, visible)

    def prepared_step(self):
        steps = [model.prepared_step() for model in self.models]
        return functools.partial(_take_steps, steps)

    def merge_lora(self):
        """Returns the ensemble with low-rank adaptations merged into the kernels."""
        merged = [model.merge_lora() for model in self.models]
        if all(x is y for x, y in zip(merged, self.models, strict=True)):
            return self
        return Ensemble(merged)

    def enable_lora(self, *args, **kwargs):
        """Raises `ValueError`: adapt the models one by one, before combining them."""
        raise ValueError("An ensemble has no projections. Adapt its models first.")

    def make_train_function(self, force=False):
        raise ValueError("An ensemble cannot be trained: train its models one by one.")

    def quantize(self, *args, **kwargs):
        """Quantizes each of the models, like `keras.Model.quantize`."""
        for model in self.models:
            model.quantize(*args, **kwargs)

    def export(self, filepath, format="tf_saved_model", **kwargs):
        """Exports the forward pass, like `keras.Model.export`; see `models.export`."""
        kwargs.setdefault("input_signature", [self.models[0].input])
        export(self.merge_lora(), filepath, format, **kwargs)

    def get_config(self):
        models = [keras.saving.serialize_keras_object(x) for x in self.models]
        for model in models:  # without optimizers
            model.pop("compile_config", None)
        return {"models": models, "name": self.name}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        models = map(keras.saving.deserialize_keras_object, config["models"])
        return cls(**{**config, "models": list(models)})


def _take_steps(steps, token_ids, context, cache, index, visible):
    """Takes the step of each model, and returns the mean and all caches."""
    stepped = [
        step(token_ids, *states, index, visible)
        for step, *states in zip(steps, context, cache, strict=True)
    ]
    logits, cache = zip(*stepped, strict=True)
    return _log_mean(logits), cache


def _log_mean(logits):
    """The logarithm of the mean of the probabilities of several logits."""
    logs = [ops.log_softmax(ops.cast(x, "float32")) for x in logits]
    return ops.logsumexp(ops.stack(logs), axis=0) - math.log(len(logs))


def _common(model):
    """The settings that all models have in common."""
    settings = model.settings
    source_size = settings["source_vocabulary_size"]
    return {
        "source_vocabulary_size": source_size,
        "target_vocabulary_size": settings["target_vocabulary_size"] or source_size,
        **{name: settings[name] for name in ("pad_id", "start_id", "end_id")},
    }


def _checked(models):
    """Returns a list of models; raises `ValueError` unless they fit each other."""
    models = [models] if isinstance(models, keras.Model) else list(models)
    if not models or not all(isinstance(model, Transformer) for model in models):
        kinds = sorted({type(model).__name__ for model in models})
        raise ValueError(
            "`models` must be one Transformer or more; pass the models of an ensemble. "
            f"Received: {', '.join(kinds) if kinds else 'no model'}."
        )
    if len({id(model) for model in models}) < len(models):
        raise ValueError("`models` must differ. Received: one model twice.")
    common = [_common(model) for model in models]
    for name in common[0]:
        values = [settings[name] for settings in common]
        if len(set(values)) > 1:
            raise ValueError(
                f"`models` must have the same {name}: train them with the same "
                f"tokenizers. Received: {name}={values}."
            )
    return models
