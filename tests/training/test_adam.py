import functools

import keras
import numpy as np
import pytest

from keras_transformer.kernels.graphs import dense_gradient
from keras_transformer.training import Adam

STEPS, ROWS = 3, 5
RANDOM = np.random.default_rng(7)
INPUTS = RANDOM.normal(size=(2 * STEPS * ROWS, 7))
TARGETS = RANDOM.normal(size=(2 * STEPS * ROWS, 2))

PAPER = {"beta_1": 0.9, "beta_2": 0.98, "epsilon": 1e-9}


def accumulating():
    return Adam(0.1, gradient_accumulation_steps=STEPS)


def fit(optimizer, batch_size, batches=None, jit_compile=False):
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((7,)), keras.layers.Dense(2)])
    model.compile(optimizer, "mse", jit_compile=jit_compile)
    rows = slice(batches and batches * batch_size)
    model.fit(
        INPUTS[rows], TARGETS[rows], batch_size=batch_size, shuffle=False, verbose=0
    )
    return model


def kernel(model):
    return keras.ops.convert_to_numpy(model.layers[-1].kernel)


@pytest.mark.quick("rate1-False")
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("rate", [0.1, keras.optimizers.schedules.CosineDecay(0.1, 7)])
def test_it_makes_the_updates_of_keras(rate, jit_compile):
    ours = fit(Adam(rate), ROWS, jit_compile=jit_compile)
    theirs = fit(keras.optimizers.Adam(rate, **PAPER), ROWS)
    # Steps of 0.1 leave weights near 0.01 with the rounding errors of larger ones.
    np.testing.assert_allclose(kernel(ours), kernel(theirs), 1e-5, 1e-6)


def embedding_rows(optimizer):
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.layers.Embedding(5, 2)])
    model.compile(optimizer, "mse")
    ids = np.array([[1, 3], [3, 1], [2, 1]])
    model.fit(ids, np.ones((3, 2, 2)), batch_size=1, shuffle=False, verbose=0)
    return model.get_weights()[0]


def test_rows_of_an_embedding_that_were_not_read_move_as_in_keras():
    ours = embedding_rows(Adam(0.1))
    theirs = embedding_rows(keras.optimizers.Adam(0.1, **PAPER))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_a_scaled_loss_trains_embeddings():  # in Keras it raises a TypeError
    ours = embedding_rows(Adam(0.1, loss_scale_factor=64.0))
    theirs = embedding_rows(keras.optimizers.Adam(0.1, **PAPER))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)


def test_several_batches_make_the_update_of_one_that_holds_them_all():
    small = fit(accumulating(), ROWS)
    large = fit(keras.optimizers.Adam(0.1, **PAPER), STEPS * ROWS)
    np.testing.assert_allclose(kernel(small), kernel(large), rtol=1e-5)
    assert int(small.optimizer.iterations) == int(large.optimizer.iterations) == 2


@pytest.mark.slow
def test_it_is_what_keras_does_on_one_device():
    ours = fit(accumulating(), ROWS)
    theirs = fit(
        keras.optimizers.Adam(0.1, gradient_accumulation_steps=STEPS, **PAPER), ROWS
    )
    np.testing.assert_allclose(kernel(ours), kernel(theirs), rtol=1e-5)


def test_nothing_moves_before_the_last_batch():
    optimizer = accumulating()
    before = kernel(fit(keras.optimizers.SGD(0.0), ROWS))
    np.testing.assert_array_equal(kernel(fit(optimizer, ROWS, STEPS - 1)), before)
    assert not np.array_equal(kernel(fit(accumulating(), ROWS, STEPS)), before)


def test_what_has_been_summed_is_saved_with_the_model(tmp_path):
    whole = fit(accumulating(), ROWS)
    part = fit(accumulating(), ROWS, STEPS + 1)
    part.save(tmp_path / "part.keras")
    part = keras.saving.load_model(tmp_path / "part.keras")
    assert part.optimizer.batches_per_update == STEPS
    rest = slice((STEPS + 1) * ROWS, None)
    part.fit(INPUTS[rest], TARGETS[rest], batch_size=ROWS, shuffle=False, verbose=0)
    np.testing.assert_allclose(kernel(part), kernel(whole), rtol=1e-6)


@pytest.mark.parametrize("steps", [0, -1])
def test_an_update_needs_a_batch(steps):
    with pytest.raises(
        ValueError, match="must be a positive integer. Received.*=-?[01]"
    ):
        Adam(gradient_accumulation_steps=steps)


@pytest.mark.quick(
    "float16-options0-False", "float16-options2-True", "bfloat16-options3-False"
)
@pytest.mark.parametrize(
    ("dtype", "options", "learns"),
    [
        ("float16", {}, False),  # epsilon would be 0, and the weights NaN
        ("float16", {"epsilon": 1e-7}, False),
        ("float16", {"epsilon": 1e-4}, True),
        ("bfloat16", {"beta_2": 0.999}, False),  # it would be 1, and nothing move
        ("bfloat16", {}, True),
        ("mixed_float16", {"beta_2": 0.999}, True),
    ],
)
def test_weights_in_half_precision_are_trained_or_refused(dtype, options, learns):
    layers = [keras.Input((7,)), keras.layers.Dense(2, dtype=dtype)]
    model = keras.Sequential(layers)
    model.compile(Adam(0.03, **options), "mse")
    fit = functools.partial(model.fit, INPUTS, TARGETS, epochs=7, verbose=0)
    if learns:
        losses = fit().history["loss"]
        assert losses[-1] < 0.9 * losses[0]
    else:
        with pytest.raises(
            ValueError, match=f"rounded to {dtype}. Build.*mixed_{dtype}"
        ):
            fit()


# The options of `keras.optimizers.Adam`, which the base class applies.

OPTIONS = {
    "amsgrad": {"amsgrad": True},
    "weight decay": {"weight_decay": 0.3},
    "clipnorm": {"clipnorm": 0.02},
    "clipvalue": {"clipvalue": 0.005},
    "global clipnorm": {"global_clipnorm": 0.02},
    "average": {"use_ema": True, "ema_momentum": 0.7, "ema_overwrite_frequency": 2},
    "loss scale": {"loss_scale_factor": 64.0},
    "all": {
        "amsgrad": True,
        "weight_decay": 0.3,
        "global_clipnorm": 0.02,
        "use_ema": True,
        "ema_momentum": 0.7,
        "ema_overwrite_frequency": 2,
        "loss_scale_factor": 64.0,
    },
}
IDS = RANDOM.integers(0, 11, (4 * STEPS * ROWS, 3))
LABELS = RANDOM.normal(size=(4 * STEPS * ROWS, 3, 2))


def trained(optimizer, batch_size=ROWS, embeds=True, **compile_options):
    """Weights after each update of a model with dense and embedding gradients."""
    keras.utils.set_random_seed(7)
    embedding = keras.layers.Embedding(11, 5) if embeds else keras.layers.Dense(5)
    model = keras.Sequential([embedding, keras.layers.Dense(2)])
    model.compile(optimizer, "mse", **compile_options)
    inputs = IDS if embeds else np.sin(IDS)[..., None] * [1.0, 2.0]
    weights = []
    for start in range(0, len(IDS), batch_size):
        rows = slice(start, start + batch_size)
        model.train_on_batch(inputs[rows], LABELS[rows])
        weights.append(model.get_weights())
    return model, weights[STEPS * ROWS // batch_size - 1 :: STEPS * ROWS // batch_size]


class DenseAdam(keras.optimizers.Adam):
    """Keras's Adam, which would clip rows before it sums those of one token."""

    def apply(self, grads, trainable_variables=None):
        super().apply([dense_gradient(x) for x in grads], trainable_variables)


@functools.cache
def plainly_trained(embeds, eager):
    """The weights that Keras's Adam gives without any option."""
    plain = keras.optimizers.Adam(0.1, **PAPER)
    return trained(plain, embeds=embeds, **HOW[eager])[1]


def assert_same_steps(ours, theirs):
    assert len(ours) == len(theirs) == 4
    for found, expected in zip(ours, theirs, strict=True):
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_allclose(x, y, 1e-4, 1e-6)


HOW = {True: {"run_eagerly": True}, False: {"jit_compile": False}}
# What works eagerly and, all together, in a graph, works alone in a graph too.
each_option = pytest.mark.parametrize(
    ("name", "eager"),
    [
        *((name, True) for name in OPTIONS),
        ("all", False),
        *(
            pytest.param(name, False, marks=pytest.mark.slow)
            for name in OPTIONS
            if name != "all"
        ),
    ],
)


@pytest.mark.quick("global clipnorm-True", "average-True")
@each_option
def test_every_option_makes_the_updates_of_keras(name, eager):
    how = HOW[eager]
    # Keras divides no sparse gradient by `loss_scale_factor`.
    embeds = "loss_scale_factor" not in OPTIONS[name]
    options = {**PAPER, **OPTIONS[name]}
    ours, found = trained(Adam(0.1, **options), embeds=embeds, **how)
    clips_rows = name in ("clipnorm", "clipvalue")
    theirs = (DenseAdam if clips_rows else keras.optimizers.Adam)(0.1, **options)
    theirs, expected = trained(theirs, embeds=embeds, **how)
    assert_same_steps(found, expected)
    plain = plainly_trained(embeds, eager)
    differs = not np.allclose(plain[-1][0], expected[-1][0], 1e-3)
    assert differs == (name != "loss scale"), "the option changes nothing"
    for optimizer, model in ((ours.optimizer, ours), (theirs.optimizer, theirs)):
        optimizer.finalize_variable_values(model.trainable_variables)
    assert_same_steps([ours.get_weights()] * 4, [theirs.get_weights()] * 4)


@pytest.mark.quick("amsgrad-True")
@each_option
def test_options_apply_to_the_mean_gradient_once_per_update(name, eager):
    how = HOW[eager]
    options = {**PAPER, **OPTIONS[name]}
    ours, found = trained(
        Adam(0.1, gradient_accumulation_steps=STEPS, **options), embeds=False, **how
    )
    theirs, expected = trained(
        keras.optimizers.Adam(0.1, **options), STEPS * ROWS, embeds=False, **how
    )
    assert_same_steps(found, expected)
    assert int(ours.optimizer.iterations) == int(theirs.optimizer.iterations) == 4
    for model in (ours, theirs):
        model.optimizer.finalize_variable_values(model.trainable_variables)
    assert_same_steps([ours.get_weights()] * 4, [theirs.get_weights()] * 4)


@pytest.mark.slow
def test_the_mean_gradient_of_an_embedding_is_clipped_as_in_keras():
    options = {**PAPER, "global_clipnorm": 0.02, "gradient_accumulation_steps": STEPS}
    _, found = trained(Adam(0.1, **options))
    _, expected = trained(keras.optimizers.Adam(0.1, **options))
    assert_same_steps(found, expected)


@pytest.mark.needs_tensorflow
@pytest.mark.parametrize("options", [{"clipnorm": 0.3}, {"clipvalue": 0.2}])
def test_rows_of_one_token_are_summed_before_they_are_clipped(options):
    import tensorflow as tf

    rows = tf.constant([[0.5, -0.5], [0.4, 0.5]])
    sparse = tf.IndexedSlices(rows, tf.constant([1, 1]), tf.constant([3, 2]))
    tables = []
    for gradient in (sparse, tf.convert_to_tensor(sparse)):
        table = keras.Variable(np.ones((3, 2), "float32"))
        optimizer = Adam(0.1, epsilon=1.0, **options)
        optimizer.apply([gradient], [table])
        tables.append(table.numpy())
    np.testing.assert_allclose(*tables, rtol=1e-6)


@pytest.mark.parametrize("steps", [1, STEPS])
def test_variables_of_half_precision_are_updated_as_in_keras(steps):
    gradients = [keras.ops.full((3, 2), x, "float32") for x in (0.5, -2.0, 1.0)]
    results = []
    for adam in (Adam, keras.optimizers.Adam):
        variable = keras.Variable(np.ones((3, 2)), dtype="bfloat16")
        options = {**PAPER, "clipnorm": 1.0, "weight_decay": 0.1}
        accumulation = steps if steps > 1 else None
        optimizer = adam(0.1, gradient_accumulation_steps=accumulation, **options)
        for gradient in gradients:
            optimizer.apply([keras.ops.cast(gradient, "bfloat16")], [variable])
        results.append(keras.ops.convert_to_numpy(keras.ops.cast(variable, "float32")))
    np.testing.assert_allclose(*results, 0.02)
    assert np.all(np.abs(results[0] - 1) > 0.05)


@pytest.mark.needs_tensorflow
def test_a_function_of_ones_own_accumulates_without_a_warning(caplog):
    import tensorflow as tf

    variable, optimizer = keras.Variable(np.ones(3)), accumulating()
    optimizer.build([variable])

    @tf.function
    def apply(gradient):
        optimizer.apply([gradient], [variable])

    for _ in range(STEPS):
        apply(tf.ones(3))
    np.testing.assert_allclose(variable, [0.9] * 3, 1e-5)
    assert not caplog.records


def test_decay_leaves_out_what_is_excluded():
    kernels = []
    for adam in (Adam, keras.optimizers.Adam):
        optimizer = adam(0.1, **PAPER, weight_decay=0.3)
        optimizer.exclude_from_weight_decay(var_names=["kernel"])
        kernels.append(trained(optimizer, embeds=False)[1])
    assert_same_steps(*kernels)


@pytest.mark.slow
def test_what_decay_leaves_out_is_kept_by_the_program_and_not_by_the_file(tmp_path):
    """If this fails, docs/guarantees.md need not except `load_model` any more."""

    def compiled():
        optimizer = Adam(0.1, weight_decay=0.3)
        optimizer.exclude_from_weight_decay(var_names=["kernel"])
        model = keras.Sequential([keras.Input((7,)), keras.layers.Dense(2)])
        model.compile(optimizer, "mse", jit_compile=False)
        return model

    def train(model):
        model.fit(INPUTS, TARGETS, shuffle=False, verbose=0)
        return kernel(model)

    whole, path = compiled(), tmp_path / "model.keras"
    train(whole)
    whole.save(path)
    resumed = compiled()
    resumed.optimizer.build(resumed.trainable_variables)
    resumed.load_weights(path)
    expected = train(whole)
    np.testing.assert_array_equal(train(resumed), expected)
    assert np.any(train(keras.models.load_model(path)) != expected)


def test_a_gradient_that_is_missing_is_left_out():
    first, second = keras.Variable(np.ones(2)), keras.Variable(np.ones(3))
    optimizer, gradients = accumulating(), [keras.ops.ones(2), None]
    for _ in range(STEPS - 1):
        optimizer.apply(gradients, [first, second])
    with pytest.warns(UserWarning, match="Gradients do not exist"):
        optimizer.apply(gradients, [first, second])
    first, second = map(keras.ops.convert_to_numpy, (first, second))
    np.testing.assert_allclose(first, [0.9, 0.9], 1e-5)
    np.testing.assert_array_equal(second, [1, 1, 1])


def test_the_config_holds_every_option(tmp_path):
    options = {**OPTIONS["all"], "name": "ours", "gradient_accumulation_steps": 5}
    optimizer = Adam(0.25, 0.8, 0.9, 1e-3, **options)
    config = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(optimizer)
    ).get_config()
    assert config == optimizer.get_config()
    assert options.items() <= config.items()
    assert set(keras.optimizers.Adam().get_config()) == set(config)


def test_a_config_of_an_older_release_loads():
    config = {
        "learning_rate": 0.25,
        "beta_1": 0.8,
        "beta_2": 0.9,
        "epsilon": 1e-3,
        "name": "ours",
        "gradient_accumulation_steps": 5,
    }
    assert config.items() <= Adam.from_config(dict(config)).get_config().items()


def test_options_that_are_not_used_add_no_variables():
    variables = [keras.Variable(np.ones(2), name="v")]
    names = []
    for steps in (1, 2):
        optimizer = Adam(gradient_accumulation_steps=steps, clipnorm=1.0)
        for _ in range(2):  # Keras may build it twice
            optimizer.build(variables)
        names.append([x.name.removeprefix("v_") for x in optimizer.variables])
    plain = ["iteration", "learning_rate", "momentum", "velocity", "gradient_norms"]
    assert names == [plain, [*plain, "gradient_sum"]]


def test_keras_says_which_options_exclude_each_other():
    with pytest.raises(ValueError, match="Only one of `clipnorm`"):
        Adam(clipnorm=1.0, clipvalue=1.0)
    with pytest.raises(ValueError, match="not recognized: {'clip'"):
        Adam(clip=1.0)


def test_a_subclass_may_give_each_variable_a_learning_rate():
    class ByLayer(Adam):
        def update_step(self, gradient, variable, learning_rate):
            factor = 0.1 if variable.shape == (1,) else 1.0
            super().update_step(gradient, variable, learning_rate * factor)

    slow, fast = (keras.Variable([0.0] * size, dtype="float32") for size in (1, 2))
    ByLayer(0.5).apply([keras.ops.ones((size,)) for size in (1, 2)], [slow, fast])
    # The first update of Adam is as large as the learning rate.
    np.testing.assert_allclose(keras.ops.convert_to_numpy(fast), [-0.5] * 2, 1e-5)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(slow), [-0.05], 1e-5)
