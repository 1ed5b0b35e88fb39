"""Fails when Keras changes what `keras_private` uses, or others use more."""

import ast
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops
from layer_contract import ReadMask

import keras_transformer
from keras_transformer import keras_private

PACKAGE = Path(keras_transformer.__file__).parent
RANDOM = np.random.default_rng(7)


@pytest.fixture
def variables():
    return [keras.Variable(np.ones(size), name=f"v{size}") for size in (2, 3, 5)]


def test_an_optimizer_knows_the_place_of_its_variables(variables):
    optimizer = keras.optimizers.Adam()
    optimizer.build(variables)
    for index, variable in enumerate(variables):
        assert keras_private.variable_index(optimizer, variable) == index
        if keras.backend.backend() == "tensorflow":
            # As `update_step` receives it.
            assert keras_private.variable_index(optimizer, variable.value) == index
    with pytest.raises(ValueError, match="built for other variables"):
        keras_private.variable_index(optimizer, keras.Variable(np.ones(2)))


def test_an_optimizer_knows_the_variables_it_was_built_with(variables):
    optimizer = keras.optimizers.Adam()
    optimizer.build(variables)
    found = keras_private.trainable_variables(optimizer)
    assert [id(x) for x in found] == [id(x) for x in variables]


def test_a_mask_that_is_set_reaches_the_next_layer():
    probe = ReadMask()
    states, mask = ops.ones((2, 3)), ops.array([True, False])
    keras_private.set_mask(states, mask)
    probe(states)
    assert probe.mask is mask
    assert keras_private.get_mask(states) is mask
    assert keras_private.get_mask(ops.ones((2, 3))) is None


def test_keras_asks_for_shapes_before_it_computes():
    asked = []

    class Spy(keras.layers.Layer):
        def call(self, inputs):
            asked.append(keras_private.asks_for_shapes())
            return inputs

    layer = Spy()
    layer(keras.KerasTensor((2, 3)))
    layer(ops.ones((2, 3)))
    assert asked == [True, False]


def steps_and_losses(model, data):
    """What `fit` and `evaluate` count: steps, and rows, by which losses are divided."""
    model.compile(keras.optimizers.SGD(0.0), "mse", jit_compile=False)
    losses = model.fit(data, epochs=2, shuffle=False, verbose=0).history["loss"]
    return int(model.optimizer.iterations), [*losses, model.evaluate(data, verbose=0)]


@pytest.mark.needs_tensorflow
@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_an_unknown_length_of_the_data_adds_no_step():
    import tensorflow as tf

    sizes = {"num_layers": 1, "hidden_dim": 6, "num_heads": 2, "intermediate_dim": 7}
    ours = keras_transformer.models.TextClassifier(11, 3, dropout=0, **sizes)
    theirs = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])
    batches = RANDOM.integers(1, 11, (15, 5)), RANDOM.normal(size=(15, 3))
    known = tf.data.Dataset.from_tensor_slices(batches).batch(3, drop_remainder=True)
    unknown = known.filter(lambda *batch: True)
    assert unknown.cardinality() == tf.data.UNKNOWN_CARDINALITY
    for model, is_right in ((ours, True), (theirs, False)):
        steps, losses = steps_and_losses(model, known)
        assert steps == 10
        found, found_losses = steps_and_losses(model, unknown)
        # If this fails for `theirs`, Keras needs no `after_the_batch` any more.
        assert (found == steps) is is_right
        assert (found_losses == pytest.approx(losses, 1e-5)) is is_right


def test_a_scope_inherits_the_values_around_it(variables):
    first, second, third = variables
    values = [(first, ops.zeros(2)), (second, ops.zeros(3))]
    with keras.StatelessScope(values):
        scope_with = keras_private.inheriting_scope()
    inner = [(second, ops.full((3,), 2.0))]
    with scope_with(inner):
        found = [float(ops.convert_to_numpy(x.value)[0]) for x in variables]
        second.assign(ops.full((3,), 5.0))
    assert found == [0, 2, 1]
    with scope_with(inner):  # begins anew
        assert float(ops.convert_to_numpy(second.value)[0]) == 2


@pytest.mark.parametrize("mode", [None, "full", "activations"])
def test_a_layer_knows_the_scope_that_it_was_made_in(mode):
    with keras.RematScope(mode):
        layer = keras.layers.Dense(2)
    assert keras_private.was_made_in_full_remat_scope(layer) is (mode == "full")
    outside = keras.layers.Dense(2)
    assert not keras_private.was_made_in_full_remat_scope(outside)


def test_layers_forget_their_scope_inside_of_another():
    with keras.RematScope("full"):
        outer = keras.Sequential([keras.Sequential([keras.layers.Dense(2)])])
    inner = outer.layers[0].layers[0]
    with keras_private.without_inner_remat(outer):
        assert inner.rematerialized_call(inner.call) == inner.call
        assert outer.rematerialized_call(outer.call) != outer.call
    assert inner.rematerialized_call(inner.call) != inner.call


def test_a_value_keeps_the_dtype_of_its_variable():
    class Cast(keras.layers.Layer):
        def build(self, _):
            self.scale = self.add_weight(shape=())

        def call(self, inputs):
            values = self.scale.value, keras_private.uncast(self.scale)
            self.dtypes = [keras.backend.standardize_dtype(x.dtype) for x in values]
            return inputs

    layer = Cast(dtype="mixed_bfloat16")
    layer(ops.ones(2))
    assert layer.dtypes == ["bfloat16", "float32"]


def test_all_layers_are_those_at_any_depth():
    inner = keras.Sequential([keras.layers.Dense(2), keras.layers.Dense(3)])
    outer = keras.Sequential([inner, keras.layers.Dense(5)])
    outer.build((None, 7))
    found = {id(layer) for layer in keras_private.all_layers(outer)}
    assert {id(x) for x in (outer, inner, *inner.layers, *outer.layers)} <= found


@pytest.mark.parametrize(("epoch", "expected"), [(3, [3, 4]), (None, [2, 3, 4])])
def test_fit_begins_at_the_epoch_that_a_callback_names(epoch, expected):
    begin = keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: keras_private.begin_at_epoch(model, epoch)
    )
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    how = {"epochs": 5, "initial_epoch": 2, "verbose": 0, "callbacks": [begin]}
    assert model.fit(np.ones((3, 2)), np.ones((3, 1)), **how).epoch == expected


def test_a_loss_is_given_to_the_metric_that_is_set():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"], jit_compile=False)
    keras_private.set_loss_tracker(model, keras.metrics.Sum(name="loss"))
    assert [x.name for x in model.metrics] == ["loss", "compile_metrics"]
    data = np.ones((4, 2)), np.zeros((4, 1))
    model.build((None, 2))
    expected = float(model.compute_loss(y=data[1], y_pred=model(data[0])))
    found = model.evaluate(*data, batch_size=2, return_dict=True, verbose=0)
    np.testing.assert_allclose(found["loss"], 4 * expected, 1e-5)


_DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def test_nothing_else_in_the_package_uses_private_names_of_keras():
    """Every private attribute that is read is one that the package itself defines."""
    # Those of named tuples and of the module `os`.
    defined, used = {"_asdict", "_fields", "_replace", "_exit"}, {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = []
            if isinstance(node, _DEFINITIONS):
                defined.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                defined.add(node.id)
            elif isinstance(node, ast.Attribute):
                if isinstance(node.ctx, ast.Store):
                    defined.add(node.attr)
                elif node.attr.startswith("_") and not node.attr.startswith("__"):
                    names = [node.attr]
            elif isinstance(node, ast.Import | ast.ImportFrom):
                module = getattr(node, "module", None) or ""
                modules = [module, *(alias.name for alias in node.names)]
                names = [name for name in modules if name.startswith("keras.src")]
            for name in names:
                used.setdefault(name, set()).add(path.relative_to(PACKAGE).as_posix())
    foreign = {name: used[name] for name in used.keys() - defined}
    home = {"keras_private.py"}
    names = (
        "_get_variable_index",
        "_flatten_layers",
        "_trainable_variables",
        "_layout_map",
    )
    common = "keras.src.backend.common"
    modules = (
        f"{common}.{x}"
        for x in ("masking", "stateless_scope", "symbolic_scope", "variables")
    )
    modules = *modules, "keras.src.utils.tracking"
    expected = {"_registry": {"kernels/graphs.py"}}  # TensorFlow's, of gradients
    assert foreign == expected | dict.fromkeys((*names, *modules), home)


def test_the_rules_of_a_layout_are_known_where_one_is_set():
    assert keras_private.layout_rules() == {}
    devices = keras.distribution.list_devices()[:1]
    mesh = keras.distribution.DeviceMesh((1, 1), ["batch", "model"], devices)
    layout = keras.distribution.LayoutMap(mesh)
    with keras.distribution.ModelParallel(layout_map=layout).scope():
        assert keras_private.layout_rules() is layout
