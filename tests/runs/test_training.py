import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.compat.proto import event_pb2

from keras_transformer.runs import train
from keras_transformer.runs.prepare import check_precision
from keras_transformer.runs.training import save_average, save_best


def last_weights(run):
    checkpoints = run.checkpoints()
    return [v.numpy() for v in checkpoints.load(checkpoints.latest()).variables]


def rows_without_time(run):
    return [{**row, "seconds": None} for row in run.log.rows()]


def test_every_epoch_has_a_row_and_a_checkpoint(trained):
    assert [int(row["epoch"]) for row in trained.log.rows()] == [1, 2, 3]
    names = [path.name for path in trained.checkpoints().paths()]
    assert names == ["epoch-0001.keras", "epoch-0002.keras", "epoch-0003.keras"]


def test_the_best_checkpoint_has_the_lowest_loss_of_the_log(trained):
    losses = [float(row["val_loss"]) for row in trained.log.rows()]
    checkpoints = trained.checkpoints()
    best = checkpoints.epoch_of(checkpoints.best_path)
    assert losses[best - 1] == min(losses)


def test_a_resumed_run_knows_the_best_checkpoint_from_before(copy, load):
    best = {"training.best": "val_bleu"}  # of epoch 2, since bleu_every is 2
    (copy.folder / "checkpoints" / "best.keras").unlink()  # as a kill may leave it
    train(load(**{"training.epochs": 3, "training.keep": 1, **best}), copy.folder)
    checkpoints = copy.checkpoints()
    assert checkpoints.epoch_of(checkpoints.best_path) == 2
    saved = checkpoints.load(checkpoints.best_path).get_weights()
    assert save_best(copy) == checkpoints.best_path
    for translator in (copy.translator(), copy.translator(checkpoints.best_path)):
        weights = translator.model.get_weights()
        for weight, wanted in zip(weights, saved, strict=True):
            np.testing.assert_array_equal(weight, wanted)


@pytest.mark.parametrize(
    "settings",
    [
        {"training.best": "val_hope"},
        {"training.best": "val_bleu", "training.bleu_every": None},
    ],
)
def test_the_best_must_be_chosen_by_what_is_measured(load, tmp_path, settings):
    with pytest.raises(ValueError, match=r"`training.best` must be.*Received: .*best="):
        train(load(**settings), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_without_the_metric_there_is_no_best_translator(copy):
    shutil.rmtree(copy.folder / "checkpoints")
    with pytest.raises(FileNotFoundError, match="no complete checkpoint with val_loss"):
        save_best(copy)


def test_a_row_tells_all_that_was_measured(trained):
    for row in trained.log.rows():
        bleu, chrf = row.pop("val_bleu"), row.pop("val_chrf")
        assert bool(bleu) == bool(chrf) == (row["epoch"] == "2")  # bleu_every is 2
        assert all(np.isfinite(float(value)) for value in row.values())


def test_tensorboard_shows_what_was_measured(trained):
    (path,) = (trained.tensorboard_path / "validation").iterdir()
    shown = {
        value.tag
        for record in tf.data.TFRecordDataset(str(path))
        for value in event_pb2.Event.FromString(record.numpy()).summary.value
    }
    measured = "loss", "token_accuracy", "perplexity", "bleu", "chrf"
    assert shown >= {f"epoch_{name}" for name in measured}


def test_how_steps_are_computed_is_up_to_the_recipe(copy, load, monkeypatch):
    how = {"epochs": 4, "steps_per_execution": 2}
    recipe = load(**{f"training.{name}": value for name, value in how.items()})
    models = []
    monkeypatch.setattr(
        keras.Model, "fit", lambda model, *_, **__: models.append(model)
    )
    train(recipe, copy.folder)
    (model,) = models
    how = model.steps_per_execution, model.jit_compile
    assert how == (2, False)


@pytest.mark.parametrize("name", ["adam", "muon"])
def test_the_weights_decay_of_muon_only_matrices(load, tmp_path, monkeypatch, name):
    models = []
    monkeypatch.setattr(
        keras.Model, "fit", lambda model, *_, **__: models.append(model)
    )
    settings = {"training.optimizer": name, "training.weight_decay": 0.5}
    with pytest.raises(FileNotFoundError, match="checkpoint"):  # nothing was trained
        train(load(**settings), tmp_path / "run")
    (model,) = models
    optimizer, variables = model.optimizer, model.trainable_variables
    optimizer.learning_rate = lambda: 0.1
    for variable in variables:
        variable.assign(tf.ones(variable.shape))
    optimizer.apply([tf.zeros(x.shape) for x in variables], variables)
    for variable in variables:
        decays = name == "adam" or variable.path.endswith("/kernel")
        np.testing.assert_allclose(variable, 0.95 if decays else 1.0, 1e-6)
    if name == "muon":
        velocities = zip(variables, optimizer.adam_velocities, strict=True)
        by_muon = {x.path for x, velocity in velocities if velocity is None}
        assert by_muon == {x.path for x in variables if x.path.endswith("/kernel")}


def test_the_learning_rate_rises_while_warming_up(trained):
    rates = [float(row["learning_rate"]) for row in trained.log.rows()]
    assert 0 < rates[0] < rates[1] < rates[2] < 1e-3


def test_a_run_that_was_cut_off_goes_on_as_if_it_had_not(trained, copy, load):
    last = copy.checkpoints().paths()[-1]
    last.write_bytes(last.read_bytes()[:1000])
    with pytest.warns(UserWarning, match="epoch-0003.keras: skipped"):
        train(load(**{"training.epochs": 3}), copy.folder)
    assert rows_without_time(copy) == rows_without_time(trained)
    for weight, wanted in zip(last_weights(copy), last_weights(trained), strict=True):
        np.testing.assert_array_equal(weight, wanted)


def test_a_run_that_goes_on_cools_down_where_it_ends_now(trained, copy, load):
    longer = {"training.epochs": 4, "training.cooldown_epochs": 1}
    rows = rows_without_time(train(load(**longer), copy.folder))
    assert rows[:3] == rows_without_time(trained)
    assert float(rows[3]["learning_rate"]) == 0


def test_a_finished_run_is_not_trained_again(trained, copy, load):
    run = train(load(**{"training.epochs": 3}), copy.folder)
    assert run.log.rows() == trained.log.rows()


def test_without_a_whole_checkpoint_nothing_is_overwritten(trained, copy, load):
    for path in copy.checkpoints().paths():
        path.write_bytes(b"")
    with (
        pytest.warns(UserWarning, match="skipped"),
        pytest.raises(ValueError, match="no complete checkpoint to resume from"),
    ):
        train(load(**{"training.epochs": 3}), copy.folder)
    assert copy.log.rows() == trained.log.rows()


@pytest.mark.parametrize("kept", [[], ["best.keras"]])
def test_a_run_without_checkpoints_is_not_trained_anew(trained, copy, load, kept):
    for path in (copy.folder / "checkpoints").iterdir():
        if path.name not in kept:
            path.unlink()
    if kept:
        shutil.rmtree(copy.translator_path)
    with pytest.raises(ValueError, match="no complete checkpoint to resume from"):
        train(load(**{"training.epochs": 3}), copy.folder)
    assert copy.log.rows() == trained.log.rows()


def test_a_cooldown_as_long_as_the_training_ends_at_zero(load, tmp_path):
    settings = {"training.epochs": 1, "training.cooldown_epochs": 3}
    (row,) = train(load(**settings), tmp_path / "run").log.rows()
    assert float(row["learning_rate"]) == 0


def test_half_precision_is_refused_where_overflows_are_not_seen(load):
    settings = load(**{"training.precision": "mixed_float16"}).training
    check_precision(settings, num_replicas=1)
    with pytest.raises(
        ValueError, match="mixed_bfloat16 on 2 devices. .* 'mixed_float16'"
    ):
        check_precision(settings, num_replicas=2)


def test_two_vocabularies_and_a_training_that_ends_without_gain(load, tmp_path):
    recipe = load(
        **{
            "data.target": "cc",
            "tokenizer.shared": False,
            "training.learning_rate": 1e-12,
            "training.early_stopping": 1,
            "training.epochs": 7,
            "training.bleu_every": None,
        }
    )
    run = train(recipe, tmp_path / "run")
    assert len(run.log.rows()) == 2
    config = run.translator().model.get_config()
    assert config["target_vocabulary_size"] == 29
    assert len(train(recipe, run.folder).log.rows()) == 2


@pytest.mark.parametrize("last", [1, 2, 7])
def test_the_translator_is_the_mean_of_the_last_checkpoints(copy, last):
    checkpoints = copy.checkpoints()
    paths = checkpoints.paths()[-last:]
    assert save_average(copy, last) == paths
    models = [checkpoints.load(path).get_weights() for path in paths]
    means = [np.mean(weights, axis=0) for weights in zip(*models, strict=True)]
    for weight, mean in zip(copy.translator().model.get_weights(), means, strict=True):
        np.testing.assert_allclose(weight, mean, rtol=1e-6, atol=1e-7)


def test_a_damaged_checkpoint_is_left_out_of_the_mean(copy):
    *whole, damaged = copy.checkpoints().paths()
    damaged.write_bytes(damaged.read_bytes()[:1000])
    with pytest.warns(UserWarning, match="epoch-0003.keras: skipped"):
        assert save_average(copy, 2) == whole


def test_a_damaged_older_checkpoint_is_left_out_of_the_mean(copy):
    first, damaged, last = copy.checkpoints().paths()
    damaged.write_bytes(damaged.read_bytes()[:1000])
    with pytest.warns(UserWarning, match="epoch-0002.keras: skipped"):
        assert save_average(copy, 2) == [first, last]


def test_without_a_checkpoint_there_is_nothing_to_average(copy):
    shutil.rmtree(copy.folder / "checkpoints")
    with pytest.raises(FileNotFoundError, match="no complete checkpoint. Train first"):
        save_average(copy, 2)
