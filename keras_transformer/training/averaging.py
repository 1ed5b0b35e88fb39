"""Averages of the last checkpoints of a training run."""

import os
from collections.abc import Iterable

import keras


def average_checkpoints(paths: Iterable[str | os.PathLike]) -> keras.Model:
    """Averages the weights of models saved during one training run.

    The mean of the last few epochs lies nearer the middle of the minimum than any of
    them, and translates better. It is computed in float64, one file at a time.

    Args:
        paths: Paths of `.keras` files of models of the same config, such as
            `Checkpoints.paths()[-5:]`, compiled in any way.

    Returns:
        The model of the last path with the averaged weights, not compiled.

    Raises:
        ValueError: If there is no path, or the models' configs differ.

    Example:
        >>> import tempfile
        >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     paths = [f"{folder}/{bias}.keras" for bias in (1, 2, 6)]
        ...     for path, bias in zip(paths, (1, 2, 6)):
        ...         model.set_weights([np.zeros((1, 1)), np.array([bias])])
        ...         model.save(path)
        ...     average_checkpoints(paths).get_weights()[1]
        array([3.], dtype=float32)

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 6.1
    """
    paths = list(paths)
    if not paths:
        raise ValueError("`paths` must name at least one checkpoint. Received: [].")
    sums, config = None, None
    for path in paths:
        model = keras.models.load_model(path, compile=False)
        weights = [_as_float64(weight) for weight in model.weights]
        if sums is None:
            sums, config = weights, _config(model)
            continue
        _check_same(config, _config(model), paths[0], path)
        for total, weight in zip(sums, weights, strict=True):
            total += weight
    for weight, total in zip(model.weights, sums, strict=True):
        weight.assign(total / len(paths))
    return model


def _as_float64(weight):
    return keras.ops.convert_to_numpy(weight).astype("float64")


def _config(model):
    # Keras numbers the models of a process, so the names may differ.
    return {key: x for key, x in model.get_config().items() if key != "name"}


def _check_same(config, other, path, other_path):
    keys = config.keys() | other.keys()
    differing = sorted(key for key in keys if config.get(key) != other.get(key))
    if differing:
        raise ValueError(
            "`paths` must be checkpoints of one model. "
            f"{other_path} differs from {path} in: {', '.join(differing)}."
        )
