"""A training that is killed again and again ends where an uninterrupted one does."""

import random
import time

import pytest
from forked import CONTEXT
from same_runs import assert_same_end

from keras_transformer.runs import Run, fit, plan

TIMEOUT = 600  # seconds; a life takes about five


def train(recipe, folder):
    fit(plan(recipe, Run(folder)))


def live(recipe, run, moment=None):
    """Trains in a process of its own, which is killed at a moment, if one is given.

    A moment is seconds after the next checkpoint or, if negative, before that: after
    the start. Returns whether the training was killed.
    """
    last = run.folder / "checkpoints"
    before = set(last.glob("*.keras"))
    process = CONTEXT.Process(target=train, args=(recipe, run.folder))
    process.start()
    start = time.monotonic()
    while moment is not None and process.is_alive():
        if moment < 0 and time.monotonic() - start > -moment:
            break
        if moment >= 0 and set(last.glob("*.keras")) - before:
            process.join(moment)
            break
        process.join(0.01)
        assert time.monotonic() - start < TIMEOUT
    if moment is not None:
        process.kill()
    process.join(TIMEOUT)
    assert process.exitcode in (0, -9)
    return process.exitcode == -9


@pytest.mark.slow
@pytest.mark.parametrize("kills", [2, 20])
def test_a_killed_training_ends_where_an_uninterrupted_one_does(kills, load, tmp_path):
    recipe = load(
        **{
            "training.epochs": 6 * kills,
            "training.cooldown_epochs": 2 * kills,
            "training.bleu_every": None,
            "training.keep": 2,
            "training.best": "val_token_accuracy",  # does not rise in every epoch
        }
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
