import keras
import numpy as np
import pytest

from keras_transformer.training import Cooldown, InverseSquareRootSchedule

STEPS = np.array([1, 2, 399, 400, 401, 4000, 100_000, 10_000_000])


def paper_formula(step, hidden_dim, warmup_steps):
    """Section 5.3 of the paper, which counts steps from 1."""
    step = np.float64(step)
    return hidden_dim**-0.5 * np.minimum(step**-0.5, step * warmup_steps**-1.5)


@pytest.mark.parametrize("warmup_steps", [1, 400, 4000])
@pytest.mark.parametrize("hidden_dim", [7, 512])
def test_is_the_formula_of_the_paper(hidden_dim, warmup_steps):
    schedule = InverseSquareRootSchedule(hidden_dim, warmup_steps)
    rates = [float(schedule(step - 1)) for step in STEPS]
    expected = paper_formula(STEPS, hidden_dim, warmup_steps)
    np.testing.assert_allclose(rates, expected, 1e-5)


def test_defaults_are_those_of_the_paper():
    rate = InverseSquareRootSchedule(512)(3999)
    np.testing.assert_allclose(rate, paper_formula(4000, 512, 4000), 1e-6)


def test_scale_multiplies_the_rate():
    schedule = InverseSquareRootSchedule(11, 400, scale=3.0)
    expected = 3 * paper_formula(STEPS, 11, 400)
    np.testing.assert_allclose([float(schedule(s - 1)) for s in STEPS], expected, 1e-5)


def test_rises_to_the_peak_and_falls_from_it():
    schedule = InverseSquareRootSchedule.with_peak(2e-3, hidden_dim=11, warmup_steps=37)
    rates = np.array([float(schedule(step)) for step in range(200)])
    assert rates.argmax() == 36
    np.testing.assert_allclose(rates.max(), 2e-3, 1e-5)
    np.testing.assert_allclose(np.diff(rates[:37]), rates[0], 1e-3)
    assert np.all(np.diff(rates[36:]) < 0)
    np.testing.assert_allclose(rates[4 * 37 - 1], 1e-3, 1e-4)


@pytest.mark.parametrize("hidden_dim", [3, 1024])
def test_the_peak_does_not_depend_on_the_width(hidden_dim):
    schedule = InverseSquareRootSchedule.with_peak(5e-3, hidden_dim, warmup_steps=100)
    np.testing.assert_allclose(schedule(99), 5e-3, 1e-5)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_takes_the_step_of_an_optimizer(dtype):
    step = keras.Variable(41, dtype=dtype, trainable=False)
    schedule = InverseSquareRootSchedule(11)
    np.testing.assert_allclose(schedule(step), paper_formula(42, 11, 4000), 1e-5)
    assert keras.backend.standardize_dtype(schedule(step).dtype) == "float32"


def test_an_optimizer_follows_it():
    schedule = InverseSquareRootSchedule.with_peak(1.0, hidden_dim=11, warmup_steps=4)
    optimizer = keras.optimizers.SGD(schedule)
    weight = keras.Variable(0.0)
    steps = []
    for _ in range(5):
        before = float(keras.ops.convert_to_numpy(weight))
        optimizer.apply([keras.ops.ones(())], [weight])
        steps.append(before - float(keras.ops.convert_to_numpy(weight)))
    np.testing.assert_allclose(steps, [0.25, 0.5, 0.75, 1, 0.8**0.5], 1e-5)


def test_comes_back_from_its_config():
    schedule = InverseSquareRootSchedule.with_peak(2e-3, 128, warmup_steps=600)
    stored = keras.saving.serialize_keras_object(schedule)
    restored = keras.saving.deserialize_keras_object(stored)
    assert type(restored) is InverseSquareRootSchedule
    assert restored.get_config() == schedule.get_config()
    assert float(restored(17)) == float(schedule(17))


@pytest.mark.parametrize("name", ["hidden_dim", "warmup_steps", "scale"])
@pytest.mark.parametrize("value", [0, -1])
def test_arguments_must_be_positive(name, value):
    arguments = {"hidden_dim": 8, name: value}
    with pytest.raises(ValueError, match=f"must be positive. .*{name}={value}"):
        InverseSquareRootSchedule(**arguments)


def test_a_cooldown_ends_another_schedule_at_zero():
    schedule = InverseSquareRootSchedule(11, 5)
    cooled = Cooldown(schedule, start=17, steps=10)
    for step in (0, 5, 17):
        np.testing.assert_allclose(cooled(step), schedule(step), 1e-6)
    np.testing.assert_allclose(cooled(20), 0.7 * schedule(20), 1e-6)
    assert [float(cooled(step)) for step in (27, 1000)] == [0, 0]


def test_a_cooldown_comes_back_with_its_schedule():
    cooled = Cooldown(InverseSquareRootSchedule(11, 5), start=17, steps=10)
    config = keras.saving.serialize_keras_object(cooled)
    again = keras.saving.deserialize_keras_object(config)
    assert again.get_config() == cooled.get_config()
    assert float(again(21)) == float(cooled(21))


@pytest.mark.parametrize(("start", "steps"), [(-1, 5), (3, 0)])
def test_a_cooldown_needs_a_beginning_and_an_end(start, steps):
    with pytest.raises(ValueError, match=f"start={start}, steps={steps}"):
        Cooldown(InverseSquareRootSchedule(11), start, steps)


@pytest.mark.parametrize("peak", [0, -1e-3, float("nan")])
def test_a_peak_that_is_not_positive_is_named(peak):
    with pytest.raises(ValueError, match=f"`peak` must be positive. .*peak={peak}"):
        InverseSquareRootSchedule.with_peak(peak, hidden_dim=11)
