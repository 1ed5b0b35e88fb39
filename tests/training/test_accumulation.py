import keras
import numpy as np
import pytest

from keras_transformer.training import AccumulatingAdam

STEPS, ROWS = 3, 5
RANDOM = np.random.default_rng(7)
INPUTS = RANDOM.normal(size=(2 * STEPS * ROWS, 7))
TARGETS = RANDOM.normal(size=(2 * STEPS * ROWS, 2))


def fit(optimizer, batch_size, batches=None):
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((7,)), keras.layers.Dense(2)])
    model.compile(optimizer, "mse")
    rows = slice(batches and batches * batch_size)
    model.fit(
        INPUTS[rows], TARGETS[rows], batch_size=batch_size, shuffle=False, verbose=0
    )
    return model


def kernel(model):
    return keras.ops.convert_to_numpy(model.layers[-1].kernel)


def test_several_batches_make_the_update_of_one_that_holds_them_all():
    small = fit(AccumulatingAdam(0.1, STEPS), ROWS)
    large = fit(keras.optimizers.Adam(0.1), STEPS * ROWS)
    np.testing.assert_allclose(kernel(small), kernel(large), rtol=1e-5)
    assert int(small.optimizer.iterations) == int(large.optimizer.iterations) == 2


def test_it_is_what_keras_does_on_one_device():
    ours = fit(AccumulatingAdam(0.1, STEPS), ROWS)
    theirs = fit(keras.optimizers.Adam(0.1, gradient_accumulation_steps=STEPS), ROWS)
    np.testing.assert_allclose(kernel(ours), kernel(theirs), rtol=1e-5)


def test_nothing_moves_before_the_last_batch():
    optimizer = AccumulatingAdam(0.1, STEPS)
    before = kernel(fit(keras.optimizers.SGD(0.0), ROWS))
    np.testing.assert_array_equal(kernel(fit(optimizer, ROWS, STEPS - 1)), before)
    assert not np.array_equal(
        kernel(fit(AccumulatingAdam(0.1, STEPS), ROWS, STEPS)), before
    )


def test_what_has_been_summed_is_saved_with_the_model(tmp_path):
    whole = fit(AccumulatingAdam(0.1, STEPS), ROWS)
    part = fit(AccumulatingAdam(0.1, STEPS), ROWS, STEPS + 1)
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
        AccumulatingAdam(gradient_accumulation_steps=steps)
