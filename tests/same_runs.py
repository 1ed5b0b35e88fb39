"""Runs that are killed and resumed, and their comparison with uninterrupted ones."""

import numpy as np


def assert_same_end(killed, whole, epochs):
    """Compares the logs and checkpoints, last and best, of two `Run`s of `epochs`."""
    found, wanted = (
        [{**row, "seconds": None, "tokens_per_second": None} for row in run.log.rows()]
        for run in (killed, whole)
    )
    assert found == wanted
    assert len(found) == epochs
    both = [run.checkpoints() for run in (killed, whole)]
    for paths in ([x.latest() for x in both], [x.best_path for x in both]):
        assert both[0].epoch_of(paths[0]) == both[1].epoch_of(paths[1])
        models = [x.load(path) for x, path in zip(both, paths, strict=True)]
        variables = [[*model.variables, *model.optimizer.variables] for model in models]
        for mine, others in zip(*variables, strict=True):
            np.testing.assert_array_equal(mine.numpy(), others.numpy(), others.path)
    assert not list(killed.folder.rglob(".unfinished-*")), "unfinished files are left"
