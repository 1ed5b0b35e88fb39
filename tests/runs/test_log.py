import contextlib
import resource

import pytest

from keras_transformer.runs import Log
from keras_transformer.storage import write_text


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


def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "file.txt"
    write_text(path, "old")
    with small_disk(), pytest.raises(OSError, match="File too large"):
        write_text(path, "new" * 100)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
