"""What Keras's callbacks promise, with our data, optimizer, loss and metrics.

Run as a program, it holds them all under a strategy of two devices.
"""

import contextlib
import csv
import importlib.util
import sys
import tempfile
import traceback
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_transformer as kt
from keras_transformer.text.epochs import numbered_epochs
from keras_transformer.training import Adam, KeepPosition, split_evenly

EPOCHS, BATCHES = 3, 5
CONTRACTS = {}


def contract(function):
    CONTRACTS[function.__name__] = function
    return function


def make_data(shuffle=True):
    def read_pass(seed):
        # The last batch has one row, so one replica has none.
        ids = np.random.default_rng(5).integers(1, 13, (4 * BATCHES - 3, 2, 7), "int32")
        rows = tf.data.Dataset.from_tensor_slices(ids)
        order = {"seed": seed, "reshuffle_each_iteration": False}
        return rows.shuffle(len(ids), **order) if shuffle else rows

    def make_batches(rows):
        both = rows.map(lambda x: ({"source_ids": x[0], "target_ids": x[1]}, x[1]))
        return both.batch(4)

    return numbered_epochs(read_pass, make_batches, BATCHES, seed=3, initial_epoch=0)


def make_model(rate=0.05, **options):
    keras.utils.set_random_seed(7)
    ids = {
        name: keras.Input((None,), dtype="int32", name=name)
        for name in ("source_ids", "target_ids")
    }
    embed = keras.layers.Embedding(13, 5)
    states = keras.layers.Add()([embed(x) for x in ids.values()])
    states = keras.layers.Dropout(0.3)(states)
    model = keras.Model(ids, keras.layers.Dense(13)(states))
    model.compile(
        Adam(rate, epsilon=1e-5, **options),
        kt.training.TokenCrossentropy(0.1),
        metrics=[kt.training.TokenAccuracy(), kt.training.Perplexity()],
        jit_compile=False,
    )
    return model


class Kill(keras.callbacks.Callback):
    """Interrupts a training in the second epoch."""

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == (1, 3):
            raise KeyboardInterrupt


def num_devices():
    return tf.distribute.get_strategy().num_replicas_in_sync


def validation():
    return split_evenly(make_data(shuffle=False), num_devices())


def fit(model, *callbacks, initial_batch=0):
    """Returns the history of a training, None if it was interrupted."""
    data = make_data()
    with contextlib.suppress(KeyboardInterrupt):
        return model.fit(
            split_evenly(data, num_devices()),
            epochs=EPOCHS,
            verbose=0,
            shuffle=False,
            validation_data=validation(),
            callbacks=[*callbacks, KeepPosition(data, initial_batch=initial_batch)],
        ).history


def loss_of(model):
    return model.evaluate(validation(), verbose=0, return_dict=True)["loss"]


def assert_same(found, expected):
    for one, other in zip(found.variables, expected.variables, strict=True):
        np.testing.assert_array_equal(one, other)


@contract
def backup_and_restore(folder):
    """A training that was killed in an epoch ends where it would have."""
    backup, whole = keras.callbacks.BackupAndRestore, make_model()
    fit(whole)
    assert fit(make_model(), backup(folder / "backup", 2), Kill()) is None
    model = make_model()
    history = fit(model, backup(folder / "backup", 2))
    assert len(history["loss"]) == EPOCHS - 1
    assert_same(model, whole)
    assert not (folder / "backup").exists()


@contract
def orbax_checkpoint(folder):
    """A model that was saved in the background within an epoch can go on."""
    save = keras.callbacks.OrbaxCheckpoint(folder / "orbax", save_freq=2)
    if num_devices() > 1:
        with pytest.raises(TypeError, match="not 'MirroredVariable'"):
            fit(make_model(), save)
        return  # if this fails, Keras can save such a model, and the table may say so
    whole = make_model()
    fit(whole)
    keras.utils.clear_session()  # as in a new process, which counts names from 0
    fit(make_model(), save, Kill())
    save.wait_until_finished()
    keras.utils.clear_session()
    model = keras.saving.load_model(folder / "orbax")
    batches = int(model.optimizer.iterations)
    assert batches == 8
    fit(model, initial_batch=batches)
    assert_same(model, whole)


@contract
def model_checkpoint(folder):
    """The file holds the model of the best epoch, compiled."""
    path = folder / "best.keras"
    save = keras.callbacks.ModelCheckpoint(path, save_best_only=True, mode="max")
    losses = fit(make_model(), save)["val_loss"]
    np.testing.assert_allclose(
        loss_of(keras.saving.load_model(path)), max(losses), 1e-5
    )


@contract
def early_stopping(folder):
    """Training ends after the epochs of its patience, with the best weights."""
    stop = keras.callbacks.EarlyStopping(
        mode="max", patience=1, restore_best_weights=True
    )
    model = make_model()
    losses = fit(model, stop)["val_loss"]
    assert len(losses) == 2
    np.testing.assert_allclose(loss_of(model), losses[0], 1e-5)


@contract
def reduce_lr_on_plateau(folder):
    """The rate falls after each epoch that is no better than the first."""
    reduce = keras.callbacks.ReduceLROnPlateau(mode="max", patience=1, factor=0.5)
    rates = fit(make_model(0.08), reduce)["learning_rate"]
    np.testing.assert_allclose(rates, [0.08, 0.08, 0.04], 1e-6)


@contract
def learning_rate_scheduler(folder):
    """Each epoch is trained at the rate of the function: here the last ones at 0."""
    weights = []
    schedule = keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 * (epoch < 1))
    keep = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: weights.append(model.get_weights())
    )
    model = make_model()
    rates = fit(model, schedule, keep)["learning_rate"]
    np.testing.assert_allclose(rates, [0.1, 0, 0], 1e-6)
    for first, last in zip(weights[0], weights[-1], strict=True):
        np.testing.assert_array_equal(first, last)


@contract
def terminate_on_nan(folder):
    """Training ends with the first batch whose loss is NaN."""
    model, batches = make_model(), []
    model.layers[2].embeddings.assign(np.full((13, 5), np.nan))
    count = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: batches.append(batch)
    )
    fit(model, keras.callbacks.TerminateOnNaN(), count)
    assert batches == [0]


@contract
def csv_logger(folder):
    """A row holds what the history does; a resumed training appends its rows."""
    path, backup = folder / "log.csv", keras.callbacks.BackupAndRestore
    log, restore = keras.callbacks.CSVLogger, folder / "backup"
    expected = fit(make_model())
    killed = log(path, append=True)
    fit(make_model(), backup(restore, 2), killed, Kill())
    killed.csv_file.close()
    fit(make_model(), backup(restore, 2), log(path, append=True))
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [row["epoch"] for row in rows] == ["0", "1", "2"]
    for name, values in expected.items():
        np.testing.assert_allclose([float(row[name]) for row in rows], values, 1e-5)


@contract
def tensorboard(folder):
    """The losses and metrics of training and validation are shown."""
    from tensorboard.compat.proto import event_pb2

    fit(make_model(), keras.callbacks.TensorBoard(folder, write_graph=False))
    shown = {"train": set(), "validation": set()}
    for path in folder.rglob("events*"):
        for record in tf.data.TFRecordDataset(str(path)):
            event = event_pb2.Event.FromString(record.numpy())
            shown[path.parent.name] |= {value.tag for value in event.summary.value}
    measured = {f"epoch_{x}" for x in ("loss", "token_accuracy", "perplexity")}
    assert all(names >= measured for names in shown.values())


@contract
def swap_ema_weights(folder):
    """What is validated, and what is left at the end, are the averaged weights."""
    ema = {"use_ema": True, "ema_momentum": 0.7}
    plain, swapped = make_model(**ema), make_model(**ema)
    losses = fit(plain)["val_loss"]  # ends with the average, too
    swap = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
    swapped_losses = fit(swapped, swap)["val_loss"]
    for one, other in zip(swapped.variables, plain.variables, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)  # swaps round
    np.testing.assert_allclose(loss_of(swapped), swapped_losses[-1], 1e-5)
    assert abs(swapped_losses[-1] - losses[-1]) > 1e-4


@contract
def speed_of_steps(folder):
    """XLA, and several steps at a time, are for one device."""
    for setting, value in (("steps_per_execution", BATCHES), ("jit_compile", True)):
        model = make_model()
        setattr(model, setting, value)
        if num_devices() == 1:
            assert len(fit(model)["loss"]) == EPOCHS
        else:  # if this fails, `runs.training.compiled_model` may use it there
            with pytest.raises(tf.errors.InvalidArgumentError):
                fit(model)


if __name__ == "__main__":
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * 2
    )
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        for name, check in CONTRACTS.items():
            if name == "orbax_checkpoint" and not importlib.util.find_spec("orbax"):
                continue
            with tempfile.TemporaryDirectory() as folder:
                try:
                    check(Path(folder))
                except Exception:
                    print(f"{name}:\n{traceback.format_exc()}", file=sys.stderr)
                else:
                    print(name)
