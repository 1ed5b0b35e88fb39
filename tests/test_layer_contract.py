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
    """A layer that keeps the contract; each layer below breaks one promise."""

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
    """Reads two sequences, returns one vector, and heeds the second one's mask."""

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
class ForgetfulProjection(Projection):
    def __init__(self, units, scale=1.0, **kwargs):
        super().__init__(units, **kwargs)
        self.scale = scale


@register
class ConfusedProjection(Projection):
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
class HastyProjection(Projection):
    def __init__(self, units, **kwargs):
        super().__init__(units, **kwargs)
        self.bias = self.add_weight(shape=(units,))


@register
class LateProjection(Projection):
    def build(self, input_shape):
        self._dense = keras.layers.Dense(self.units, dtype=self.dtype_policy)


@register
class StubbornProjection(Projection):
    def call(self, inputs):
        return ops.cast(super().call(inputs), "float32")


@register
class BoastfulProjection(Projection):
    def compute_output_spec(self, inputs):
        return keras.KerasTensor((*inputs.shape[:-1], 11), self.compute_dtype)


@register
class FragileProjection(Projection):
    def call(self, inputs):
        return super().call(inputs) + ops.cast(1e5, self.compute_dtype)


@register
class ImpreciseProjection(Projection):
    def call(self, inputs):
        return super().call(inputs + 1000.0 - 1000.0)


@register
class IdleProjection(Projection):
    def call(self, inputs):
        return ops.stop_gradient(super().call(inputs)) + ops.sum(self._dense.bias)


@register
class AbsentmindedProjection(Projection):
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
class MaskEatingProjection(Projection):
    def compute_mask(self, inputs, previous_mask):
        return None


@register
class MaskInventingProjection(Projection):
    def compute_mask(self, inputs, previous_mask):
        return None if previous_mask is None else ops.logical_not(previous_mask)


@register
class PeekingProjection(Projection):
    def call(self, inputs):
        return super().call(inputs + ops.mean(inputs, axis=1, keepdims=True))


def test_layer_that_keeps_the_contract_passes():
    check_layer(Projection, {"units": UNITS}, INPUTS, (BATCH, LENGTH, UNITS))


@pytest.mark.parametrize("as_kwargs", [True, False])
def test_layer_of_two_sequences_passes(as_kwargs):
    memory = np.ones((BATCH, 11, WIDTH), "float32")
    inputs = {"inputs": INPUTS, "memory": memory} if as_kwargs else (INPUTS, memory)
    check_layer(WeightedMean, {"units": UNITS}, inputs, (BATCH, UNITS))


@pytest.mark.parametrize(
    ("layer_class", "message"),
    [
        (Unregistered, "registered as Unregistered"),
        (ForgetfulProjection, "config has the keys"),
        (ConfusedProjection, "config has another value for `units`"),
        (RenamingProjection, "`scale` is not stored"),
        (HastyProjection, "weights are made before"),
        (LateProjection, "`build` makes weights"),
        (StubbornProjection, "mixed_bfloat16: expected"),
        (BoastfulProjection, "float32: promised"),
        (FragileProjection, "mixed_float16: not finite"),
        (ImpreciseProjection, "mixed_bfloat16: .* away from float32"),
        (AbsentmindedProjection, "a weight reloads otherwise"),
        (MaskEatingProjection, "the mask does not come out"),
        (MaskInventingProjection, "another mask comes out"),
        (PeekingProjection, "what the mask hides changes"),
    ],
)
def test_layer_that_breaks_a_promise_fails(layer_class, message):
    with pytest.raises(AssertionError, match=message):
        check_layer(layer_class, {"units": UNITS}, INPUTS, (BATCH, LENGTH, UNITS))


def test_layer_with_a_weight_that_no_gradient_reaches_fails():
    with pytest.raises(UserWarning, match="Gradients do not exist"):
        check_layer(IdleProjection, {"units": UNITS}, INPUTS, (BATCH, LENGTH, UNITS))


def test_wrong_output_shape_fails():
    with pytest.raises(AssertionError, match="float32: expected"):
        check_layer(Projection, {"units": UNITS}, INPUTS, (BATCH, LENGTH, WIDTH))
