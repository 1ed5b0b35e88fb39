"""The contract of every layer of the package, checked by one call."""

import inspect
import json
import tempfile
from pathlib import Path

import keras
import numpy as np
from keras import ops, tree

# Maximum error of each dtype policy against float32, relative to the largest output.
TOLERANCES = {
    "float32": 1e-5,
    "mixed_bfloat16": 0.1,
    "mixed_float16": 0.02,
    "bfloat16": 0.1,
    "float16": 0.02,
    "float64": 1e-5,
}


def check_layer(
    layer_class,
    init_kwargs,
    inputs,
    expected_output_shape,
    *,
    expected_output_dtype=None,
    supports_masking=True,
):
    """Checks that a layer fulfils the contract of all layers.

    - Its constructor and its config have the same arguments.
    - It is registered, and can be restored from its config.
    - It has no weights before it is built, and `build` alone creates all of them.
    - Symbolic, eager and compiled calls agree.
    - Every dtype policy gives its dtype, and finite numbers close to those of float32.
    - It trains.
    - A saved model reloads with the same weights and outputs.
    - Keras masks pass through, and masked positions do not change the output.

    Args:
        layer_class: The class under test.
        init_kwargs: Constructor arguments. Pass values that are not the
            defaults: a default cannot show that it is missing from the config.
        inputs: The call arguments: one array, a tuple of positional arguments
            or a dict of keyword arguments, with NumPy arrays for tensors.
            With different prime sizes, no mix-up of dimensions stays hidden.
        expected_output_shape: A shape, or a list of shapes for several outputs.
        expected_output_dtype: Dtype under every policy, for layers that do not
            return their policy's compute dtype; a list for several outputs.
        supports_masking: Whether Keras masks must pass through. If so, every float
            array of shape `(batch, length, width)` gets one.
    """
    call = Call(inputs)
    check_config(layer_class, init_kwargs)
    check_building(layer_class, init_kwargs, call)
    check_outputs(
        layer_class, init_kwargs, call, expected_output_shape, expected_output_dtype
    )
    check_training(layer_class(**init_kwargs), call)
    check_saving(layer_class(**init_kwargs), call)
    check_masking(layer_class(**init_kwargs), call, supports_masking)


class Call:
    """The arguments of a layer's call, whose arrays can be replaced."""

    def __init__(self, inputs):
        if isinstance(inputs, dict):
            self._arguments = (), inputs
        else:
            self._arguments = inputs if isinstance(inputs, tuple) else (inputs,), {}
        leaves = tree.flatten(self._arguments)
        self.arrays = [x for x in leaves if isinstance(x, np.ndarray)]

    def __call__(self, layer, tensors=None):
        """Returns a list of outputs, computed from `tensors` instead of the arrays."""
        tensors = iter(self.arrays if tensors is None else tensors)
        args, kwargs = tree.map_structure(
            lambda x: next(tensors) if isinstance(x, np.ndarray) else x,
            self._arguments,
        )
        return tree.flatten(layer(*args, **kwargs))

    def on_symbols(self, layer):
        """Calls `layer` on tensors that have a shape and a dtype, but no values."""
        return self(layer, [keras.KerasTensor(x.shape, x.dtype) for x in self.arrays])

    def model(self, layer):
        """Wraps `layer` in a functional model of any batch size."""
        tensors = [keras.Input(x.shape[1:], dtype=x.dtype.name) for x in self.arrays]
        return keras.Model(tensors, self(layer, tensors))


def check_config(layer_class, init_kwargs):
    registered = keras.saving.get_registered_name(layer_class)
    expected = f"keras_transformer>{layer_class.__name__}"
    assert registered == expected, f"the class is registered as {registered}"

    layer = layer_class(**init_kwargs)
    config = layer.get_config()
    assert "name" in config, "the config lacks the base config"
    own = set(config) - set(keras.layers.Layer().get_config())
    arguments = constructor_arguments(layer_class)
    # Of other keys, the restoration below shows that the constructor takes them.
    assert own >= arguments, f"config has the keys {own} for arguments {arguments}"
    for name in arguments - {"output_shape"}:  # which Keras's models ask layers for
        assert hasattr(layer, name), f"`{name}` is not stored under its own name"
    for name, value in init_kwargs.items():
        if isinstance(value, bool | int | float):
            assert config[name] == value, f"config has another value for `{name}`"

    stored = json.dumps(keras.saving.serialize_keras_object(layer))
    restored = keras.saving.deserialize_keras_object(json.loads(stored))
    assert type(restored) is layer_class
    assert restored.get_config() == config, "the restored layer has another config"


def constructor_arguments(layer_class):
    """Returns the names of all arguments, base classes included."""
    names = set()
    for base in inspect.getmro(layer_class):
        if base.__module__.startswith("keras."):  # arguments of Keras itself
            break
        if "__init__" in vars(base):
            parameters = inspect.signature(base.__init__).parameters.values()
            names |= {p.name for p in parameters if p.kind != p.VAR_KEYWORD}
            if all(p.kind != p.VAR_KEYWORD for p in parameters):
                break
    return names - {"self"}


def check_building(layer_class, init_kwargs, call):
    layer = layer_class(**init_kwargs)
    assert not layer.weights, "weights are created before the layer is built"
    call(layer)
    twin = layer_class(**init_kwargs)
    twin.build_from_config(layer.get_build_config())
    called, built = [[w.shape for w in x.weights] for x in (layer, twin)]
    assert built == called, f"`build` creates weights {built}, and the call {called}"


def check_outputs(layer_class, init_kwargs, call, expected_shape, expected_dtype):
    shapes = expected_shape if isinstance(expected_shape, list) else [expected_shape]
    reference = layer_class(**init_kwargs, dtype="float32")
    reference_outputs = to_numpy(call(reference))
    for policy, tolerance in TOLERANCES.items():
        if policy == "float64" and keras.backend.backend() == "jax":
            continue  # JAX disables float64 by default
        layer = layer_class(**init_kwargs, dtype=policy)
        symbols = specifications(call.on_symbols(layer))
        layer.set_weights(reference.get_weights())
        outputs = call(layer)
        if keras.backend.backend() == "torch" and policy == "float64":
            # Keras multiplies in float32 there, if no bias is added.
            outputs = [ops.cast(x, expected_dtype or policy) for x in outputs]
        found = specifications(outputs)
        if keras.backend.backend() == "torch" and (
            policy.startswith("mixed") or policy == "float64"
        ):
            # Keras promises the dtype of the weights or float32 there.
            symbols = [
                (shape, dtype)
                for (shape, _), (_, dtype) in zip(symbols, found, strict=True)
            ]
        assert symbols == found, f"{policy}: promised {symbols}, returned {found}"

        dtypes = expected_dtype or layer.compute_dtype
        dtypes = dtypes if isinstance(dtypes, list) else [dtypes] * len(shapes)
        expected = list(zip(shapes, dtypes, strict=True))
        assert found == expected, f"{policy}: expected {expected}, returned {found}"
        stored = {w.dtype for w in layer.weights if "float" in w.dtype}
        assert stored <= {layer.variable_dtype}, f"{policy}: weights are {stored}"

        for output, wanted in zip(to_numpy(outputs), reference_outputs, strict=True):
            assert np.all(np.isfinite(output)), f"{policy}: not finite"
            error = np.max(np.abs(output - wanted))
            limit = tolerance * np.max(np.abs(wanted))
            assert error <= limit, f"{policy}: {error} away from float32"


def specifications(tensors):
    dtype = keras.backend.standardize_dtype
    return [(tuple(x.shape), dtype(x.dtype)) for x in tensors]


def to_numpy(tensors):
    return [np.asarray(ops.convert_to_numpy(x), "float64") for x in tensors]


def check_training(layer, call):
    model = call.model(layer)
    if not model.trainable_weights:
        return
    before = model.get_weights()
    model.compile(optimizer=keras.optimizers.SGD(1.0), loss="mse")
    targets = [x + 1.0 for x in to_numpy(call(layer))]
    history = model.fit(call.arrays, targets, batch_size=1000, verbose=0).history
    assert np.all(np.isfinite(history["loss"])), "the loss is not finite"
    moved = [np.any(x != y) for x, y in zip(before, model.get_weights(), strict=True)]
    assert any(moved), "training changes no weight"


def check_saving(layer, call):
    model = call.model(layer)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.keras")
        model.save(path)
        reloaded = keras.models.load_model(path)
    for before, after in zip(model.get_weights(), reloaded.get_weights(), strict=True):
        np.testing.assert_array_equal(after, before, "a reloaded weight differs")
    outputs = tree.flatten(reloaded.predict_on_batch(call.arrays))
    for after, before in zip(outputs, to_numpy(call(layer)), strict=True):
        message = "the reloaded model gives other outputs"
        np.testing.assert_allclose(after, before, 1e-5, 1e-5, err_msg=message)


def check_masking(layer, call, supports_masking):
    found = layer.supports_masking
    assert found == supports_masking, f"supports_masking is {found}"
    if not supports_masking:
        return
    random = np.random.default_rng(0)
    is_sequence = [x.ndim == 3 and x.dtype.kind == "f" for x in call.arrays]
    masks = [random.random(x.shape[:2]) < 0.6 for x in call.arrays]
    for mask in masks:
        mask[:, :1] = True
        mask[0, -1] = False

    def call_with_masks(arrays):
        items = zip(arrays, masks, is_sequence, strict=True)
        tensors = [AttachMask()((x, m)) if masked else x for x, m, masked in items]
        output = call(layer, tensors)[0]
        probe = ReadMask()
        probe(output)
        return ops.convert_to_numpy(output), probe.mask

    changed = [
        np.where(mask[..., None], x, random.normal(0, 10, x.shape).astype(x.dtype))
        if masked
        else x
        for x, mask, masked in zip(call.arrays, masks, is_sequence, strict=True)
    ]
    output, output_mask = call_with_masks(call.arrays)
    other, _ = call_with_masks(changed)
    if is_sequence[0] and output.shape[:2] == masks[0].shape:
        assert output_mask is not None, "the layer does not pass the mask on"
        output_mask = ops.convert_to_numpy(output_mask)
        np.testing.assert_array_equal(
            output_mask, masks[0], "the layer passes on another mask"
        )
        output, other = output[output_mask], other[output_mask]
    elif is_sequence[0]:
        assert output_mask is None, (
            "the layer passes on a mask for an output of another shape"
        )
    message = "masked positions change the output"
    np.testing.assert_allclose(other, output, 1e-5, 1e-6, err_msg=message)


class AttachMask(keras.layers.Layer):
    """Attaches a Keras mask to a tensor."""

    def call(self, inputs):
        return inputs[0] + 0.0

    def compute_mask(self, inputs, previous_mask):
        return inputs[1]


class ReadMask(keras.layers.Layer):
    """Keeps the Keras mask of its input."""

    def __init__(self):
        super().__init__()
        self.supports_masking = True
        self.mask = None

    def call(self, inputs, mask=None):
        self.mask = mask
        return inputs
