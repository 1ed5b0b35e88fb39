"""Comparison of a run that was killed and resumed with an uninterrupted one."""

import numpy as np


def assert_same_end(killed, whole, epochs):
    """Compares the logs and the last checkpoints of two `Run`s of `epochs` epochs."""
    found, wanted = (
        [{**row, "seconds": None} for row in run.log.rows()] for run in (killed, whole)
    )
    assert found == wanted
    assert len(found) == epochs
    models = [
        run.checkpoints().load(run.checkpoints().latest()) for run in (killed, whole)
    ]
    variables = [[*model.variables, *model.optimizer.variables] for model in models]
    for mine, others in zip(*variables, strict=True):
        np.testing.assert_array_equal(mine.numpy(), others.numpy(), others.path)
    assert not list(killed.folder.rglob(".*")), "unfinished files are left"
