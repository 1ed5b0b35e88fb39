"""A training that is killed again and again ends where an uninterrupted one does."""

import os
import random
import time

import pytest
from forked import CONTEXT
from same_runs import assert_same_end

from keras_transformer.runs import Run, train

TIMEOUT = 600  # seconds; a life takes about five


def live(recipe, run, moment=None):
    """Trains in a process of its own, which is killed at a moment, if one is given.

    A moment is seconds after the next checkpoint or, if negative, before that: after
    the start. Returns whether the training was killed.
    """

    def written():
        folder = run.folder / "checkpoints"
        entries = os.scandir(folder) if folder.exists() else ()
        return {(x.name, x.inode()) for x in entries if x.name.endswith(".keras")}

    before = written()
    process = CONTEXT.Process(target=train, args=(recipe, run.folder))
    process.start()
    start = time.monotonic()
    while moment is not None and process.is_alive():
        if moment < 0 and time.monotonic() - start > -moment:
            break
        if moment >= 0 and written() - before:
            process.join(moment)
            break
        process.join(0.01)
        assert time.monotonic() - start < TIMEOUT
    if moment is not None:
        process.kill()
    process.join(TIMEOUT)
    assert process.exitcode in (0, -9)
    return process.exitcode == -9


LENGTHS = {
    "epochs": lambda epochs: {"epochs": epochs},
    "within-epochs": lambda epochs: {"epochs": epochs, "checkpoint_every": 1},
    "steps": lambda epochs: {
        "epochs": None,
        "steps": 11 * epochs,
        "validate_every": 11,
        "checkpoint_every": 2,
    },
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("length", "kills"),
    [("epochs", 2), ("within-epochs", 2), ("steps", 2), ("within-epochs", 20)],
)
def test_a_killed_training_ends_where_an_uninterrupted_one_does(
    length, kills, load, tmp_path
):
    recipe = load(
        **{
            f"training.{name}": value
            for name, value in LENGTHS[length](6 * kills).items()
        },
        **{
            "training.cooldown_epochs": 2 * kills,
            "training.bleu_every": None,
            "training.keep": 2,
            "training.best": "val_token_accuracy",  # does not rise in every epoch
        },
    )
    killed, whole = Run(tmp_path / "killed"), Run(tmp_path / "whole")
    draw = random.Random(kills)
    moments = []
    while len(moments) < kills:
        # Some die young, before they have learnt anything.
        moment = draw.choice([-draw.uniform(0, 5), *(draw.uniform(0, 0.4),) * 4])
        assert live(recipe, killed, moment), "the training ended too soon"
        moments.append(moment)
    assert not live(recipe, killed)
    assert not live(recipe, whole)
    assert_same_end(killed, whole, 6 * kills)
    checkpoints = whole.checkpoints()
    assert checkpoints.epoch_of(checkpoints.best()) < 6 * kills - 2
