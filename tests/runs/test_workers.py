import json
import signal
import time

import pytest
from same_runs import assert_same_end
from worker_processes import TIMEOUT, outputs, workers

from keras_transformer.runs import Run, prepare_recipe, train
from keras_transformer.text import prepared_dataset

pytestmark = pytest.mark.slow

# What two workers learn is what one process does, to rounding, without dropout.
SETTINGS = {
    "model.dropout": 0,
    "training.bleu_every": None,
    "training.seed": 5,
}


def shell(text, folder, epochs):
    arguments = ["-m", "keras_transformer.cli", "train", text / "small.yaml"]
    arguments += ["--data", text, "--run", folder]
    # XLA is asked for, as by default, and left out where there are several devices.
    more = {"training.epochs": epochs, "training.jit_compile": True}
    for name, value in {**SETTINGS, **more}.items():
        arguments += ["--set", f"{name}={json.dumps(value)}"]
    return arguments


def wait_for(path, processes):
    deadline = time.monotonic() + TIMEOUT
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} never came"
        assert all(process.poll() is None for process in processes), outputs(processes)


@pytest.fixture(scope="module")
def killed(text, tmp_path_factory):
    """A run whose second worker was killed, and what the first one said."""
    run = Run(tmp_path_factory.mktemp("runs") / "run")
    with workers(*shell(text, run.folder, epochs=9973)) as processes:
        wait_for(run.folder / "checkpoints" / "epoch-0002.keras", processes)
        processes[1].send_signal(signal.SIGKILL)
        [(_, stderr), _] = outputs(processes)
    return run, processes, stderr


@pytest.mark.slow
def test_a_worker_says_in_one_line_that_another_has_gone(killed):
    run, processes, stderr = killed
    assert [process.returncode for process in processes] == [1, -signal.SIGKILL]
    [line] = stderr.splitlines()
    assert line.startswith("Error: One of the 2 workers has stopped, so this one")
    assert "Start all of them again: they continue after the last checkpoint" in line


@pytest.mark.slow
def test_workers_that_are_started_again_go_on(killed, text, load, tmp_path):
    run, _, _ = killed
    epochs = run.checkpoints().epoch_of(run.checkpoints().latest()) + 1
    with workers(*shell(text, run.folder, epochs)) as (chief, other):
        [(shown, chief_error), (other_shown, other_error)] = outputs([chief, other])
    assert (chief.returncode, other.returncode) == (0, 0), chief_error + other_error
    assert f"Epoch {epochs}/{epochs}" in shown
    assert f"Epoch {epochs - 1}/" not in shown

    # Only the chief writes.
    assert "Epoch" not in other_shown
    pids = [
        path.name.split(".")[5]
        for path in (run.folder / "tensorboard").rglob("events*")
    ]
    assert str(chief.pid) in pids
    assert str(other.pid) not in pids

    # All is as if one process had done it, never interrupted.
    recipe = load(**SETTINGS, **{"training.epochs": epochs})
    alone = train(recipe, tmp_path / "alone")
    assert len(run.log.rows()) == len(alone.log.rows()) == epochs
    for found, wanted in zip(run.log.rows(), alone.log.rows(), strict=True):
        for name in ("perplexity", "val_perplexity", "learning_rate"):
            assert float(found[name]) == pytest.approx(float(wanted[name]), rel=1e-4)
    names = [sorted(path.name for path in r.folder.iterdir()) for r in (run, alone)]
    assert names[0] == names[1]


@pytest.mark.slow
def test_workers_whose_chief_was_killed_end_where_uninterrupted_ones_do(text, tmp_path):
    killed, whole = Run(tmp_path / "killed"), Run(tmp_path / "whole")
    with workers(*shell(text, killed.folder, epochs=9973)) as (chief, other):
        wait_for(killed.folder / "checkpoints" / "epoch-0003.keras", [chief, other])
        chief.send_signal(signal.SIGKILL)
        [_, (_, stderr)] = outputs([chief, other])
    assert (chief.returncode, other.returncode) == (-signal.SIGKILL, 1), stderr
    assert stderr.startswith("Error: One of the 2 workers has stopped")

    latest = killed.checkpoints().latest()
    epochs = killed.checkpoints().epoch_of(latest) + 2
    for run in (killed, whole):
        with workers(*shell(text, run.folder, epochs)) as processes:
            for _, stderr in outputs(processes):
                assert [one.returncode for one in processes] == [0, 0], stderr
    assert_same_end(killed, whole, epochs)


@pytest.mark.slow
def test_workers_train_on_shards_of_their_own(text, load, tmp_path):
    prepared, run = tmp_path / "prepared", Run(tmp_path / "run")
    prepare_recipe(load(), prepared, num_shards=3)
    arguments = [*shell(text, run.folder, 2), "--set", f"data.prepared={prepared}"]
    with workers(*arguments) as processes:
        found = outputs(processes)
    assert [process.returncode for process in processes] == [0, 0], found
    assert len(run.log.rows()) == 2
    model = run.checkpoints().load(run.checkpoints().latest())
    steps = prepared_dataset(prepared / "ids", 128, num_shards=2).cardinality()
    assert model.optimizer.iterations == 2 * steps


@pytest.mark.slow
def test_workers_that_sample_subwords_take_the_same_steps(text, tmp_path):
    """Each draws other subwords, of other lengths, than the others and than before."""
    run = Run(tmp_path / "run")
    for epochs in (1, 2):  # the second time, the training is resumed
        arguments = [*shell(text, run.folder, epochs), "--set", "tokenizer.sampling=1"]
        with workers(*arguments) as processes:
            found = outputs(processes)
        assert [process.returncode for process in processes] == [0, 0], found
        model = run.checkpoints().load(run.checkpoints().latest())
        assert model.optimizer.iterations == epochs * run.record.batches_per_epoch
    assert len(run.log.rows()) == 2
