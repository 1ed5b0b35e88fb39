import keras
import numpy as np
import pytest

from keras_transformer.models import Transformer
from keras_transformer.training import Checkpoints, average_checkpoints


def transformer(value=None, **settings):
    sizes = {"num_layers": 1, "hidden_dim": 6, "num_heads": 3, "intermediate_dim": 7}
    model = Transformer(11, **{**sizes, **settings})
    if value is not None:
        model.set_weights([np.full(w.shape, value) for w in model.weights])
    return model


def save_all(folder, models):
    paths = [folder / f"{index}.keras" for index in range(len(models))]
    for model, path in zip(models, paths, strict=True):
        model.save(path)
    return paths


def test_every_weight_is_the_mean_of_its_values(tmp_path):
    models = [transformer() for _ in range(3)]
    average = average_checkpoints(save_all(tmp_path, models))
    assert isinstance(average, Transformer)
    weights = [model.get_weights() for model in models]
    for found, *values in zip(average.get_weights(), *weights, strict=True):
        np.testing.assert_allclose(found, np.mean(values, axis=0), rtol=1e-6, atol=1e-7)


def test_the_average_of_one_is_itself(tmp_path):
    model = transformer()
    (path,) = save_all(tmp_path, [model])
    for paths in ([path], path, str(path)):
        found = average_checkpoints(paths).get_weights()
        for weight, expected in zip(found, model.get_weights(), strict=True):
            np.testing.assert_array_equal(weight, expected)


def test_the_checkpoints_of_a_training_are_averaged(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for epoch, value in ((1, 97.0), (2, 3.0), (3, 7.0)):
        checkpoints.save(transformer(value), epoch)
    average = average_checkpoints(checkpoints.paths()[-2:])
    assert all(np.all(weight == 5.0) for weight in average.get_weights())


def test_sums_are_held_in_double_precision(tmp_path):
    # In float32, 2 ** 24 + 1 is 2 ** 24 again.
    models = [transformer(value) for value in (2.0**24, 1.0, 1.0)]
    average = average_checkpoints(save_all(tmp_path, models))
    assert all(np.all(x == (2.0**24 + 2) / 3) for x in average.get_weights())


@pytest.mark.parametrize("dtype", ["bfloat16", "mixed_bfloat16"])
def test_the_dtype_of_the_weights_is_kept(tmp_path, dtype):
    models = [transformer(value, dtype=dtype) for value in (3.0, 5.0)]
    average = average_checkpoints(iter(map(str, save_all(tmp_path, models))))
    assert [w.dtype for w in average.weights] == [w.dtype for w in models[0].weights]
    assert all(np.all(w == 4.0) for w in average.get_weights())


def test_how_models_were_compiled_does_not_matter(tmp_path):
    models = [transformer(value) for value in (1.0, 3.0, 8.0)]
    for model, optimizer in zip(models[1:], ("adam", "sgd"), strict=True):
        model.compile(optimizer, "mse")
        model.optimizer.build(model.trainable_variables)
    average = average_checkpoints(save_all(tmp_path, models))
    assert all(np.all(weight == 4.0) for weight in average.get_weights())
    assert not average.compiled


def test_other_models_are_averaged_too(tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(5)])
    for value in (1.0, 4.0):
        model.set_weights([np.full((3, 5), value), np.full(5, value)])
        model.save(tmp_path / f"{value}.keras")
    average = average_checkpoints([tmp_path / "1.0.keras", tmp_path / "4.0.keras"])
    assert all(np.all(weight == 2.5) for weight in average.get_weights())


def test_models_of_other_configs_are_refused(tmp_path):
    models = [transformer(), transformer(num_heads=2, dropout=0.2)]
    with pytest.raises(ValueError, match="1.keras differs.*0.keras in: dropout, num_h"):
        average_checkpoints(save_all(tmp_path, models))


def test_there_must_be_a_checkpoint():
    with pytest.raises(ValueError, match=r"at least one checkpoint. Received: \[\]"):
        average_checkpoints([])
