import contextlib
import resource

import keras
import numpy as np
import pytest

from keras_transformer.runs import Log
from keras_transformer.runs.log import WriteLog, WriteTensorBoard
from keras_transformer.storage import write_text
from keras_transformer.training import Adam, ShowProgress


@pytest.fixture
def log(tmp_path):
    return Log(tmp_path / "log.csv")


def fill(log, losses):
    for epoch, loss in enumerate(losses, start=1):
        log.add({"epoch": epoch, "val_loss": loss})


@contextlib.contextmanager
def small_disk():
    """No file may grow beyond 100 bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_log_that_is_not_there_has_no_rows(log):
    assert log.rows() == []
    assert log.epochs_without_improvement() == 0


def test_rows_come_back_in_order_under_their_columns(log):
    fill(log, [0.5, 0.25])
    assert [(row["epoch"], row["val_loss"]) for row in log.rows()] == [
        ("1", "0.5"),
        ("2", "0.25"),
    ]
    assert log.rows()[0]["val_bleu"] == ""


def test_an_unknown_column_is_refused(log):
    with pytest.raises(ValueError, match="not in fieldnames"):
        log.add({"epoch": 1, "loss_of_hope": 1.0})


def test_a_column_of_a_later_version_is_kept(log):
    log.path.write_text("epoch,val_loss,val_hope\n1,0.5,7\n")
    log.add({"epoch": 2, "val_loss": 0.25})
    assert [row["val_hope"] for row in log.rows()] == ["7", ""]
    log.truncate(1)
    assert [row["val_hope"] for row in log.rows()] == ["7"]


def test_an_epoch_without_a_row_is_counted(log):
    for epoch, loss in ((1, 3), (3, 1), (4, 2), (5, 2)):
        log.add({"epoch": epoch, "val_loss": loss})
    assert log.epochs_without_improvement() == 2
    assert [log.epochs_without_improvement(x) for x in (0, 1, 2, 3, 4)] == [
        0,
        0,
        0,
        0,
        1,
    ]


@pytest.mark.parametrize("epochs", [0, 1, 3, 5])
def test_truncating_keeps_the_first_epochs(log, epochs):
    fill(log, [0.5, 0.3, 0.2])
    log.truncate(epochs)
    assert [int(row["epoch"]) for row in log.rows()] == [1, 2, 3][:epochs]


@pytest.mark.parametrize(
    ("losses", "epochs"),
    [
        ([3], 0),
        ([3, 2, 1], 0),
        ([1, 2, 3], 2),
        ([2, 1, 3, 2], 2),
        ([2, 1, 1], 1),
        ([float("nan"), 3, 2], 0),
    ],
)
def test_improvement_is_counted_from_the_lowest_loss(log, losses, epochs):
    fill(log, losses)
    assert log.epochs_without_improvement() == epochs
    log.add({"epoch": len(losses) + 1, "val_loss": 0.0})
    assert log.epochs_without_improvement() == 0
    assert log.epochs_without_improvement(len(losses)) == epochs


@pytest.mark.parametrize(
    ("optimizer", "norms"),
    [
        (lambda: Adam(0.5), [6, 5]),
        (lambda: keras.optimizers.LossScaleOptimizer(Adam(0.5)), [6, 5]),
        (lambda: keras.optimizers.Adam(0.5), []),  # which measures none
    ],
)
def test_a_row_has_the_gradient_norm_of_its_epoch(log, optimizer, norms):
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    model = keras.Sequential([keras.Input((1,)), layer])
    model.compile(optimizer(), "mse", metrics=["mse"])
    data = np.array([[1.0]]), np.array([[3.0]])  # the gradient is 2 (weight - 3)
    history = model.fit(
        *data,
        validation_data=data,
        epochs=2,
        verbose=0,
        callbacks=[ShowProgress(1), WriteLog(log)],
    ).history
    assert "val_gradient_norm" not in history
    cells = [row["gradient_norm"] for row in log.rows()]
    assert len(cells) == 2
    assert [float(cell) for cell in cells if cell] == pytest.approx(norms, rel=1e-3)


def test_a_training_that_stops_early_names_the_best_epoch(log, capsys):
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    model = keras.Sequential([keras.Input((1,)), layer])
    model.compile("sgd", "mse", metrics=["mse"])
    text, other = [(np.ones((1, 1)), np.full((1, 1), y)) for y in (3.0, -3.0)]
    how = {"validation_data": other, "verbose": 0, "callbacks": [WriteLog(log, 2)]}
    assert len(model.fit(*text, epochs=7, **how).epoch) == 3
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith("Stopped early, after epoch 3 of 7: the validation loss")
    assert "lowest after epoch 1" in line


def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "file.txt"
    write_text(path, "old")
    with small_disk(), pytest.raises(OSError, match="File too large"):
        write_text(path, "new" * 100)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_training_goes_on_while_tensorboard_cannot_write(tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    data, steps = (np.ones((5, 3)), np.ones((5, 2))), []
    board = WriteTensorBoard(tmp_path, write_graph=False)
    count = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: steps.append(1)
    )
    how = {"validation_data": data, "verbose": 0, "callbacks": [board, count]}
    with (
        small_disk(),
        pytest.warns(UserWarning, match="TensorBoard shows no more") as warned,
    ):
        history = model.fit(*data, batch_size=1, epochs=3, **how)
    assert history.epoch == [0, 1, 2]
    assert len(steps) == 15
    [message] = [str(x.message) for x in warned if "TensorBoard" in str(x.message)]
    assert "Free some disk space" in message
    assert "\n" not in message
