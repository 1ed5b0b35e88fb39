"""The norm of the gradients, which is compared with that of gradients given by hand."""

import json

import keras
import numpy as np
import pytest
from forked import run_program
from keras import ops

from keras_transformer.training import Adam, Muon

# Of one update each; their norms are 13 and 5.
FIRST = [[[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]], [12.0, 0.0]]
SECOND = [[[0.0, 3.0], [0.0, 0.0], [4.0, 0.0]], [0.0, 0.0]]
OPTIMIZERS = {
    "adam": lambda: Adam(0.1),
    "muon": lambda: Muon(0.1),
    "clipping": lambda: Adam(0.1, global_clipnorm=0.5),
    "clipping each": lambda: Muon(0.1, clipnorm=0.5),
    "average": lambda: Adam(0.1, use_ema=True),
}


def new_variables():
    return [keras.Variable(np.ones(x, "float32")) for x in ((3, 2), (2,))]


def apply(optimizer, gradients, variables, dtype="float32"):
    optimizer.apply([ops.array(x, dtype) for x in gradients], variables)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_is_the_mean_of_the_updates_since_it_was_asked_for(name):
    optimizer, variables = OPTIMIZERS[name](), new_variables()
    assert optimizer.pop_gradient_norm() is None
    apply(optimizer, FIRST, variables)
    apply(optimizer, SECOND, variables)
    assert optimizer.pop_gradient_norm() == pytest.approx((13 + 5) / 2)
    assert optimizer.pop_gradient_norm() is None
    apply(optimizer, SECOND, variables)
    assert optimizer.pop_gradient_norm() == pytest.approx(5)


def test_it_is_that_of_the_mean_gradient_of_an_update():
    optimizer, variables = Adam(gradient_accumulation_steps=2), new_variables()
    apply(optimizer, FIRST, variables)
    assert optimizer.pop_gradient_norm() is None
    apply(optimizer, SECOND, variables)
    both = [np.add(x, y).ravel() / 2 for x, y in zip(FIRST, SECOND, strict=True)]
    norm = np.linalg.norm(np.concatenate(both))
    assert optimizer.pop_gradient_norm() == pytest.approx(norm)


@pytest.mark.parametrize("optimizer", [Adam, Muon])
def test_it_is_that_of_the_loss_before_it_was_scaled(optimizer):
    optimizer = optimizer(0.1, loss_scale_factor=64.0)
    apply(optimizer, [64 * np.array(x) for x in FIRST], new_variables())
    assert optimizer.pop_gradient_norm() == pytest.approx(13)


def test_squares_may_be_larger_than_half_precision():
    variable = keras.Variable([1.0, 1.0], dtype="float16")
    optimizer = Adam(0.1, epsilon=1e-4)
    apply(optimizer, [[300.0, 400.0]], [variable], "float16")
    assert optimizer.pop_gradient_norm() == pytest.approx(500)


@pytest.mark.needs_tensorflow
def test_rows_of_one_token_are_summed():
    import tensorflow as tf

    rows = tf.constant([[1.0, 2.0], [2.0, 2.0]])
    sparse = tf.IndexedSlices(rows, tf.constant([1, 1]), tf.constant([3, 2]))
    optimizer = Adam(0.1)
    optimizer.apply([sparse], new_variables()[:1])
    assert optimizer.pop_gradient_norm() == pytest.approx(5)


INPUTS = np.random.default_rng(7).normal(size=(2 * 5, 7)).astype("float32")
TARGETS = np.random.default_rng(11).normal(size=(2 * 5, 3)).astype("float32")
TARGETS[5:] *= 3


def dense_model(optimizer, **options):
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((7,)), keras.layers.Dense(3)])
    model.compile(optimizer, "mse", **options)
    return model


def expected_norm(model, rows):
    """The norm of the gradient of the mean squared error of a dense layer."""
    kernel, bias = model.get_weights()
    errors = 2 * (INPUTS[rows] @ kernel + bias - TARGETS[rows])
    errors /= errors.size
    parts = (INPUTS[rows].T @ errors).ravel(), errors.sum(axis=0)
    return np.linalg.norm(np.concatenate(parts))


@pytest.mark.quick("False-Adam", "True-Muon")
@pytest.mark.parametrize("optimizer", [Adam, Muon])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_training_has_the_norms_of_its_gradients(optimizer, jit_compile):
    model = dense_model(optimizer(0.1), jit_compile=jit_compile)
    norms = []
    for rows in (slice(0, 5), slice(5, 10)):
        norms.append(expected_norm(model, rows))
        model.fit(INPUTS[rows], TARGETS[rows], verbose=0)
    assert norms[0] != pytest.approx(norms[1], 0.1)
    assert model.optimizer.pop_gradient_norm() == pytest.approx(np.mean(norms), 1e-5)


def test_steps_that_overflow_are_left_out():
    inner = Adam(0.1)
    model = dense_model(keras.optimizers.LossScaleOptimizer(inner, initial_scale=64.0))
    norm = expected_norm(model, slice(0, 5))
    for targets in (TARGETS, np.inf * TARGETS):
        model.train_on_batch(INPUTS[:5], targets[:5])
    assert inner.pop_gradient_norm() == pytest.approx(norm, 1e-5)


def test_the_norms_are_saved_with_the_model(tmp_path):
    model = dense_model(Muon(0.1))
    norm = expected_norm(model, slice(0, 5))
    model.train_on_batch(INPUTS[:5], TARGETS[:5])
    model.save(tmp_path / "model.keras")
    model = keras.saving.load_model(tmp_path / "model.keras")
    assert model.optimizer.pop_gradient_norm() == pytest.approx(norm, 1e-5)


@pytest.mark.quick("rate1")
@pytest.mark.parametrize("rate", [0.1, keras.optimizers.schedules.CosineDecay(0.1, 7)])
def test_files_that_were_saved_without_norms_load(tmp_path, rate):
    # Its variables are those that `Adam` had before it measured norms.
    older = dense_model(keras.optimizers.Adam(rate))
    older.fit(INPUTS, TARGETS, verbose=0)
    older.save_weights(tmp_path / "older.weights.h5")
    model = dense_model(Adam(rate))
    model.optimizer.build(model.trainable_variables)
    model.load_weights(tmp_path / "older.weights.h5")
    assert model.optimizer.pop_gradient_norm() is None
    found = [x for x in model.optimizer.variables if x.name != "gradient_norms"]
    for one, other in zip(found, older.optimizer.variables, strict=True):
        assert np.any(ops.convert_to_numpy(one))
        np.testing.assert_array_equal(*map(ops.convert_to_numpy, (one, other)))


REPLICAS = """
import json
import tensorflow as tf
from keras import Variable
from keras_transformer.training import Adam, Muon

cpu, = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * 2
)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
norms = {}
for name, new in {
    "adam": lambda: Adam(0.1),
    "muon": lambda: Muon(0.1),
    "clipping": lambda: Adam(0.1, global_clipnorm=0.5),
    "accumulating": lambda: Adam(0.1, gradient_accumulation_steps=2),
}.items():
    with strategy.scope():
        optimizer, variable = new(), Variable([1.0, 1.0])
        optimizer.build([variable])

    def step():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        gradient = tf.where(replica == 0, [3.0, 0.0], [0.0, 4.0])
        optimizer.apply([gradient], [variable])

    run = tf.function(lambda: strategy.run(step))
    for _ in range(4):
        run()
    norms[name] = optimizer.pop_gradient_norm(), optimizer.pop_gradient_norm()
print(json.dumps(norms))
"""


@pytest.mark.slow
@pytest.mark.needs_tensorflow
def test_replicas_have_the_norm_of_their_sum_or_the_sum_of_their_norms():
    done = run_program(REPLICAS)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "adam": [pytest.approx(3 + 4), None],
        "muon": [pytest.approx(3 + 4), None],
        "clipping": [pytest.approx(5), None],
        "accumulating": [pytest.approx(5), None],
    }
