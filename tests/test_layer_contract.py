import keras
import numpy as np
import pytest
from keras import ops
from layer_contract import check_layer

BATCH, LENGTH, WIDTH, UNITS = 2, 5, 3, 7
INPUTS = np.random.default_rng(0).normal(size=(BATCH, LENGTH, WIDTH)).astype("float32")
register = keras.saving.register_keras_serializable(package="keras_transformer")


@register
class Projection(keras.layers.Layer):
    """A layer that fulfils the contract; each layer below violates it in one point."""

    def __init__(self, units, activation="relu", **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.activation = keras.activations.get(activation)
        self.supports_masking = True

    def build(self, input_shape):
        self._dense = keras.layers.Dense(self.units, dtype=self.dtype_policy)
        self._dense.build(input_shape)

    def call(self, inputs):
        return self.activation(self._dense(inputs))

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.units,
            "activation": keras.activations.serialize(self.activation),
        }


@register
class WeightedMean(Projection):
    """Reads two sequences; returns the masked mean of the second."""

    def build(self, inputs_shape, memory_shape):
        super().build(inputs_shape)

    def call(self, inputs, memory, memory_mask=None, inputs_mask=None):
        weights = ops.ones(ops.shape(memory)[:2], memory.dtype)
        if memory_mask is not None:
            weights = ops.cast(memory_mask, memory.dtype)
        mean = ops.sum(memory * weights[..., None], axis=1)
        mean = mean / ops.sum(weights, axis=1, keepdims=True)
        return super().call(mean)

    def compute_mask(self, inputs, previous_mask):
        return None


class Unregistered(Projection):
    pass


@register
class IncompleteConfigProjection(Projection):
    def __init__(self, units, scale=1.0, **kwargs):
        super().__init__(units, **kwargs)
        self.scale = scale


@register
class WrongConfigProjection(Projection):
    def get_config(self):
        return {**super().get_config(), "units": 1}


@register
class RenamingProjection(Projection):
    def __init__(self, units, scale=1.0, **kwargs):
        super().__init__(units, **kwargs)
        self._scale = scale

    def get_config(self):
        return {**super().get_config(), "scale": self._scale}


@register
class EarlyBuildingProjection(Projection):
    def __init__(self, units, **kwargs):
        super().__init__(units, **kwargs)
        self.bias = self.add_weight(shape=(units,))


@register
class LateBuildingProjection(Projection):
    def build(self, input_shape):
        self._dense = keras.layers.Dense(self.units, dtype=self.dtype_policy)


@register
class Float32Projection(Projection):
    def call(self, inputs):
        return ops.cast(super().call(inputs), "float32")


@register
class WrongSpecProjection(Projection):
    def compute_output_spec(self, inputs):
        return keras.KerasTensor((*inputs.shape[:-1], 11), self.compute_dtype)


@register
class OverflowingProjection(Projection):
    def call(self, inputs):
        return super().call(inputs) + ops.cast(1e5, self.compute_dtype)


@register
class ImpreciseProjection(Projection):
    def call(self, inputs):
        return super().call(inputs + 1000.0 - 1000.0)


@register
class UntrainableProjection(Projection):
    def call(self, inputs):
        return ops.stop_gradient(super().call(inputs)) + ops.sum(self._dense.bias)


@register
class UnsavedProjection(Projection):
    def build(self, input_shape):
        super().build(input_shape)
        self._offset = self.add_weight(shape=(self.units,), initializer="normal")

    def call(self, inputs):
        return super().call(inputs) + self._offset

    def save_own_variables(self, store):
        pass

    def load_own_variables(self, store):
        pass


@register
class MaskDroppingProjection(Projection):
    def compute_mask(self, inputs, previous_mask):
        return None


@register
class MaskInvertingProjection(Projection):
    def compute_mask(self, inputs, previous_mask):
        return None if previous_mask is None else ops.logical_not(previous_mask)


@register
class MaskIgnoringProjection(Projection):
    def call(self, inputs):
        return super().call(inputs + ops.mean(inputs, axis=1, keepdims=True))


def test_layer_that_fulfils_the_contract_passes():
    check_layer(Projection, {"units": UNITS}, INPUTS, (BATCH, LENGTH, UNITS))


@pytest.mark.quick("True")
@pytest.mark.parametrize("as_kwargs", [True, False])
def test_layer_of_two_sequences_passes(as_kwargs):
    memory = np.ones((BATCH, 11, WIDTH), "float32")
    inputs = {"inputs": INPUTS, "memory": memory} if as_kwargs else (INPUTS, memory)
    check_layer(WeightedMean, {"units": UNITS}, inputs, (BATCH, UNITS))


@pytest.mark.quick(
    "Unregistered-registered as Unregis",
    "IncompleteConfigProjection-config ",
    "WrongConfigProjection-config has a",
)
@pytest.mark.parametrize(
    ("layer_class", "message"),
    [
        (Unregistered, "registered as Unregistered"),
        (IncompleteConfigProjection, "config has the keys"),
        (WrongConfigProjection, "config has another value for `units`"),
        (RenamingProjection, "`scale` is not stored"),
        (EarlyBuildingProjection, "weights are created before"),
        (LateBuildingProjection, "`build` creates weights"),
        (Float32Projection, "mixed_bfloat16: expected"),
        (WrongSpecProjection, "float32: promised"),
        (OverflowingProjection, "mixed_float16: not finite"),
        (ImpreciseProjection, "mixed_bfloat16: .* away from float32"),
        (UnsavedProjection, "a reloaded weight differs"),
        (MaskDroppingProjection, "does not pass the mask on"),
        (MaskInvertingProjection, "passes on another mask"),
        (MaskIgnoringProjection, "masked positions change"),
    ],
)
def test_layer_that_violates_the_contract_fails(layer_class, message):
    with pytest.raises(AssertionError, match=message):
        check_layer(layer_class, {"units": UNITS}, INPUTS, (BATCH, LENGTH, UNITS))


def test_layer_with_a_weight_that_no_gradient_reaches_fails():
    with pytest.raises(UserWarning, match="Gradients do not exist"):
        check_layer(
            UntrainableProjection, {"units": UNITS}, INPUTS, (BATCH, LENGTH, UNITS)
        )


def test_wrong_output_shape_fails():
    with pytest.raises(AssertionError, match="float32: expected"):
        check_layer(Projection, {"units": UNITS}, INPUTS, (BATCH, LENGTH, WIDTH))
