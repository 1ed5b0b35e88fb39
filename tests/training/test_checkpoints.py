import contextlib
import resource
import signal
import subprocess
import sys
import zipfile

import h5py
import hypothesis
import hypothesis.strategies as st
import keras
import numpy as np
import pytest
import tensorflow as tf
from forked import run_program

from keras_transformer.models import LanguageModel, Transformer
from keras_transformer.training import (
    Checkpoints,
    InverseSquareRootSchedule,
    SaveCheckpoints,
    TokenCrossentropy,
    average_checkpoints,
)


def small_model(value=0.0):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(5)])
    model.set_weights([np.full((3, 5), value), np.zeros(5)])
    return model


def value_of(path):
    return keras.models.load_model(path).get_weights()[0][0, 0]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def checkpoints(tmp_path):
    """Those of two epochs, the weights of which are all 1 and all 2."""
    checkpoints = Checkpoints(tmp_path / "run")
    for epoch in (1, 2):
        checkpoints.save(small_model(epoch), epoch)
    return checkpoints


# Names and numbers


@pytest.mark.quick("1-1", "1-2", "1-3")
@pytest.mark.parametrize("keep", [1, 2, 3, 7, 11])
@pytest.mark.parametrize("epochs", [1, 7])
def test_the_newest_checkpoints_are_kept_and_nothing_else(tmp_path, keep, epochs):
    checkpoints = Checkpoints(tmp_path, keep=keep)
    for epoch in range(1, epochs + 1):
        path = checkpoints.save(small_model(), epoch)
        assert path == checkpoints.latest()
    kept = range(max(1, epochs - keep + 1), epochs + 1)
    assert [checkpoints.epoch_of(path) for path in checkpoints.paths()] == list(kept)
    assert names(tmp_path) == [path.name for path in checkpoints.paths()]


def test_paths_are_in_the_order_of_their_epochs(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for epoch in (10007, 3, 9973, 11):
        checkpoints.save(small_model(), epoch)
    assert [path.name for path in checkpoints.paths()] == [
        "epoch-0003.keras",
        "epoch-0011.keras",
        "epoch-9973.keras",
        "epoch-10007.keras",
    ]


def test_a_new_checkpoint_is_kept_even_before_later_ones(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(small_model(), 7)
    path = checkpoints.save(small_model(), 5)
    assert checkpoints.paths() == [path]


def test_an_epoch_saved_again_replaces_the_old_checkpoint(checkpoints):
    path = checkpoints.save(small_model(17), 2)
    assert value_of(path) == 17
    assert len(checkpoints.paths()) == 2


def test_other_files_in_the_folder_are_left_alone(checkpoints):
    for name in ("epoch-last.keras", "notes.txt", "epoch-0003.keras.bak"):
        (checkpoints.folder / name).write_text("mine")
    Checkpoints(checkpoints.folder, keep=1).save(small_model(), 3)
    assert names(checkpoints.folder) == [
        "epoch-0003.keras",
        "epoch-0003.keras.bak",
        "epoch-last.keras",
        "notes.txt",
    ]


def test_the_newest_may_be_those_up_to_an_epoch(checkpoints):
    first, second = checkpoints.paths()
    assert checkpoints.newest(1) == [second]
    assert checkpoints.newest(2, last_epoch=2) == [first, second]
    assert checkpoints.newest(2, last_epoch=1) == [first]
    assert checkpoints.newest(2, last_epoch=0) == []


def test_a_folder_without_checkpoints_has_no_latest(tmp_path):
    assert Checkpoints(tmp_path / "none").paths() == []
    assert Checkpoints(tmp_path / "none").latest() is None


@pytest.mark.parametrize("name", ["model.keras", "epoch-7.keras", "epoch-0007.h5"])
def test_only_checkpoints_have_an_epoch(tmp_path, name):
    with pytest.raises(ValueError, match="must be a checkpoint, named like epoch-0007"):
        Checkpoints(tmp_path).epoch_of(tmp_path / name)


def test_at_least_one_checkpoint_must_be_kept(tmp_path):
    with pytest.raises(ValueError, match="`keep` must be a positive integer.*keep=0"):
        Checkpoints(tmp_path, keep=0)


# The best


def save(checkpoints, name, values):
    """Saves an epoch for each value of the metric `name`, None if it has none."""
    for epoch, value in enumerate(values, start=1):
        metrics = {} if value is None else {name: value}
        checkpoints.save(small_model(epoch), epoch, metrics)


@pytest.mark.quick(
    "1-val_bleu-values3-3", "2-val_loss-values0-2", "2-val_chrf-values4-1"
)
@pytest.mark.parametrize(
    ("name", "values", "best"),
    [
        ("val_loss", [3, 1, 2, 5], 2),
        ("val_loss", [4, 3, 2, 1], 4),
        ("val_perplexity", [1, 2, 3, 4], 1),
        ("val_bleu", [3, 1, 7, 5], 3),
        ("val_chrf", [7, 7, 7, 5], 1),  # the earliest of equals
        ("val_bleu", [None, 11, None, 13], 4),  # not measured in each epoch
        ("val_loss", [float("nan"), 5, float("-inf"), 7], 2),
    ],
)
@pytest.mark.parametrize("keep", [1, 2, 7])
def test_the_best_is_kept_beside_the_last(tmp_path, keep, name, values, best):
    checkpoints = Checkpoints(tmp_path, keep, monitor=name)
    save(checkpoints, name, values)
    assert checkpoints.best() == checkpoints.best_path
    assert value_of(checkpoints.best_path) == best
    assert checkpoints.epoch_of(checkpoints.best_path) == best
    last = [1, 2, 3, 4][-keep:]
    assert [checkpoints.epoch_of(path) for path in checkpoints.paths()] == last
    assert names(tmp_path) == ["best.keras", *(p.name for p in checkpoints.paths())]


def test_without_its_metric_no_checkpoint_is_the_best(checkpoints):
    assert checkpoints.best() is None
    assert not checkpoints.best_path.exists()


def test_the_best_is_what_fit_measured(tmp_path):
    model = small_model()
    model.compile(keras.optimizers.SGD(5.0), "mse")
    data = np.ones((7, 3)), np.ones((7, 5))
    checkpoints = Checkpoints(tmp_path, keep=1)
    callbacks = [SaveCheckpoints(checkpoints)]
    losses = model.fit(
        *data, validation_data=data, epochs=3, verbose=0, callbacks=callbacks
    ).history["val_loss"]
    assert losses[0] < losses[1] < losses[2]  # so large a step leads away
    assert checkpoints.epoch_of(checkpoints.best()) == 1


def test_a_damaged_best_checkpoint_gives_way_to_the_next_best(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=1)
    save(checkpoints, "val_loss", [3, 1, 2])
    content = checkpoints.best_path.read_bytes()
    content = content.replace(b"model.weights.h5", b"model.weights.h6", 1)
    checkpoints.best_path.write_bytes(content)
    with pytest.warns(UserWarning, match="best.keras: skipped, the checkpoint is dam"):
        assert checkpoints.best().name == "epoch-0003.keras"
    with pytest.warns(UserWarning, match="best.keras: skipped"):
        checkpoints.keep_best()
    assert checkpoints.best() == checkpoints.best_path
    assert value_of(checkpoints.best_path) == 3


def test_a_file_system_without_links_has_a_best_checkpoint(tmp_path, monkeypatch):
    def no_link(*_):
        raise PermissionError

    monkeypatch.setattr("os.link", no_link)
    save(Checkpoints(tmp_path, keep=1), "val_loss", [1, 2])
    assert value_of(tmp_path / "best.keras") == 1


# Killed when the second epoch, the best one, is saved but not yet the best.
SAVE_AND_DIE = """
import os
import signal
import sys

import keras
import numpy as np
from keras_transformer.training import Checkpoints


def small_model(value):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(5)])
    model.set_weights([np.full((3, 5), value), np.zeros(5)])
    return model


checkpoints = Checkpoints(sys.argv[1], keep=1)
checkpoints.save(small_model(1.0), 1, {"val_loss": 3.0})
os.link = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
checkpoints.save(small_model(2.0), 2, {"val_loss": 1.0})
"""


def assert_the_second_is_the_best(folder):
    """After an end as that of `SAVE_AND_DIE`."""
    assert value_of(folder / "best.keras") == 1
    checkpoints = Checkpoints(folder, keep=1)
    assert checkpoints.best().name == "epoch-0002.keras"
    checkpoints.save(small_model(3), 3, {"val_loss": 2.0})
    assert value_of(checkpoints.best()) == 2
    assert names(folder) == ["best.keras", "epoch-0003.keras"]


@pytest.mark.slow
def test_a_kill_before_the_best_is_replaced_does_not_lose_it(tmp_path):
    done = run_program(SAVE_AND_DIE, tmp_path)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert_the_second_is_the_best(tmp_path)


def test_an_interrupt_before_the_best_is_replaced_does_not_lose_it(
    tmp_path, monkeypatch
):
    def interrupt(*_):
        raise KeyboardInterrupt

    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(small_model(1.0), 1, {"val_loss": 3.0})
    with monkeypatch.context() as patch:
        patch.setattr("os.link", interrupt)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.save(small_model(2.0), 2, {"val_loss": 1.0})
    assert_the_second_is_the_best(tmp_path)


# Going on


def next_tokens(rows):
    random = np.random.default_rng(7)
    labels = random.integers(4, 13, (rows, 5), "int32")
    targets = np.concatenate([np.full((rows, 1), 2, "int32"), labels[:, :-1]], axis=1)
    return tf.data.Dataset.from_tensor_slices((targets, labels)).batch(7)


def new_model():
    model = LanguageModel(
        13, num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=11, dropout=0.1
    )
    model.compile(
        keras.optimizers.Adam(InverseSquareRootSchedule(8, warmup_steps=11)),
        TokenCrossentropy(label_smoothing=0.1),
    )
    return model


def train(model, checkpoints, epochs, initial_epoch=0):
    history = model.fit(
        next_tokens(31),
        epochs=epochs,
        initial_epoch=initial_epoch,
        callbacks=[SaveCheckpoints(checkpoints)],
        shuffle=False,
        verbose=0,
    )
    return history.history["loss"]


@pytest.mark.slow
def test_training_resumed_equals_training_uninterrupted(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    uninterrupted = new_model()
    losses = train(uninterrupted, checkpoints, epochs=4)

    second = tmp_path / "epoch-0002.keras"
    resumed = checkpoints.load(second)
    again = Checkpoints(tmp_path / "again")
    resumed_losses = train(
        resumed, again, epochs=4, initial_epoch=checkpoints.epoch_of(second)
    )
    assert [path.name for path in again.paths()] == [
        "epoch-0003.keras",
        "epoch-0004.keras",
    ]
    np.testing.assert_allclose(resumed_losses, losses[2:], rtol=1e-6)
    assert int(resumed.optimizer.iterations) == int(uninterrupted.optimizer.iterations)
    pairs = zip(
        [*resumed.variables, *resumed.optimizer.variables],
        [*uninterrupted.variables, *uninterrupted.optimizer.variables],
        strict=True,
    )
    for found, expected in pairs:
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(found),
            keras.ops.convert_to_numpy(expected),
            rtol=0,
            atol=1e-6,
            err_msg=expected.path,
        )


def test_within_an_epoch_the_newest_checkpoint_is_kept(tmp_path):
    checkpoints, saved = Checkpoints(tmp_path), []

    class Look(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            path = checkpoints.latest()
            saved.append(path and (path.name, checkpoints.epoch_of(path)))

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    save = SaveCheckpoints(checkpoints, every=2)
    data = np.ones((5, 1)), np.ones((5, 1))
    model.fit(*data, 1, epochs=2, verbose=0, callbacks=[save, Look()])
    within = ("step.keras", 0), ("step.keras", 1)
    first = ("epoch-0001.keras", 1)
    # None is saved after the last step of an epoch, whose own checkpoint follows.
    assert saved == [None, *[within[0]] * 4, first, *[within[1]] * 4]
    assert names(tmp_path) == ["epoch-0001.keras", "epoch-0002.keras"]

    # A kill may leave one that is older, or it may be damaged.
    checkpoints.save_step(model, 1)
    assert checkpoints.latest().name == "epoch-0002.keras"
    checkpoints.save_step(model, 2)
    assert checkpoints.latest() == checkpoints.step_path
    checkpoints.step_path.write_bytes(checkpoints.step_path.read_bytes()[:1000])
    with pytest.warns(UserWarning, match="step.keras: skipped"):
        assert checkpoints.latest().name == "epoch-0002.keras"


def test_checkpoints_are_saved_by_the_minute(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    model = small_model()
    model.compile("sgd", "mse", run_eagerly=True)
    found = []
    for minutes in (1e-9, 60):
        save = SaveCheckpoints(checkpoints, minutes=minutes)
        look = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: found.append(
                checkpoints.step_path.exists()
            )
        )
        model.fit(
            np.ones((2, 3)), np.ones((2, 5)), 1, verbose=0, callbacks=[save, look]
        )
    assert found == [True, True, False, False]


def test_a_model_file_without_random_states_loads_too(tmp_path):
    layers = [keras.layers.Dense(5), keras.layers.Dropout(0.1)]
    model = keras.Sequential([keras.Input((3,)), *layers])
    model.save(tmp_path / "epoch-0001.keras")
    loaded = Checkpoints(tmp_path).load(tmp_path / "epoch-0001.keras")
    for found, expected in zip(loaded.weights, model.weights, strict=True):
        np.testing.assert_array_equal(found.numpy(), expected.numpy())


def test_a_second_fit_counts_on_and_its_checkpoints_are_the_newest(tmp_path):
    model = small_model()
    model.compile("sgd", "mse")
    for callback in (SaveCheckpoints(Checkpoints(tmp_path, keep=3)),) * 2:
        data = np.ones((7, 3)), np.ones((7, 5))
        model.fit(*data, epochs=2, verbose=0, callbacks=[callback])
    checkpoints = Checkpoints(tmp_path)
    assert [checkpoints.epoch_of(path) for path in checkpoints.paths()] == [2, 3, 4]
    assert value_of(checkpoints.latest()) == model.get_weights()[0][0, 0]


# Damage


@pytest.mark.parametrize("share", [0, 0.01, 0.5, 0.99])
def test_a_cut_checkpoint_is_skipped(checkpoints, share):
    first, second = checkpoints.paths()
    content = second.read_bytes()
    second.write_bytes(content[: int(share * len(content))])
    with pytest.warns(UserWarning, match="epoch-0002.keras: skipped.*damaged") as all_:
        assert checkpoints.latest() == first
    assert len(all_) == 1
    assert "\n" not in str(all_[0].message)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The bytes of a checkpoint whose weights are all 23."""
    folder = tmp_path_factory.mktemp("whole")
    return Checkpoints(folder).save(small_model(23), 1).read_bytes()


@pytest.mark.filterwarnings("ignore:.*skipped, the checkpoint is damaged")
@hypothesis.given(index=st.integers(0, 10**9), bit=st.integers(0, 7))
def test_a_checkpoint_with_a_wrong_bit_is_skipped_or_harmless(
    whole, tmp_path_factory, index, bit
):
    content = bytearray(whole)
    content[index % len(content)] ^= 1 << bit
    checkpoints = Checkpoints(tmp_path_factory.getbasetemp())
    path = checkpoints.folder / "epoch-0001.keras"
    path.write_bytes(content)
    if checkpoints.latest():
        assert value_of(path) == 23


def test_the_weights_are_guarded_by_a_checksum(checkpoints):
    first, second = checkpoints.paths()
    content = second.read_bytes()
    values = np.full((3, 5), 2, "float32").tobytes()
    assert content.count(values) == 1
    second.write_bytes(content.replace(values, values[:-1] + b"\xff"))
    with pytest.warns(UserWarning, match="model.weights.h5"):
        assert checkpoints.latest() == first


SAVE_WITHOUT_END = """
import itertools, sys
import keras
import numpy as np
from keras_transformer.training import Checkpoints

model = keras.Sequential([keras.Input((997,)), keras.layers.Dense(9973)])  # 40 MB
checkpoints = Checkpoints(sys.argv[1], keep=2)
for epoch in itertools.count(1):
    model.set_weights([np.full((997, 9973), epoch), np.full(9973, epoch)])
    checkpoints.save(model, epoch)
    print(epoch, flush=True)
"""


@pytest.mark.slow
def test_a_kill_in_the_middle_of_a_checkpoint_leaves_the_last_whole_one(tmp_path):
    def is_being_written():
        return any(path.stat().st_size for path in tmp_path.glob(".*/epoch-*"))

    process = subprocess.Popen(
        [sys.executable, "-c", SAVE_WITHOUT_END, tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process, contextlib.suppress(FileNotFoundError):
        saved = [int(process.stdout.readline()) for _ in range(3)]
        while not is_being_written():
            pass
        process.send_signal(signal.SIGKILL)
        saved += map(int, process.stdout)
    assert process.returncode == -signal.SIGKILL
    assert is_being_written(), "the kill came between two checkpoints"

    checkpoints = Checkpoints(tmp_path, keep=2)
    path = checkpoints.latest()
    assert checkpoints.epoch_of(path) == saved[-1]
    assert value_of(path) == saved[-1]
    checkpoints.save(small_model(), saved[-1] + 1)
    assert names(tmp_path) == [path.name for path in checkpoints.paths()]


# A full disk


@contextlib.contextmanager
def files_no_larger_than(size):
    """Lets every write beyond `size` bytes of a file fail, as on a full disk."""
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, unlimited[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)


@pytest.mark.parametrize("share", [0, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999])
def test_on_a_full_disk_the_folder_is_as_before(checkpoints, share):
    size = checkpoints.latest().stat().st_size
    with files_no_larger_than(int(share * size)), pytest.raises(OSError, match="large"):
        checkpoints.save(small_model(), 3)
    assert names(checkpoints.folder) == ["epoch-0001.keras", "epoch-0002.keras"]
    assert value_of(checkpoints.latest()) == 2


def test_a_training_goes_on_while_the_disk_is_full(checkpoints):
    model = small_model()
    model.compile("sgd", "mse")
    with (
        files_no_larger_than(5003),
        pytest.warns(UserWarning, match="epoch [34] is not saved.*Free disk") as all_,
    ):
        history = model.fit(
            np.ones((7, 3)),
            np.ones((7, 5)),
            epochs=4,
            initial_epoch=2,
            verbose=0,
            callbacks=[SaveCheckpoints(checkpoints)],
        )
    assert history.epoch == [2, 3]
    lines = [str(x.message) for x in all_ if x.category is UserWarning]
    assert len(lines) == 2
    assert "\n" not in "".join(lines)
    assert checkpoints.epoch_of(checkpoints.latest()) == 2


@keras.saving.register_keras_serializable(package="tests")
class SavedByItself(keras.layers.Layer):
    """Finds the disk full as Keras does with a model of half the memory."""

    def call(self, inputs):
        return inputs

    def save_own_variables(self, store):
        with files_no_larger_than(97), h5py.File(self.file, "w") as file:
            file["weights"] = np.ones(10007)


def test_an_error_of_closing_a_file_does_not_hide_that_the_disk_is_full(tmp_path):
    layer = SavedByItself()
    layer.file = tmp_path / "weights.h5"
    with pytest.raises(RuntimeError, match="Can't decrement"):
        layer.save_own_variables({})

    callback = SaveCheckpoints(Checkpoints(tmp_path / "run"))
    callback.set_model(keras.Sequential([keras.Input((3,)), layer]))
    callback.on_epoch_begin(0)
    with pytest.warns(UserWarning, match=r"epoch 1 is not saved \(File too large\)"):
        callback.on_epoch_end(0)
    assert names(tmp_path / "run") == []


def test_the_random_states_are_no_file_of_the_archive(tmp_path):
    # Keras would unpack the whole archive if there were a file more.
    path = Checkpoints(tmp_path).save(new_model(), 1)
    with zipfile.ZipFile(path) as archive:
        assert len(archive.namelist()) == 3


# The mean


def transformer(**settings):
    sizes = {"num_layers": 1, "hidden_dim": 6, "num_heads": 3, "intermediate_dim": 7}
    return Transformer(11, **{**sizes, **settings})


def of_values(*values, **settings):
    """One small model, all weights of which are each of the values in turn."""
    sizes = {"num_layers": 1, "hidden_dim": 6, "num_heads": 3, "intermediate_dim": 7}
    model = LanguageModel(11, **sizes, **settings)
    for value in values:
        model.set_weights([np.full(w.shape, value) for w in model.weights])
        yield model


def save_all(folder, models):
    paths = []
    for index, model in enumerate(models):
        paths.append(folder / f"{index}.keras")
        model.save(paths[-1])
    return paths


def test_every_weight_is_the_mean_of_its_values(tmp_path):
    models = [transformer() for _ in range(3)]
    average = average_checkpoints(save_all(tmp_path, models))
    assert isinstance(average, Transformer)
    weights = [model.get_weights() for model in models]
    for found, *values in zip(average.get_weights(), *weights, strict=True):
        np.testing.assert_allclose(found, np.mean(values, axis=0), rtol=1e-6, atol=1e-7)


def test_the_average_of_low_rank_adaptations_is_that_of_what_they_compute(tmp_path):
    """Not the product of the averages of its two factors."""
    models = []
    draw = np.random.default_rng(3).normal
    base = transformer()
    for _ in range(2):
        model = type(base).from_config(base.get_config())
        model.set_weights(base.get_weights())
        model.enable_lora(2)
        for weight in model.trainable_weights:
            weight.assign(draw(size=weight.shape))
        models.append(model)
    average = average_checkpoints(save_all(tmp_path, models))
    merged = [model.merge_lora().get_weights() for model in models]
    for found, *values in zip(average.get_weights(), *merged, strict=True):
        np.testing.assert_allclose(found, np.mean(values, axis=0), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_the_average_of_one_is_itself(tmp_path):
    model = transformer()
    (path,) = save_all(tmp_path, [model])
    for paths in ([path], path, str(path)):
        found = average_checkpoints(paths).get_weights()
        for weight, expected in zip(found, model.get_weights(), strict=True):
            np.testing.assert_array_equal(weight, expected)


def test_the_checkpoints_of_a_training_are_averaged(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for epoch, model in enumerate(of_values(97.0, 3.0, 7.0), start=1):
        checkpoints.save(model, epoch)
    average = average_checkpoints(checkpoints.paths()[-2:])
    assert all(np.all(weight == 5.0) for weight in average.get_weights())


def test_sums_are_held_in_double_precision(tmp_path):
    # In float32, 2 ** 24 + 1 is 2 ** 24 again.
    models = of_values(2.0**24, 1.0, 1.0)
    average = average_checkpoints(save_all(tmp_path, models))
    assert all(np.all(x == (2.0**24 + 2) / 3) for x in average.get_weights())


@pytest.mark.quick("bfloat16")
@pytest.mark.parametrize("dtype", ["bfloat16", "mixed_bfloat16"])
def test_the_dtype_of_the_weights_is_kept(tmp_path, dtype):
    paths = save_all(tmp_path, of_values(3.0, 5.0, dtype=dtype))
    average = average_checkpoints(iter(map(str, paths)))
    [model] = of_values(0.0, dtype=dtype)
    assert [w.dtype for w in average.weights] == [w.dtype for w in model.weights]
    assert all(np.all(w == 4.0) for w in average.get_weights())


def test_how_models_were_compiled_does_not_matter(tmp_path):
    def models():
        for model, optimizer in zip(
            of_values(1.0, 3.0, 8.0), (None, "adam", "sgd"), strict=True
        ):
            if optimizer is not None:
                model.compile(optimizer, "mse")
                model.optimizer.build(model.trainable_variables)
            yield model

    average = average_checkpoints(save_all(tmp_path, models()))
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
