"""A training that is interrupted anywhere ends where an uninterrupted one does."""

import contextlib

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_transformer as kt
from keras_transformer.kernels.rematerialization import seed_states
from keras_transformer.text.epochs import numbered_epochs
from keras_transformer.training import Adam, KeepPosition

EPOCHS, BATCHES = 3, 7  # batches of an epoch
SAVED = "saved.weights.h5"


def make_data(num_batches=BATCHES):
    """Returns epochs in random orders, quicker than those of text files."""

    def read_pass(seed):
        ids = np.random.default_rng(5).integers(1, 29, (2 * BATCHES, 2, 11), "int32")
        rows = tf.data.Dataset.from_tensor_slices(ids)
        return rows.shuffle(len(ids), seed, reshuffle_each_iteration=False)

    def make_batches(rows):
        both = rows.map(lambda x: ({"source_ids": x[0], "target_ids": x[1]}, x[1]))
        return both.batch(2)

    return numbered_epochs(
        read_pass, make_batches, num_batches, seed=3, initial_epoch=0
    )


def make_model(kind="bigrams", optimizer=None, dtype="float32", **how):
    keras.utils.set_random_seed(7)
    if kind == "transformer":
        sizes = {"num_layers": 1, "hidden_dim": 8, "num_heads": 2}
        sizes |= {"intermediate_dim": 11, "dropout": 0.3}
        model = kt.models.Transformer(29, **sizes)
    else:
        names = "source_ids", "target_ids"
        ids = {x: keras.Input((None,), dtype="int32", name=x) for x in names}
        embed = keras.layers.Embedding(29, 5, dtype=dtype)
        states = keras.layers.Add(dtype=dtype)([embed(x) for x in ids.values()])
        states = keras.layers.Dropout(0.3, dtype=dtype)(states)
        model = keras.Model(ids, keras.layers.Dense(29, dtype=dtype)(states))
    model.compile(
        (optimizer or (lambda: Adam(0.01)))(),
        kt.training.TokenCrossentropy(0.1),
        metrics=[kt.training.TokenAccuracy(), kt.training.Perplexity()],
        jit_compile=False,
        **how,
    )
    return model


class Kill(keras.callbacks.Callback):
    """Interrupts a training after so many calls, each of a batch or several."""

    def __init__(self, after):
        super().__init__()
        self.left = after

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def train(data, model, *callbacks, kill=None, **how):
    """Returns the history of a training, None if it was interrupted."""
    if kill:
        callbacks = *callbacks, Kill(kill)
    how = {"epochs": EPOCHS, "verbose": 0, "shuffle": False, **how}
    with contextlib.suppress(KeyboardInterrupt):
        return model.fit(data, callbacks=list(callbacks), **how).history


def state_of(model):
    return [np.asarray(v) for v in (*model.variables, *model.optimizer.variables)]


def assert_same_end(model, history, whole, history_of_whole):
    for found, expected in zip(state_of(model), state_of(whole), strict=True):
        np.testing.assert_array_equal(found, expected)
    for name, values in history_of_whole.items():
        found = history[name]
        assert found == values[-len(found) :]


OVERFLOWING = {
    "dtype": "mixed_float16",
    "optimizer": lambda: keras.optimizers.LossScaleOptimizer(
        Adam(0.01, epsilon=1e-6), initial_scale=2.0**35
    ),
}
ACCUMULATING = {"optimizer": lambda: Adam(gradient_accumulation_steps=3)}


@pytest.mark.quick("within-an-epoch")
@pytest.mark.parametrize(
    ("how", "save_freq", "kills"),
    [
        pytest.param({}, 4, [10], id="within-an-epoch"),
        pytest.param({}, 2, [11, 3, 2], id="again-and-again"),
        pytest.param({}, 1, [BATCHES, BATCHES - 1], id="at-the-end-of-an-epoch"),
        pytest.param({}, "epoch", [BATCHES + 3], id="by-epochs"),
        pytest.param({"steps_per_execution": 3}, 3, [4, 1], id="steps-together"),
        pytest.param(ACCUMULATING, 2, [10], id="accumulating"),
        pytest.param(OVERFLOWING, 2, [10], id="overflowing"),
        pytest.param({"kind": "transformer"}, 2, [11, 3, 2], id="transformer"),
    ],
)
def test_a_training_that_keras_resumes_ends_where_it_would_have(
    tmp_path, how, save_freq, kills
):
    data, whole = make_data(), make_model(**how)
    assert len(data) == BATCHES
    expected = train(data, whole, KeepPosition(data))
    for kill in (*kills, None):
        backup = keras.callbacks.BackupAndRestore(tmp_path / "backup", save_freq)
        model, data = make_model(**how), make_data()
        history = train(data, model, backup, KeepPosition(data), kill=kill)
    assert_same_end(model, history, whole, expected)
    if how is OVERFLOWING:
        assert int(model.optimizer.iterations) < EPOCHS * BATCHES


@pytest.mark.slow
@pytest.mark.parametrize("steps", [5, 15])
def test_an_epoch_may_be_of_so_many_steps(tmp_path, steps):
    def start():
        data = make_data()
        return data.repeat(), KeepPosition(data, steps), make_model()

    data, position, whole = start()
    expected = train(data, whole, position, steps_per_epoch=steps)
    for kill in (9, steps - 2, None):
        backup = keras.callbacks.BackupAndRestore(tmp_path / "backup", save_freq=2)
        data, position, model = start()
        callbacks = backup, position
        history = train(data, model, *callbacks, kill=kill, steps_per_epoch=steps)
    assert_same_end(model, history, whole, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["saved.weights.h5", "saved.keras"])
def test_a_file_of_model_checkpoint_is_loaded_by_hand(tmp_path, name):
    data, whole = make_data(), make_model()
    expected = train(data, whole, KeepPosition(data))
    weights_only = name.endswith("h5")
    save = keras.callbacks.ModelCheckpoint(
        tmp_path / name, save_weights_only=weights_only, save_freq=5
    )
    data, model = make_data(), make_model()
    train(data, model, save, KeepPosition(data), kill=13)
    model = make_model() if weights_only else keras.saving.load_model(tmp_path / name)
    position = KeepPosition(data)
    position.load(model, tmp_path / name)
    assert (position.epoch, position.batch) == divmod(10, BATCHES)
    assert_same_end(model, train(data, model, position), whole, expected)
    # What has been trained is no position of the next training.
    assert len(train(data, model, position)["loss"]) == EPOCHS


@pytest.mark.parametrize("steps", [None, 2])
def test_epochs_of_another_number_of_batches_go_on_with_the_same_epoch(tmp_path, steps):
    """As of ids that another number of workers reads, or of sampled subwords."""
    where = []

    class Look(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            found = int(data.epoch), int(data.batch)
            where.append((epoch, found) if not steps or not where else epoch)

    done = 2 * (steps or BATCHES)
    save = keras.callbacks.ModelCheckpoint(tmp_path / "saved.keras", save_freq=done)
    data = make_data()
    batches = data.repeat() if steps else data
    how = {"epochs": 5, "steps_per_epoch": steps}
    train(batches, make_model(), KeepPosition(data, steps), save, kill=done, **how)
    model = keras.saving.load_model(tmp_path / "saved.keras")
    data = make_data(BATCHES - 1)
    position = KeepPosition(data, steps)
    position.load(model, tmp_path / "saved.keras")
    assert (position.epoch, position.batch) == (2, 0)
    batches = data.repeat() if steps else data
    train(batches, model, position, Look(), **how)
    first = divmod(done, BATCHES) if steps else (2, 0)
    assert where[0] == (2, first)
    assert len(where) == 3


def test_the_position_may_be_given():
    orders = []

    class Model(keras.Model):
        def train_step(self, data):
            orders[-1].append(data[1].numpy().tolist())
            return {"loss": 0.0}

    data = make_data()
    for first in (0, 9, 2 * BATCHES):
        orders.append([])
        model = Model()
        model.built = True
        model.compile("sgd", run_eagerly=True)
        train(data, model, KeepPosition(data, initial_batch=first))
        assert orders[-1] == orders[0][first:]


@pytest.mark.slow
def test_a_callback_that_stops_the_training_is_obeyed():
    class Stop(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training = True

    data = make_data()
    for order in (1, -1):
        callbacks = [KeepPosition(data, initial_batch=3), Stop()][::order]
        assert len(train(data, make_model(), *callbacks)["loss"]) == 1


@pytest.mark.slow
def test_the_callbacks_must_be_in_order(tmp_path):
    data = make_data()
    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup", save_freq=1)
    train(data, make_model(), KeepPosition(data), backup, kill=BATCHES)
    with pytest.raises(ValueError, match="must come before `KeepPosition`"):
        train(data, make_model(), KeepPosition(data), backup)


@pytest.mark.parametrize(
    ("steps", "given", "message"),
    [
        (None, 5, "Received: 7 in `KeepPosition`, 5 in `fit`"),
        (4, None, "Received: 4 in `KeepPosition`, 7 in `fit`"),
        (5, 5, "must be multiples of `steps_per_execution`. .*=5, 1 steps and .*=2"),
        (4, 4, "must be multiples of `steps_per_execution`. .*=4, 3 steps and .*=2"),
    ],
)
def test_epochs_of_other_lengths_are_refused(steps, given, message):
    data, model = make_data(), make_model(steps_per_execution=2)
    position = KeepPosition(data, steps, initial_batch=11)
    with pytest.raises(ValueError, match=message):
        train(data, model, position, steps_per_epoch=given)


def test_keras_saves_neither_random_states_nor_metrics(tmp_path):
    """If this fails, `KeepPosition` need not save what Keras now does."""
    models = [make_model(), make_model()]
    seeds = [seed_states(model)[0] for model in models]
    seeds[0].assign([11, 13])
    models[0].save_weights(tmp_path / SAVED)
    models[1].load_weights(tmp_path / SAVED)
    assert np.asarray(seeds[1]).tolist() != [11, 13]
    with h5py.File(tmp_path / SAVED) as file:
        assert not [name for name in file if "metric" in name or "tracker" in name]
