"""Averages of the last checkpoints of a training run."""

import os
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import keras


def average_checkpoints(
    paths: str | os.PathLike | Iterable[str | os.PathLike],
) -> keras.Model:
    """Averages the weights of models saved during one training run.

    The mean of the last few epochs is nearer to the centre of the minimum than each of
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
    paths = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not paths:
        raise ValueError("`paths` must name at least one checkpoint. Received: [].")
    first_config = None
    sums: dict[int, Any] = defaultdict(float)
    for path in paths:
        model = keras.models.load_model(path, compile=False)
        config = model.get_config()
        first_config = first_config or config
        # Keras numbers the models of a process, so the names may differ.
        keys = (config.keys() | first_config.keys()) - {"name"}
        differing = sorted(k for k in keys if config.get(k) != first_config.get(k))
        if differing:
            raise ValueError(
                "`paths` must be checkpoints of one model. "
                f"{path} differs from {paths[0]} in: {', '.join(differing)}."
            )
        for index, weight in enumerate(model.weights):
            sums[index] += keras.ops.convert_to_numpy(weight).astype("float64")
    for index, weight in enumerate(model.weights):
        weight.assign(sums[index] / len(paths))
    return model
