import keras
import numpy as np
import pytest

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


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("rate", [0.1, keras.optimizers.schedules.CosineDecay(0.1, 7)])
def test_it_makes_the_updates_of_keras(rate, jit_compile):
    ours = fit(Adam(rate), ROWS, jit_compile=jit_compile)
    theirs = fit(keras.optimizers.Adam(rate, **PAPER), ROWS)
    np.testing.assert_allclose(kernel(ours), kernel(theirs), rtol=1e-5)


def test_rows_of_an_embedding_that_were_not_read_move_as_in_keras():
    def rows(optimizer):
        keras.utils.set_random_seed(7)
        model = keras.Sequential([keras.layers.Embedding(5, 2)])
        model.compile(optimizer, "mse")
        ids = np.array([[1, 3], [3, 1], [2, 1]])
        model.fit(ids, np.ones((3, 2, 2)), batch_size=1, shuffle=False, verbose=0)
        return model.get_weights()[0]

    ours, theirs = rows(Adam(0.1)), rows(keras.optimizers.Adam(0.1, **PAPER))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_several_batches_make_the_update_of_one_that_holds_them_all():
    small = fit(accumulating(), ROWS)
    large = fit(keras.optimizers.Adam(0.1, **PAPER), STEPS * ROWS)
    np.testing.assert_allclose(kernel(small), kernel(large), rtol=1e-5)
    assert int(small.optimizer.iterations) == int(large.optimizer.iterations) == 2


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
